// SPDX-License-Identifier: Apache-2.0
// The reading end of one direction of a connection. Progress owner only. Everything it reads is untrusted.
#pragma once
#include <cstring>

#include "transports/shm/layout.hpp"

namespace thalweg::impl::shm {

class Consumer {
 public:
  void open(Direction& shared, bool fence_needed) {
    shared_ = &shared;
    next_ = shared.slots;
    bulk_ = shared.bulk;
    fence_needed_ = fence_needed;
  }

  /// The word to poll, and the parity bit it has once the next frame is there.
  const uint64_t* next_word() const { return &next_->word; }
  uint64_t next_parity() const { return parity_; }
  bool ready() const { return ((load_acquire(*next_word()) ^ next_parity()) & kParity) == 0; }

  /// Of frames that follow each other: the next but one comes from the producer's cache while this one is handled.
  void prefetch_slot() const { __builtin_prefetch(&shared_->slots[(head_ + 1) & (kSlots - 1)]); }

  /// Frames that were taken.
  uint64_t taken() const { return head_; }
  /// The next frame's header before it is taken: length, type, flags and id. False: there is none.
  bool peek(FrameHeader* header) const {
    const uint64_t word = load_acquire(next_->word);
    if (((word ^ parity_) & kParity) != 0) return false;
    const uint64_t plain = word & ~kParity;
    std::memcpy(header, &plain, sizeof plain);
    return true;
  }

  enum class Take { nothing, frame, turn, violation };
  /// The next frame, if any. *body stays where it is until consumed() is called. turn: call turn() before the next one.
  Take take(FrameHeader* header, const std::byte** body) {
    const Slot& slot = *next_;
    const uint64_t word = load_acquire(slot.word);  // the only load of it
    if (((word ^ parity_) & kParity) != 0) return Take::nothing;
    const uint64_t plain = word & ~kParity;
    std::memcpy(header, &plain, sizeof plain);
    header->a = load_relaxed(slot.a);
    header->b = load_relaxed(slot.b);
    advance();
    if (header->length <= kInlineMax) [[likely]] {
      *body = slot.body;
      return Take::frame;
    }
    if (header->length > kCopyMax) [[unlikely]]
      return header->length == kTurn ? Take::turn : Take::violation;
    uint32_t taken;
    const uint32_t size = bulk_size(header->length);
    const uint32_t at = place(bulk_position_, size, capacity_, &taken);
    *body = bulk_ + at;
    bulk_position_ = at + size;
    bulk_consumed_ += taken;
    return Take::frame;
  }

  /// The last body is no longer needed. True when room was returned and the producer sleeps for it: ring its doorbell.
  bool consumed() {
    if (head_ - slots_given_ < kCreditSlots && bulk_consumed_ - bulk_given_ < kCreditBulk) [[likely]]
      return false;
    return give();
  }

  /// Of a ring that is empty, outside a frame's handling: returns the room that is left. True: as consumed().
  bool give_rest() { return bulk_given_ != bulk_consumed_ && !ready() && give(); }

  /// Bodies from now on lie in `area`: what the producer's turn() did.
  void turn(const std::byte* area, uint32_t capacity) {
    bulk_ = area;
    capacity_ = capacity;
    bulk_position_ = 0;
  }
  const std::byte* first_area() const { return shared_->bulk; }

  void set_mode(uint32_t mode) { store_relaxed(shared_->control.consumer_mode, mode); }

 private:
  void advance() {
    ++next_;
    if ((++head_ & (kSlots - 1)) == 0) [[unlikely]] {
      next_ = shared_->slots;
      parity_ ^= kParity;
    }
  }

  /// Release: the producer may overwrite what was read before it.
  bool give() {
    store_release(shared_->control.consumed_slots, head_);
    store_release(shared_->control.consumed_bulk, bulk_consumed_);
    slots_given_ = head_;
    bulk_given_ = bulk_consumed_;
    // As in Producer::must_ring: the producer that goes to sleep has the barrier run here.
    if (fence_needed_) [[unlikely]]
      __atomic_thread_fence(__ATOMIC_SEQ_CST);
    else
      __atomic_signal_fence(__ATOMIC_SEQ_CST);
    return load_relaxed(shared_->control.producer_waiting) != 0;
  }

  Direction* shared_ = nullptr;
  const Slot* next_ = nullptr;
  uint64_t parity_ = kParity;  // of the phase that next_ is in: phase 0 publishes parity 1, phase 1 parity 0
  uint64_t head_ = 0;
  uint64_t slots_given_ = 0;
  const std::byte* bulk_ = nullptr;
  uint32_t capacity_ = kBulkBytes;
  uint32_t bulk_position_ = 0;
  bool fence_needed_ = false;
  uint64_t bulk_consumed_ = 0;
  uint64_t bulk_given_ = 0;
};

}  // namespace thalweg::impl::shm
