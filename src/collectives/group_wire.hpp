// SPDX-License-Identifier: Apache-2.0
// What messages of a group carry: tags in the match space of groups (kOpGroup), what the ranks called, and how one gives up.
#pragma once
#include <cstdint>

namespace thalweg::impl {

// A tag: 26 bits of the group's id, 19 of the collective's number, 19 of the message among those from one rank to another one
// within it. Two groups with the same 26 bits are a chance of 1 in 67 million, and then they must share two ranks and a number.
inline constexpr unsigned kMessageBits = 19, kNumberBits = 19;
inline constexpr uint64_t kMostMessages = uint64_t{1} << kMessageBits;
inline constexpr uint64_t kGroupMask = ~uint64_t{0} << (kMessageBits + kNumberBits);
inline constexpr uint64_t kLastNumber = (uint64_t{1} << kNumberBits) - 1;  // of no collective: of kGiveUp

constexpr uint64_t group_tag(uint64_t id, uint64_t number, uint64_t message) {
  return (id * 0x9E3779B97F4A7C15u & kGroupMask) | number % kLastNumber << kMessageBits | message;
}
constexpr uint64_t give_up_tag(uint64_t id) { return group_tag(id, 0, 0) | kLastNumber << kMessageBits; }

/// What a rank called, beside each of its messages: ranks that called something else are found out.
struct CalledThing {
  uint8_t kind = 0, type = 0, op = 0, algorithm = 0;  // of 4 bits each; algorithm: by a sum of its name
  uint16_t root = 0;
  uint32_t count = 0;  // both: the lowest bits; count of the v forms: 0, or, where all ranks give all counts, their checksum
};
/// CalledThing::root of kinds without one: count is a checksum.
inline constexpr uint16_t kCountsByRank = UINT16_MAX;
constexpr uint64_t pack(const CalledThing& one) {
  return (one.kind & 15u) | (one.type & 15u) << 4 | (one.op & 15u) << 8 | (one.algorithm & 15u) << 12 |
         uint64_t{one.root} << 16 | uint64_t{one.count} << 32;
}
constexpr CalledThing unpack_called(uint64_t word) {
  return {static_cast<uint8_t>(word & 15),       static_cast<uint8_t>(word >> 4 & 15), static_cast<uint8_t>(word >> 8 & 15),
          static_cast<uint8_t>(word >> 12 & 15), static_cast<uint16_t>(word >> 16),    static_cast<uint32_t>(word >> 32)};
}

/// To all ranks, once: the group has failed at `rank`.
struct GiveUp {
  uint32_t rank;    // the sender
  int32_t status;   // of its collectives
  uint32_t lost;    // the rank whose fault it is; kNoRank: not known
  uint32_t length;  // of `why`
  char why[240];
};
inline constexpr uint32_t kNoRank = UINT32_MAX;

}  // namespace thalweg::impl
