// SPDX-License-Identifier: Apache-2.0
// Channels: the n-th send meets the n-th receive, and lands in the buffer that the receive named. The library makes the ends
// (types.hpp); device code sends, posts and takes, and the host is not needed.
//
//   __global__ void sender(SendEnd* end, Guard guard, const float* data) {  // any number of blocks
//     Sender<> out(end, guard);
//     for (int i = 0; i < 10; ++i) {
//       if (!out.send(Blocks(nullptr, blockIdx.x, gridDim.x), data, 4096)) return;
//     }
//   }
//   __global__ void receiver(RecvEnd* end, Guard guard) {  // one block
//     Receiver<> in(end, guard);
//     for (int i = 0; i < 10; ++i) {
//       if (!in.post(Block(), 0) || !in.take(Block())) return;
//     }
//   }
//
// Every thread that takes part makes its Sender or Receiver when the kernel begins and keeps it, as it counts along. An end is
// used by one kernel, plan or queue at a time; blocks that share it make the same calls in the same order.
//
// False: the guard's abort flag is set, and its Failure has why; do not use this end any more. `what` is for that record.
#pragma once
#include <thalweg/device/channel_steps.hpp>

namespace thalweg::device {

/// For await(): is the word of the n-th operation there?
template <class M>
struct SlotReached {
  M m;
  const u64* slots;
  u64 n;
  THALWEG_DEVICE bool asks() const { return true; }
  THALWEG_DEVICE bool agree(bool any) const { return any; }
  THALWEG_DEVICE bool operator()(u64* found) const {
    *found = m.acquire(slots + n % kSlots);
    return slot_reached(*found, n);
  }
};
/// For await(): is the receive over that had the slot of the n-th one?
template <class M>
struct SlotFree {
  M m;
  const u64* taken;
  u64 n;
  THALWEG_DEVICE bool asks() const { return true; }
  THALWEG_DEVICE bool agree(bool any) const { return any; }
  THALWEG_DEVICE bool operator()(u64* found) const {
    *found = m.load(taken);
    return static_cast<i64>(n - *found) < static_cast<i64>(kSlots);
  }
};

/// One thread of the group waits for the word of the n-th operation; all get it. Not slot_reached(): the
/// wait failed.
template <class ThreadGroup, class M>
THALWEG_DEVICE u64 await_slot(M m, ThreadGroup group, const Guard& guard, u64 what, const u64* slots, u64 n) {
  u64 word = slot_word(n - 1, 0);
  if (group.rank() == 0) {
    SlotReached<M> poll{m, slots, n};
    if (await(m, guard, what, n + 1, poll)) poll(&word);
  }
  return group.broadcast(word);
}

template <class M = DirectMachine>
class Sender {
 public:
  THALWEG_DEVICE Sender(SendEnd* end, const Guard& guard, M m = {})
      : m_(m),
        end_(end),
        credits_(read_pointer(m, &end->credits)),
        recv_buffers_(read_pointer(m, &end->recv_buffers)),
        lengths_(read_pointer(m, &end->lengths)),
        guard_(guard),
        next_(m.load(&end->count)) {}

  /// Sends `bytes` of `from`. Waits until the receive is posted. The buffer is free again when the send of a thread, warp or
  /// block returns to all of its threads; of Blocks, for a block's own part. A longer send than the receive has room for fails
  /// on both sides with TW_ERR_TRUNCATED; where the host carries the channel, the end may fail only after such a send has returned.
  template <class ThreadGroup>
  THALWEG_DEVICE bool send(ThreadGroup group, const Side& from, u64 bytes, u64 what = 0) {
    const u64 credit = await_slot(m_, group, guard_, what, credits_, next_);
    if (!slot_reached(credit, next_)) return false;
    const Sending sending = begin_send(m_, recv_buffers_, next_++, credit, bytes);
    if (sending.status == 0) copy(group, sending.to, from, bytes, m_);
    if (lengths_ != nullptr && group.leads()) write_length(m_, lengths_, sending.n, bytes);
    finish_send(m_, group, end_, sending);
    if (sending.status == 0) return true;
    fail(m_, guard_, sending.status, what, sending.capacity, bytes);
    return false;
  }
  /// `count` elements.
  template <class ThreadGroup, class T>
  THALWEG_DEVICE bool send(ThreadGroup group, const T* from, u64 count, u64 what = 0) {
    return send(group, contiguous_at(from), count * sizeof(T), what);
  }

 private:
  M m_;
  SendEnd* end_;
  const u64* credits_;
  const RecvBuffer* recv_buffers_;
  u64* lengths_;
  Guard guard_;
  u64 next_;
};

template <class M = DirectMachine>
class Receiver {
 public:
  THALWEG_DEVICE Receiver(RecvEnd* end, const Guard& guard, M m = {})
      : m_(m),
        end_(end),
        flags_(read_pointer(m, &end->flags)),
        credits_(read_pointer(m, &end->credits)),
        guard_(guard),
        next_post_(m.load(&end->posted)),
        next_take_(m.load(&end->taken)) {}

  /// Offers buffer number `recv_buffer` of this channel to the next send. Waits while kSlots receives are under way. Of Blocks, the
  /// first one does it, and waits for none of the others: have a grid barrier between what they read there and this, or take
  /// turns with other buffers.
  template <class ThreadGroup>
  THALWEG_DEVICE bool post(ThreadGroup group, u32 recv_buffer, u64 what = 0) {
    group.sync();  // all threads are done with the buffer's contents
    bool ok = true;
    if (group.leads()) {
      if (group.shared() || next_post_ - next_take_ >= kSlots) {  // else the own count shows a free slot
        ok = await(m_, guard_, what, next_post_ - kSlots + 1, SlotFree<M>{m_, &end_->taken, next_post_});
      }
      if (ok) give_credit(m_, end_, credits_, next_post_, recv_buffer);
    }
    ++next_post_;
    return group.all(ok);
  }
  /// Waits for the data of the oldest receive that was posted and not yet taken; all threads of the group may read it then.
  template <class ThreadGroup>
  THALWEG_DEVICE bool take(ThreadGroup group, u64 what = 0) {
    const u64 flag = await_slot(m_, group, guard_, what, flags_, next_take_);
    if (!slot_reached(flag, next_take_)) return false;
    finish_take(m_, group, end_, next_take_++);
    if (slot_info(flag) == 0) return true;
    fail(m_, guard_, -static_cast<i64>(slot_info(flag)), what, 0, slot_info(flag));
    return false;
  }

 private:
  M m_;
  RecvEnd* end_;
  const u64* flags_;
  u64* credits_;
  Guard guard_;
  u64 next_post_, next_take_;
};

}  // namespace thalweg::device
