// SPDX-License-Identifier: Apache-2.0
// The windows that a group's collectives on queues use (tw_window_register_on). All ranks register them in one order, which numbers
// them. Under the engine's lock.
#pragma once
#include <cstdint>
#include <vector>

struct tw_window;

namespace thalweg::impl {

class WindowList {
 public:
  struct One {
    tw_window* window;
    uint64_t number;  // from 1 on; never another one's
  };
  WindowList() = default;
  WindowList(const WindowList&) = delete;
  WindowList& operator=(const WindowList&) = delete;
  ~WindowList();

  void add(tw_window& window);
  void remove(tw_window& window);
  /// The one that holds [address, address + length); null: none does.
  const One* find(uint64_t address, uint64_t length) const;
  /// Of the one that holds the address; 0: none does.
  uint64_t number_at(uint64_t address) const;
  /// Does one share memory with this one?
  bool overlaps(const tw_window& window) const;

 private:
  std::vector<One> all_;
  uint64_t made_ = 0;
};

}  // namespace thalweg::impl
