// SPDX-License-Identifier: Apache-2.0
// Posted receives of one side of a link, offered to the other one in shared memory, so that a sender can start to move its
// payload into one of them inside its call (protocols/offers.hpp).
//
// A table has one writer of offers, the receiver, and one of claims, the sender. A state word tells which side owns an
// entry: `free` and `offered` by the receiver, `claimed` by the sender, and both leave `offered` by compare-and-swap: either
// the receive is withdrawn or it is claimed. The number in the word is new for each offer, so a claim never takes a later
// one that has the same place.
//
// Nothing here is trusted by its reader: what a claim names is copied before the swap, and the receiver uses its own
// record.
#pragma once
#include <cstdint>

namespace thalweg::impl {

inline constexpr unsigned kOffers = 8;  // of a direction: a cache line of states

/// A posted receive. Written before its state says `offered`, then left alone.
struct alignas(128) ReceiveOffer {
  uint64_t tag, mask, capacity;
  uint64_t segment, segment_offset;  // the device memory, by the name under which it is imported
  uint64_t uuid[2];                  // of its device
  uint64_t op;                       // the receiver's, for fin
  uint64_t taken;                    // frames that the receiver had taken from this link
  uint64_t order;                    // of posting: smaller is earlier
};

struct OfferTable {
  alignas(128) uint64_t states[kOffers];
  ReceiveOffer offers[kOffers];
  /// By the side that writes the offers here, as a sender of its own: not 0 while it reads the other table and sends the
  /// RTS. The side that offers a receive waits for that, and then finds the RTS.
  alignas(128) uint64_t sending_rts;
};

/// A link's: what this side offers, and what the other one does. Null: there are none.
struct OfferTables {
  OfferTable *mine = nullptr, *theirs = nullptr;
};

enum class OfferState : uint64_t { free, offered, claimed };
constexpr uint64_t offer_word(uint64_t number, OfferState state) { return number << 2 | static_cast<uint64_t>(state); }
constexpr bool is_offered(uint64_t word) { return (word & 3) == static_cast<uint64_t>(OfferState::offered); }

/// Acquire: what was written before `offered` is visible.
inline uint64_t load_state(const uint64_t& word) { return __atomic_load_n(&word, __ATOMIC_ACQUIRE); }
inline bool swap_state(uint64_t& word, uint64_t from, uint64_t to) {
  return __atomic_compare_exchange_n(&word, &from, to, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

}  // namespace thalweg::impl
