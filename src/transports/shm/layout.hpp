// SPDX-License-Identifier: Apache-2.0
// What two processes share: the memory of one connection, the doorbell of one port, the set-up message.
//
// A connection has two direction blocks, each with one producer and one consumer. A direction is
//   - a command ring of 128-byte slots. A slot is the frame's header and up to 104 body bytes. The header's first 8 bytes are
//     stored last, with one release store; bit 7 of `type` (kParity) flips each phase, so that the consumer sees a new frame in
//     the slot itself and the two sides share nothing else per frame. Caches fetch lines in pairs: a consumer that polls one line
//     would take the next slot from the producer if that were the other line of the pair;
//   - a bulk ring of bytes for larger bodies. A body is contiguous; both sides compute its place by the same rule (place())
//     from the body lengths alone, so no position is ever read from the peer. A producer that often finds no room gets a deep
//     one, memory of its own; a frame without a body (kTurn) means that the bodies behind it lie there, or in the first again;
//   - control words on cache lines of their own. The consumer gives room back lazily; the producer looks only when it
//     believes that it has none.
//
// Nothing here is trusted by its reader: header words are loaded once, lengths checked against what the ring can hold,
// positions are private. A body may still be rewritten by a hostile peer while it is read: a reader copies it once
// and never relies on two reads giving the same value.
//
// 64 slots, a credit every 16 frames, 16 KiB bodies and room for three of them at first, for sixteen in a deep ring:
// measured (docs/decisions/0002).
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/platform/tsan.hpp"
#include "transports/offers.hpp"
#include "transports/transport.hpp"

namespace thalweg::impl::shm {

inline constexpr uint32_t kSlots = 64;
inline constexpr uint32_t kSlotBytes = 128;
inline constexpr uint32_t kInlineMax = kSlotBytes - sizeof(FrameHeader);  // 104
inline constexpr uint32_t kFragment = 16 * 1024;
inline constexpr uint32_t kCopyMax = kFragment + 512;  // a fragment and the headers of any frame type
inline constexpr uint32_t kBulkBytes = 50 * 1024;      // three fragments and 2 KiB of small bodies between them
inline constexpr uint32_t kDeepBytes = 274 * 1024;     // sixteen fragments, and room for padding
inline constexpr uint32_t kWideBytes = 4 << 20;        // more than two cores' own caches hold
inline constexpr unsigned kMostWide = 16;              // wide rings that a port makes
inline constexpr uint32_t kTurn = UINT32_MAX;          // FrameHeader.length of that frame
inline constexpr uint32_t kBulkUnit = 64;
inline constexpr uint32_t kCreditSlots = kSlots / 4;
inline constexpr uint32_t kCreditBulk = 8 * 1024;
// A body may need wrap padding of almost its own size; with everything consumed at most kCreditBulk is not yet returned.
static_assert(2 * kCopyMax + kCreditBulk <= kBulkBytes, "a body of kCopyMax must fit whatever the position is");
static_assert(kBulkBytes % kBulkUnit == 0 && kDeepBytes % kBulkUnit == 0 && kDeepBytes > kBulkBytes &&
              (kSlots & (kSlots - 1)) == 0);

/// Bit 7 of FrameHeader.type inside the first 8 header bytes (little endian).
inline constexpr uint64_t kParity = Port::Arrival::kParity;

struct alignas(kSlotBytes) Slot {
  uint64_t word;  // length, type | parity, flags, id
  uint64_t a, b;
  std::byte body[kInlineMax];
};
static_assert(sizeof(Slot) == kSlotBytes);

/// How the consumer of a ring wants to learn of frames.
inline constexpr uint32_t kPolled = 0;         // it polls
inline constexpr uint32_t kWantsDoorbell = 1;  // ring its doorbell after publishing

struct RingControl {
  alignas(128) uint32_t producer_waiting;  // written by the producer: ring my doorbell when you give room back
  alignas(128) uint64_t consumed_slots;    // written by the consumer, monotonic
  uint64_t consumed_bulk;                  // bytes with padding, monotonic
  alignas(128) uint32_t consumer_mode;     // written by the consumer
  alignas(128) uint32_t copying;           // written by the producer: odd while it touches the consumer's memory
  uint32_t closed;                         // written by the producer: touch my memory no more
};
static_assert(sizeof(RingControl) == 512);

struct Direction {
  RingControl control;
  alignas(512) Slot slots[kSlots];
  std::byte bulk[kBulkBytes];
};

/// Direction 0: from the initiator. All zero at first: phase 0 publishes parity 1.
struct Connection {
  Direction direction[2];
  OfferTable offers[2];  // what the side that writes to that direction offers to receive
};
static_assert(sizeof(Connection) <= 120 * 1024, "the memory budget of an idle endpoint is 128 KiB");

inline uint32_t bulk_size(uint32_t length) { return (length + kBulkUnit - 1) & ~(kBulkUnit - 1); }

/// The one rule for where a body goes: behind the previous one, or at the start when it does not fit before the end.
/// position <= capacity. *taken: bytes used with padding.
inline uint32_t place(uint32_t position, uint32_t size, uint32_t capacity, uint32_t* taken) {
  if (position + size <= capacity) {
    *taken = size;
    return position;
  }
  *taken = size + (capacity - position);
  return 0;
}

// Shared words are plain integers accessed by these: std::atomic in shared memory would claim a lifetime it does not have.
inline uint64_t load_acquire(const uint64_t& w) {
  const uint64_t seen = __atomic_load_n(&w, __ATOMIC_ACQUIRE);
  tsan_acquired(&w);
  return seen;
}
inline uint64_t load_relaxed(const uint64_t& w) { return __atomic_load_n(&w, __ATOMIC_RELAXED); }
inline uint32_t load_relaxed(const uint32_t& w) { return __atomic_load_n(&w, __ATOMIC_RELAXED); }
inline void store_release(uint64_t& w, uint64_t v) {
  tsan_releasing(&w);
  __atomic_store_n(&w, v, __ATOMIC_RELEASE);
}
inline void store_relaxed(uint64_t& w, uint64_t v) { __atomic_store_n(&w, v, __ATOMIC_RELAXED); }
inline void store_relaxed(uint32_t& w, uint32_t v) { __atomic_store_n(&w, v, __ATOMIC_RELAXED); }

/// The memory of a port's doorbell, mapped by all its peers. Peers can disturb each other's wake-ups here (they hold the job
/// key) but nothing else: bits only select the rings to poll. What one takes away is found by the port's own looks (ShmPort::kDistrustNs).
inline constexpr uint32_t kDoorbellWords = 64;
inline constexpr uint32_t kDoorbellBits = kDoorbellWords * 64;
inline constexpr uint32_t kProbeWords = 256;
struct DoorbellMemory {
  alignas(128) uint64_t summary;   // bit w: words[w] has something
  alignas(128) uint32_t sleeping;  // 1: also wake the owner by its socket; the first that takes it to 0 does
  alignas(128) uint64_t words[kDoorbellWords];
  /// A peer stores a number of its own here and reads it back through the kernel (PeerDoorbell::probe).
  alignas(128) uint64_t probes[kProbeWords];
};
inline constexpr size_t kDoorbellBytes = 4096;
static_assert(sizeof(DoorbellMemory) <= kDoorbellBytes);

/// SetupMessage.bytes of both sides. Descriptors: doorbell memory, the end of the doorbell's socket pair that peers write
/// to; the initiator adds the connection's segment. The kernel (SO_PEERCRED), not the message, tells which process this is.
struct SetupBody {
  uint32_t magic;
  uint16_t version;
  uint16_t membarrier;        // 1: this process takes part in global expedited barriers
  uint32_t segment_size;      // sizeof(Connection)
  uint32_t doorbell_bit;      // rings at the sender of this message for frames of this connection
  uint64_t doorbell_address;  // where the sender's own process has its doorbell memory
};
inline constexpr uint32_t kSetupMagic = 0x6d687374;  // "tshm"
inline constexpr uint16_t kSetupVersion = 7;

}  // namespace thalweg::impl::shm
