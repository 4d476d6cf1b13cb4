// SPDX-License-Identifier: Apache-2.0
// Kernels of words: a signal, one atomic operation, a wait, by one thread; the waits ahead of a program, by one block.
#pragma once
#include "devices/kernels/ends.hpp"
#include "devices/program/wait_ahead.hpp"

namespace thalweg::impl::kernels {

/// The stream's earlier kernels and copies have ended: their data is ordered before this fence.
THALWEG_DEVICE void give_signal(const Ends& ends) {
  if (!stopped(ends)) finish(ends);
}

/// System-wide: the word's other users are this device's kernels and its peers. `op` counts as AtomicOp does.
template <typename Word>
THALWEG_DEVICE Word change_word(Word* word, unsigned op, Word operand, Word compare) {
  switch (op) {
    case 0:
      return machine::fetch_add(word, operand);
    case 1:
      return machine::fetch_and(word, operand);
    case 2:
      return machine::fetch_or(word, operand);
    case 3:
      return machine::fetch_xor(word, operand);
    case 4:
      return machine::swap(word, operand);
    default:
      return machine::compare_swap(word, compare, operand);
  }
}

THALWEG_DEVICE uint64_t change_word(const AtomicArguments& atomic) {
  if (atomic.bytes == 4) {
    return change_word(pointer<u32>(atomic.word), atomic.op, static_cast<u32>(atomic.operand),
                       static_cast<u32>(atomic.compare));
  }
  return change_word(pointer<u64>(atomic.word), atomic.op, u64{atomic.operand}, u64{atomic.compare});
}

THALWEG_DEVICE void change(const AtomicArguments& atomic) {
  if (stopped(atomic.ends)) return;
  machine::full_fence();
  const uint64_t old = change_word(atomic);
  machine::full_fence();
  if (atomic.old != 0) *pointer<volatile uint64_t>(atomic.old) = old;
  finish(atomic.ends);
}

THALWEG_DEVICE void wait(const WaitArguments& wait) {
  if (load_acquire(wait.status) != 0) return;
  const uint64_t start = machine::nanoseconds();
  for (u32 polls = 0; static_cast<int64_t>(load_acquire(wait.word) - wait.value) < 0; ++polls) {
    machine::pause(polls);
    if (machine::nanoseconds() - start < wait.limit_ns) continue;
    return machine::release(pointer<u64>(wait.status), wait.expired);
  }
}

THALWEG_DEVICE void wait_ahead(const device::WaitAhead& waits) {
  device::AheadLane<device::DirectMachine> lane({}, waits, machine::thread_x(), kAheadThreads);
  lane.begin();
  for (u32 polls = 0; !lane.pass(); ++polls) machine::pause(polls);
}

}  // namespace thalweg::impl::kernels
