// SPDX-License-Identifier: Apache-2.0
// The windows of a group: where its collectives on queues find out whether all ranks' buffers lie in them. All ranks make them in one
// order, which numbers them.
#pragma once
#include <cstdint>
#include <vector>

struct tw_window;

namespace thalweg::impl {

class WindowList {
 public:
  WindowList() = default;
  WindowList(const WindowList&) = delete;
  WindowList& operator=(const WindowList&) = delete;
  ~WindowList();

  void add(tw_window& window);
  void remove(tw_window& window);
  /// Do all ranks' kernels reach all of it? Found out together, once.
  enum class Reach : uint8_t { unknown, all, not_all };
  struct One {
    tw_window* window;
    uint64_t number;  // from 1 on
    Reach reach = Reach::unknown;
  };
  /// The one that holds [address, address + length), until the next change; null: none does.
  One* find(uint64_t address, uint64_t length);
  /// Another one, when windows were made or ended.
  uint64_t version() const { return changes_; }

 private:
  std::vector<One> all_;
  uint64_t made_ = 0, changes_ = 0;
};

}  // namespace thalweg::impl
