// SPDX-License-Identifier: Apache-2.0
// The writing end of one direction of a connection. Progress owner only.
//
// Order of a publication, and what each step orders:
//   body, a, b      plain stores
//   word            release store: a reader of the parity sees the body
//   consumer_mode   plain load. A store followed by a load may be seen in the other order; the consumer that goes to sleep
//                   makes up for it: it stores its mode, has the kernel run a full barrier on this core (membarrier), and
//                   polls the ring once more. Only where that is not available (fence_needed) the producer has a fence.
#pragma once
#include <algorithm>
#include <cstring>

#include "base/platform/cpu.hpp"
#include "transports/shm/copy.hpp"
#include "transports/shm/layout.hpp"

namespace thalweg::impl::shm {

class Producer {
 public:
  void open(Direction& shared, bool fence_needed) {
    shared_ = &shared;
    next_ = shared.slots;
    bulk_ = shared.bulk;
    fence_needed_ = fence_needed;
    slot_limit_ = kSlots;
  }

  /// No further slot will be found free: every send takes the cold path, which knows why. The memory may go away.
  [[gnu::cold]] void stop() {
    slot_limit_ = head_;
    shared_ = nullptr;
  }
  bool stopped() const { return shared_ == nullptr; }

  /// Frames that were put in, a turn() among them.
  uint64_t sent() const { return head_; }
  bool has_slot() const { return head_ != slot_limit_; }

  bool has_room(uint32_t n) { return has_slot() && (n <= kInlineMax || bulk_place(n) != nullptr); }

  /// Needs has_slot(). header.length <= kInlineMax.
  void put_inline(const FrameHeader& header, const void* body) {
    Slot& slot = *next_;
    copy_short(slot.body, static_cast<const std::byte*>(body), header.length);
    publish(slot, Words(header));
  }

  /// Where a body of n bytes (kInlineMax < n <= kCopyMax) goes; nullptr: no room. Changes nothing.
  std::byte* bulk_place(uint32_t n) {
    uint32_t taken;
    const uint32_t at = place(bulk_position_, bulk_size(n), capacity_, &taken);
    if (taken > bulk_limit_ - bulk_head_) [[unlikely]]
      return nullptr;
    return bulk_ + at;
  }
  /// Takes the place that bulk_place(header.length) gave, now filled. Needs has_slot().
  void put_bulk(const FrameHeader& header) {
    uint32_t taken;
    const uint32_t size = bulk_size(header.length);
    bulk_position_ = place(bulk_position_, size, capacity_, &taken) + size;
    bulk_head_ += taken;
    publish(*next_, Words(header));
  }
  /// The body is at inline_place() already.
  void put_filled(const FrameHeader& header) { publish(*next_, Words(header)); }
  std::byte* inline_place() { return next_->body; }

  /// The line of the next frame is brought here, from the consumer that polls it: only shortly before it is stored to.
  void prefetch_next() const { prefetch_to_store(next_); }
  /// Of frames that follow each other: the line of a later one is brought here, from the consumer that has read it, before it is stored
  /// to.
  void prefetch_slot() const { prefetch_to_store(&shared_->slots[(head_ + kSlotsAhead) & (kSlots - 1)]); }

  /// Reads the credit that the consumer has returned. False: it claims what it cannot have consumed.
  [[gnu::cold]] bool refresh() {
    const uint64_t slots = load_acquire(shared_->control.consumed_slots);
    const uint64_t bulk = load_acquire(shared_->control.consumed_bulk);
    if (head_ - slots > kSlots || bulk_head_ - bulk > capacity_) return false;
    slot_limit_ = slots + kSlots;
    bulk_limit_ = bulk + window_;
    return true;
  }

  /// Bodies from now on lie in `area`. Needs has_slot(), and bulk_consumed() where the area is smaller than the last one.
  void turn(std::byte* area, uint32_t capacity) {
    publish(*next_, Words(FrameHeader{kTurn, 0, 0, 0, 0, 0}));
    const uint32_t window = std::min(capacity, kDeepBytes);
    bulk_limit_ += uint64_t{window} - window_;
    bulk_ = area;
    capacity_ = capacity;
    window_ = window;
    bulk_position_ = 0;
  }
  std::byte* first_area() const { return shared_->bulk; }
  uint64_t bulk_head() const { return bulk_head_; }
  /// As refresh() saw it.
  bool bulk_consumed() const { return bulk_limit_ - window_ == bulk_head_; }

  /// Is one of the frames behind the first `taken` ones, and not consumed, one for which matches(header) is true? Of these
  /// headers type, flags, id and `a` are filled in. Also true if that is unknown.
  template <class Matches>
  bool any_behind(uint64_t taken, const Matches& matches) const {
    const uint64_t consumed = load_acquire(shared_->control.consumed_slots);
    if (consumed > taken && consumed <= head_) taken = consumed;
    if (head_ - taken > kSlots) return true;
    for (uint64_t at = taken; at != head_; ++at) {
      const Slot& slot = shared_->slots[at & (kSlots - 1)];
      FrameHeader header{};
      const uint64_t word = load_relaxed(slot.word) & ~kParity;
      std::memcpy(&header, &word, sizeof word);
      header.a = load_relaxed(slot.a);
      if (matches(header)) return true;
    }
    return false;
  }

  /// Before sleeping for room, and after. The caller orders it against refresh() with a full barrier on both sides.
  void set_waiting(bool waiting) { store_relaxed(shared_->control.producer_waiting, waiting ? 1 : 0); }

  /// After a publication: does the consumer want its doorbell rung?
  bool must_ring() const {
    if (fence_needed_) [[unlikely]]
      __atomic_thread_fence(__ATOMIC_SEQ_CST);
    else
      __atomic_signal_fence(__ATOMIC_SEQ_CST);  // the compiler keeps the order; the consumer's membarrier does the rest
    return load_relaxed(shared_->control.consumer_mode) != kPolled;
  }

 private:
  /// A header in registers, loaded as the caller has just stored it, word by word: a load of two words at once would wait until both
  /// stores are in the cache.
  struct Words {
    explicit Words(const FrameHeader& header) : a(load_relaxed(header.a)), b(load_relaxed(header.b)) {
      std::memcpy(&first, &header, sizeof first);
    }
    uint64_t first, a, b;
  };

  void publish(Slot& slot, const Words& words) {
    store_relaxed(slot.a, words.a);
    store_relaxed(slot.b, words.b);
    store_release(slot.word, (words.first & ~kParity) | parity_);
    next_ = &slot + 1;
    if ((++head_ & (kSlots - 1)) == 0) [[unlikely]] {
      next_ = shared_->slots;
      parity_ ^= kParity;
    }
  }

  static constexpr uint64_t kSlotsAhead = 3;
  Direction* shared_ = nullptr;
  Slot* next_ = nullptr;       // of head_; once stopped only a hint
  uint64_t parity_ = kParity;  // of the phase that next_ is in: phase 0 publishes parity 1, phase 1 parity 0
  uint64_t head_ = 0;
  uint64_t slot_limit_ = 0;
  std::byte* bulk_ = nullptr;
  uint32_t capacity_ = kBulkBytes;
  uint32_t window_ = kBulkBytes;  // bytes that may lie in it: a small message behind a large one waits for no more
  uint32_t bulk_position_ = 0;
  bool fence_needed_ = false;
  uint64_t bulk_head_ = 0;
  uint64_t bulk_limit_ = kBulkBytes;
};

}  // namespace thalweg::impl::shm
