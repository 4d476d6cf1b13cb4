// SPDX-License-Identifier: Apache-2.0
// Windows: every rank gave `length` bytes, and device code reaches all of them by rank and offset. Offsets and counts: bytes
// where named so, else elements. A source or target of one's own is any memory of this device.
//
//   put(Block(), window, right, offset, halo, count);      // plain stores into the right neighbour's part
//   put_signal(Block(), window, right, offset, halo, count, flag, step);
//   if (!wait(Block(), window, flag, Compare::greater_equal, step)) return;   // false: window.guard's Failure has why
//
// Order: puts and atomics may become visible in any order. A signal covers what its own group stored before, and nothing but
// wait and test acquires what a signal covers. quiet() is for other orders. get() reads what is there: wait for it first.
//
// Calls name a thread group (thread_group.hpp): Thread(), Warp(), Block(), or Blocks(word, index, count), which share
// it. All of the group's threads give the same arguments. False, and 0 of atomics beside a guard whose abort flag is set: outside the
// window (TW_ERR_OUT_OF_BOUNDS), a rank that is not mapped here (TW_ERR_UNREACHABLE), a word or room that is not aligned
// (TW_ERR_MISALIGNED), or a wait that failed. `what` is for the Failure.
#pragma once
#include <thalweg/device/signal.hpp>
#include <thalweg/device/wait.hpp>

namespace thalweg::device {

/// What reach() does if first_bases lacks the address: fails, or loads it from the bases.
template <class M>
THALWEG_DEVICE_CALL u64 reach_far(M m, u64* abort_flag, Failure* failure, char* const* bases, u32 rank, bool inside,
                                  u64 offset) {
  if (!inside) {
    record(m, abort_flag, failure, kOutOfBounds, rank, 0, offset);
    return 0;
  }
  const u64 base = m.constant(reinterpret_cast<const u64*>(bases + rank));
  if (base != 0) return base + offset;
  record(m, abort_flag, failure, kUnreachable, rank, 0, 0);
  return 0;
}

/// The address of [offset, offset + bytes) of a rank's part; 0: the guard has why, with the rank and the offset.
template <class M = DirectMachine>
THALWEG_DEVICE u64 reach(const Window& window, u32 rank, u64 offset, u64 bytes, M m = {}) {
  const u64 base = reinterpret_cast<u64>(window.first_bases[rank % kFirstRanks]);
  const bool inside = rank < window.size && offset <= window.length && bytes <= window.length - offset;
  if (inside && base != 0 && rank < kFirstRanks) return base + offset;
  return reach_far(m, window.guard.abort_flag, window.guard.failure, window.bases, rank, inside, offset);
}

/// The same, aligned to `alignment` bytes; else TW_ERR_MISALIGNED.
template <class M>
THALWEG_DEVICE u64 reach_aligned(const Window& window, u32 rank, u64 offset, u64 bytes, u64 alignment, M m) {
  const u64 address = reach(window, rank, offset, bytes, m);
  if (address % alignment == 0) return address;
  fail(m, window.guard, kMisaligned, rank, alignment, offset);
  return 0;
}

/// The same as a pointer, for plain loads and stores.
template <class T, class M = DirectMachine>
THALWEG_DEVICE T* pointer(const Window& window, u32 rank, u64 offset, u64 count, M m = {}) {
  return reinterpret_cast<T*>(reach_aligned(window, rank, offset, count * sizeof(T), alignof(T), m));
}

template <class ThreadGroup, class T, class M = DirectMachine>
THALWEG_DEVICE bool put(ThreadGroup group, const Window& window, u32 rank, u64 offset, const T* from, u64 count, M m = {}) {
  const u64 to = reach(window, rank, offset, count * sizeof(T), m);
  if (to == 0) return false;
  copy(group, contiguous_at(to), contiguous_at(from), count * sizeof(T), m);
  return true;
}

/// One value of 1, 2, 4, 8 or 16 bytes, by one thread; nothing is read here.
template <class T, class M = DirectMachine>
THALWEG_DEVICE bool put_value(const Window& window, u32 rank, u64 offset, T value, M m = {}) {
  T* const to = pointer<T>(window, rank, offset, 1, m);
  if (to == nullptr) return false;
  m.write(to, value);
  return true;
}

template <class ThreadGroup, class T, class M = DirectMachine>
THALWEG_DEVICE bool get(ThreadGroup group, const Window& window, u32 rank, u64 offset, T* to, u64 count, M m = {}) {
  const u64 from = reach(window, rank, offset, count * sizeof(T), m);
  if (from == 0) return false;
  copy(group, contiguous_at(to), contiguous_at(from), count * sizeof(T), m);
  return true;
}

/// `rows` rows of `width` elements; their beginnings are `to_pitch` elements apart there, `from_pitch` here. Other shapes:
/// copy() with Sides at reach().
template <class ThreadGroup, class T, class M = DirectMachine>
THALWEG_DEVICE bool strided_put(ThreadGroup group, const Window& window, u32 rank, u64 offset, u64 to_pitch, const T* from,
                                u64 from_pitch, u64 width, u64 rows, M m = {}) {
  if (rows == 0 || width == 0) return true;
  T* const to = pointer<T>(window, rank, offset, (rows - 1) * to_pitch + width, m);
  if (to == nullptr) return false;
  const Side target = to_pitch == width ? contiguous_at(to) : rows_at(to, width, static_cast<i64>(to_pitch));
  const Side source = from_pitch == width ? contiguous_at(from) : rows_at(from, width, static_cast<i64>(from_pitch));
  copy(group, target, source, rows * width * sizeof(T), m);
  return true;
}

/// The signal word at `offset` of the rank's part, after all earlier stores of this group's threads.
template <class ThreadGroup, class M = DirectMachine>
THALWEG_DEVICE bool signal(ThreadGroup group, const Window& window, u32 rank, u64 offset, u64 value,
                           SignalOp op = SignalOp::set, M m = {}) {
  u64* const word = pointer<u64>(window, rank, offset, 1, m);
  if (word == nullptr) return false;
  publish(group, word, value, op, m);
  return true;
}

/// put() and the signal() that covers it. The source may be overwritten when all threads are back from a later wait.
template <class ThreadGroup, class T, class M = DirectMachine>
THALWEG_DEVICE bool put_signal(ThreadGroup group, const Window& window, u32 rank, u64 offset, const T* from, u64 count,
                               u64 signal_offset, u64 value, SignalOp op = SignalOp::set, M m = {}) {
  return put(group, window, rank, offset, from, count, m) && signal(group, window, rank, signal_offset, value, op, m);
}

/// Waits until the signal word at `offset` of this rank's own part compares so. Of Blocks, each block waits for itself.
template <class ThreadGroup, class M = DirectMachine>
THALWEG_DEVICE bool wait(ThreadGroup group, const Window& window, u64 offset, Compare compare, u64 value, u64 what = 0,
                         M m = {}) {
  u64* const word = pointer<u64>(window, window.rank, offset, 1, m);
  if (word == nullptr) return false;
  bool ok = true;
  if (group.rank() == 0) ok = await(m, window.guard, what, value, WordHolds<M>{m, word, compare, value});
  return group.all(ok);
}

/// One poll of a wait; one thread.
template <class M = DirectMachine>
THALWEG_DEVICE bool test(const Window& window, u64 offset, Compare compare, u64 value, M m = {}) {
  const u64* const word = pointer<u64>(window, window.rank, offset, 1, m);
  return word != nullptr && holds(m.acquire(word), compare, value);
}

/// Adds to an integer of 4 or 8 bytes of the rank's part; returns what was there. One thread. Atomic among devices, of one size
/// for each word; publishes nothing (quiet() before it, or a signal after it, does).
template <class T, class M = DirectMachine>
THALWEG_DEVICE T fetch_add(const Window& window, u32 rank, u64 offset, T operand, M m = {}) {
  using Word = AtomicWord<T>;
  Word* const word = pointer<Word>(window, rank, offset, 1, m);
  return word == nullptr ? T{} : static_cast<T>(m.fetch_add(word, static_cast<Word>(operand)));
}

/// Stores `desired` where the integer is `expected`; returns what was there. Else as fetch_add.
template <class T, class M = DirectMachine>
THALWEG_DEVICE T compare_swap(const Window& window, u32 rank, u64 offset, T expected, T desired, M m = {}) {
  using Word = AtomicWord<T>;
  Word* const word = pointer<Word>(window, rank, offset, 1, m);
  return word == nullptr ? T{} : static_cast<T>(m.compare_swap(word, static_cast<Word>(expected), static_cast<Word>(desired)));
}

/// What this group's threads (of Blocks: of the own block) stored before is visible everywhere before what they store later.
template <class ThreadGroup, class M = DirectMachine>
THALWEG_DEVICE void quiet(ThreadGroup group, M m = {}) {
  group.sync();
  if (group.rank() == 0) m.fence();
  group.sync();
}

}  // namespace thalweg::device
