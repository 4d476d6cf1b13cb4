// SPDX-License-Identifier: Apache-2.0
// Writes the schedule of one rank. An algorithm states its steps as if they ran one after the other; the writer finds what has
// to wait for what: a step names the earlier ones that wrote what it reads, or that read or wrote what it writes. Long
// messages, and reductions, are cut into chunks, so a reduction of one chunk goes on while the next one is received: nothing
// else is needed to pipeline. Both sides of a message cut it by its length alone.
#pragma once
#include <initializer_list>
#include <map>

#include "collectives/schedule.hpp"

namespace thalweg::impl {

/// The part of `part` from `offset` on.
inline Part slice(const Part& part, uint64_t offset, uint64_t length) { return {part.where, part.offset + offset, length}; }
inline bool operator==(const Part& a, const Part& b) {
  return a.where == b.where && a.offset == b.offset && a.length == b.length;
}

class Writer {
 public:
  /// whole: no message is cut; for algorithms that only move bytes between a rank and each other one.
  enum class Cut : uint8_t { chunks, whole };
  Writer(const Collective& collective, Schedule* schedule, Cut cut = Cut::chunks);

  // None of them does anything with parts of 0 bytes, or copies a part to itself.
  void send(uint32_t peer, const Part& from);
  void recv(uint32_t peer, const Part& to);
  void copy(const Part& to, const Part& from);
  /// to = the sources, combined in their order. Each is as long as `to`, and the same part as it or apart from it. Of one source: a
  /// copy, but for Collective::truths.
  void reduce(const Part& to, std::span<const Part> from);
  void reduce(const Part& to, std::initializer_list<Part> from) { reduce(to, std::span(from.begin(), from.size())); }
  /// One message that has these parts one behind the other; by way of scratch memory unless they lie so.
  void send(uint32_t peer, std::span<const Part> from);
  void recv(uint32_t peer, std::span<const Part> to);

  Part scratch(uint64_t length) { return length == 0 ? Part{} : schedule_->take_scratch(length); }
  /// As long as each of `like`, one behind the other.
  std::vector<Part> scratch_like(std::span<const Part> like);

  uint32_t element() const { return static_cast<uint32_t>(element_); }
  /// Steps so far.
  uint32_t steps() const { return static_cast<uint32_t>(schedule_->steps.size()); }
  /// Steps from now on also wait for those in [first, last).
  void follow(uint32_t first, uint32_t last) {
    follow_first_ = first;
    follow_last_ = last;
  }

 private:
  // Bytes, up to the next key, that were written by one step and then read by some.
  struct Bytes {
    uint32_t writer = kNone;
    std::vector<uint32_t> readers = {};
  };
  using Buffer = std::map<uint64_t, Bytes>;
  static constexpr uint32_t kNone = UINT32_MAX;

  template <class Each>
  void each_chunk(uint64_t length, Each&& each) const;
  Buffer& buffer(const Part& part) { return buffers_[static_cast<size_t>(part.where)]; }
  Buffer::iterator split(Buffer& buffer, uint64_t at);
  void reads(const Part& part);
  void writes(const Part& part);
  std::span<const uint32_t> waits();

  Schedule* schedule_;
  uint64_t chunk_;    // bytes, whole elements; 0: no cut
  uint64_t element_;  // bytes
  bool truths_;
  Buffer buffers_[3];
  std::vector<uint32_t> after_;
  uint32_t follow_first_ = 0, follow_last_ = 0;
};

/// The parts as one, if they lie one behind the other. Empty parts count nowhere.
bool adjacent(std::span<const Part> parts, Part* whole);

}  // namespace thalweg::impl
