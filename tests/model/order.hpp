// SPDX-License-Identifier: Apache-2.0
// The reference for one-sided operations: which writes a byte of exported memory may show. Operations of an endpoint are
// ordered by its fences only; across endpoints by what was reported before the later one was posted. A write is `sure` from
// the moment that something says that it is applied: a flush, an acknowledgement, a signal that covers it, a later operation
// behind a fence that was seen, or a read that shows its bytes. Then nothing that comes before it can be seen any more.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace thalweg::model {

/// What the order of one-sided operations depends on.
struct Access {
  uint32_t id = 0;        // of the operation, > 0
  unsigned endpoint = 0;  // whose order it is in
  uint32_t epoch = 0;     // fences of the endpoint before it
  uint32_t posted = 0;    // when: the clock of the model
};

/// The byte of operation `id`'s payload at `position`.
inline std::byte pattern(uint32_t id, uint64_t position) {
  return static_cast<std::byte>(id * 37 + position * 11 + (position >> 8) * 29 + 13);
}

/// Of one memory: for each range the writes that may be seen there.
class Order {
 public:
  struct Write {
    const Access* access = nullptr;  // null: the contents at the start
    int64_t shift = 0;               // payload position - offset in the memory
    uint32_t sure = 0;               // when it became so, 0: it is not
    uint32_t gone = 0;               // when it was overwritten for sure, 0: it is not
  };
  explicit Order(size_t length = 0) { cells_.push_back({0, length, {Write{nullptr, 0, 1, 0}}}); }

  void write(uint64_t begin, uint64_t end, const Access& access, int64_t shift);
  /// It is applied, in this range.
  void sure(uint64_t begin, uint64_t end, const Access& access, uint32_t now);
  /// It never began.
  void forget(uint64_t begin, uint64_t end, const Access& access);
  /// Do these bytes of [begin, end) show what they may? A read of the endpoint's, posted as `reader` says; null: a look by
  /// the owner, now. `since`: when it was posted. On success *seen gets the operations whose bytes were certainly there.
  bool check(uint64_t begin, uint64_t end, const std::byte* bytes, const Access* reader, uint32_t since, uint32_t now,
             std::vector<const Access*>* seen, std::string* why);

 private:
  struct Cell {
    uint64_t begin, end;
    std::vector<Write> writes;
  };
  static bool precedes(const Write& first, const Write& second);
  static void settle(Cell& cell, Write& write, uint32_t now);
  bool allowed(const Cell& cell, const Write& write, const Access* reader, uint32_t since) const;
  size_t split(uint64_t at);
  std::vector<Cell> cells_;
};

}  // namespace thalweg::model
