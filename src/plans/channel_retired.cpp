// SPDX-License-Identifier: Apache-2.0
// What runs may still use of a channel's end. See channel_retired.hpp.
#include "plans/channel_retired.hpp"

#include <algorithm>
#include <utility>

namespace thalweg::impl {

void ChannelRetired::keep(Retired&& one, bool in_use) {
  const bool kept = std::any_of(memory_.begin(), memory_.end(),
                                [&one](const Retired& other) { return other.reached.same_memory(one.reached); });
  if (kept || !in_use) return give_back(one);
  memory_.push_back(std::move(one));
}

void ChannelRetired::give_back(Retired& one) {
  one.reached.reset();
  if (one.region != nullptr) tw_remote_memory_release(one.region);
}

void ChannelRetired::free_memory() {
  for (Retired& one : std::exchange(memory_, {})) give_back(one);
}

void ChannelRetired::keep_table(Arena& own, uint64_t address, size_t length, bool in_use) {
  if (address == 0) return;
  if (!in_use) return own.free(address, length);
  tables_.push_back({&own, address, length});
  table_bytes_ += length;
}

void ChannelRetired::free(std::vector<Piece>& pieces) {
  for (const Piece& one : std::exchange(pieces, {})) one.own->free(one.address, one.length);
}

void ChannelRetired::free_tables() {
  free(tables_);
  table_bytes_ = 0;
}

void ChannelRetired::hold(uint16_t index) {
  if (std::find(held_.begin(), held_.end(), index) == held_.end()) held_.push_back(index);
}

std::vector<uint16_t> ChannelRetired::take_held() { return std::exchange(held_, {}); }

void ChannelRetired::free_words() { free(words_); }

}  // namespace thalweg::impl
