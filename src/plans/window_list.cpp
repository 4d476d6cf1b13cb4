// SPDX-License-Identifier: Apache-2.0
#include "plans/window_list.hpp"

#include <algorithm>

#include "plans/window.hpp"

namespace thalweg::impl {

WindowList::~WindowList() {
  for (const One& one : all_) one.window->listed = nullptr;
}

void WindowList::add(tw_window& window) {
  all_.push_back({&window, ++made_});
  window.listed = this;
  ++changes_;
}

void WindowList::remove(tw_window& window) {
  std::erase_if(all_, [&](const One& one) { return one.window == &window; });
  window.listed = nullptr;
  ++changes_;
}

WindowList::One* WindowList::find(uint64_t address, uint64_t length) {
  const auto holds = [&](const One& one) {
    const auto begin = reinterpret_cast<uint64_t>(tw_memory_address(one.window->memory));
    return address >= begin && length <= one.window->memory->length && address - begin <= one.window->memory->length - length;
  };
  const auto found = std::find_if(all_.begin(), all_.end(), holds);
  return found != all_.end() ? &*found : nullptr;
}

}  // namespace thalweg::impl
