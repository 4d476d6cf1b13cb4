// SPDX-License-Identifier: Apache-2.0
#include "plans/window_list.hpp"

#include <algorithm>

#include "plans/window.hpp"

namespace thalweg::impl {
namespace {

uint64_t begin_of(const tw_window& window) { return reinterpret_cast<uint64_t>(tw_memory_address(window.memory)); }
uint64_t end_of(const tw_window& window) { return begin_of(window) + window.memory->length; }

}  // namespace

WindowList::~WindowList() {
  for (const One& one : all_) one.window->listed = nullptr;
}

void WindowList::add(tw_window& window) {
  all_.push_back({&window, ++made_});
  window.listed = this;
}

void WindowList::remove(tw_window& window) {
  std::erase_if(all_, [&](const One& one) { return one.window == &window; });
  window.listed = nullptr;
}

const WindowList::One* WindowList::find(uint64_t address, uint64_t length) const {
  const auto holds = [&](const One& one) {
    const uint64_t begin = begin_of(*one.window), all = one.window->memory->length;
    return address >= begin && length <= all && address - begin <= all - length;
  };
  const auto found = std::find_if(all_.begin(), all_.end(), holds);
  return found != all_.end() ? &*found : nullptr;
}

uint64_t WindowList::number_at(uint64_t address) const {
  const One* const one = find(address, 1);
  return one != nullptr ? one->number : 0;
}

bool WindowList::overlaps(const tw_window& window) const {
  return std::any_of(all_.begin(), all_.end(), [&](const One& one) {
    return begin_of(*one.window) < end_of(window) && begin_of(window) < end_of(*one.window);
  });
}

}  // namespace thalweg::impl
