// SPDX-License-Identifier: Apache-2.0
// What runs may still use of a channel's end. See channel_retired.hpp.
#include "plans/channel_retired.hpp"

#include <algorithm>
#include <utility>

namespace thalweg::impl {

void ChannelRetired::keep(Retired&& one, Arena& own, bool in_use) {
  Kept made{std::move(one), &own};
  const bool kept = made.one.table == 0 && std::any_of(memory_.begin(), memory_.end(), [&made](const Kept& other) {
                      return other.one.reached.same_memory(made.one.reached);
                    });
  if (kept || !in_use) return give_back(made);
  memory_.push_back(std::move(made));
}

void ChannelRetired::give_back(Kept& kept) {
  kept.one.reached.reset();
  if (kept.one.region != nullptr) tw_remote_memory_release(kept.one.region);
  kept.own->free(kept.one.table, kept.one.table_length);
}

void ChannelRetired::free_memory() {
  for (Kept& one : std::exchange(memory_, {})) give_back(one);
}

void ChannelRetired::hold(uint16_t index) {
  if (std::find(held_.begin(), held_.end(), index) == held_.end()) held_.push_back(index);
}

std::vector<uint16_t> ChannelRetired::take_held() { return std::exchange(held_, {}); }

void ChannelRetired::free_words() {
  for (const Piece& one : std::exchange(words_, {})) one.own->free(one.address, one.length);
}

}  // namespace thalweg::impl
