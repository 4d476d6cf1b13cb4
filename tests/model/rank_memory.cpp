// SPDX-License-Identifier: Apache-2.0
#include "model/rank_memory.hpp"

#include <algorithm>
#include <cstdlib>
#include <iterator>

namespace thalweg::model {
namespace {

constexpr size_t kGuard = 64, kLength = 4u << 20;
constexpr std::byte kBeside{0x7e};

void require(tw_status status) {
  if (status != TW_OK) std::abort();
}

}  // namespace

void RankBuffer::store() const {
  if (whole == nullptr) return;
  Bytes all(before.size() + 2 * kGuard, kBeside);
  std::copy(before.begin(), before.end(), all.begin() + kGuard);
  require(tw_memory_copy(context, whole, all.data(), all.size()));
}

bool RankBuffer::holds(const Bytes& bytes) const {
  if (whole == nullptr) return true;
  Bytes all(before.size() + 2 * kGuard), wanted(before.size() + 2 * kGuard, kBeside);
  require(tw_memory_copy(context, all.data(), whole, all.size()));
  const Bytes& inside = bytes.empty() ? Bytes(all.begin() + kGuard, all.end() - kGuard) : bytes;
  std::copy(inside.begin(), inside.end(), wanted.begin() + kGuard);
  return all == wanted;
}

RankMemory::~RankMemory() {
  for (auto& [place, arena] : arenas_) (void)tw_memory_release(arena.memory);  // busy behind a failure
}

std::byte* RankMemory::room(Arena& arena, const char* place, size_t length) {
  if (arena.memory == nullptr) {
    tw_memory_options options = TW_MEMORY_OPTIONS_INIT;
    options.place = place;
    require(tw_memory_allocate(context_, kLength, &options, &arena.memory));
  }
  if (arena.used + length > kLength) return nullptr;
  std::byte* const at = static_cast<std::byte*>(tw_memory_address(arena.memory)) + arena.used;
  arena.used += length;
  return at;
}

uint64_t* RankMemory::word() {
  auto* const made = reinterpret_cast<uint64_t*>(room(arenas_["pinned"], "pinned", 16));
  if (made == nullptr) std::abort();
  *made = 0;
  return made;
}

const uint64_t* RankMemory::one() {
  if (one_ == nullptr) *(one_ = word()) = 1;
  return one_;
}

RankBuffer RankMemory::take(const Side& side, size_t element) {
  RankBuffer made;
  made.context = context_;
  if (side.placed) made.address = TW_IN_PLACE;
  if (!side.used || side.placed) return made;
  made.before = side.before;
  const char* const places[] = {nullptr, device(), "emulated:0", "host", nullptr, "emulated:1"};
  const char* const place = places[side.kind % std::size(places)];
  const size_t shift = element * (taken_++ % 3), length = (side.before.size() + 2 * kGuard + 15 + shift) / 16 * 16;
  if (place != nullptr) made.whole = room(arenas_[place], place, length);
  made.on_device = made.whole != nullptr && std::string(place) != "host";
  if (made.whole == nullptr) made.whole = plain_.emplace_back(new std::byte[length]).get();
  made.whole += shift;
  made.address = made.whole + kGuard;
  made.store();
  return made;
}

}  // namespace thalweg::model
