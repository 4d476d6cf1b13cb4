// SPDX-License-Identifier: Apache-2.0
// Signals from device code: what publishes data.
#pragma once
#include <thalweg/device/copy.hpp>

namespace thalweg::device {

enum class SignalOp : u32 { set = 0, add = 1 };  // as TW_SIGNAL_*

/// By all threads of a group: the word gets `value` after all that the group's threads stored before. Barrier, then one
/// thread's system-wide fence, then its store (or atomic add): the fence is what takes time, and nothing but a flag beside the
/// data (ll.hpp) gets by without it.
template <class ThreadGroup, class M = DirectMachine>
THALWEG_DEVICE void publish(ThreadGroup group, u64* word, u64 value, SignalOp op, M m = {}) {
  if (!group.last(m)) return;
  if (op == SignalOp::add) {
    m.add_release(word, value);
  } else {
    m.release(word, value);
  }
}

/// A prepared transfer: StepKind::copy of a plan, or what the library bound for a kernel. Its signal is that of run `run`.
template <class ThreadGroup, class M = DirectMachine>
THALWEG_DEVICE void run_copy(ThreadGroup group, const Step& step, u64 run, M m = {}) {
  copy(group, step.to, step.from, step.bytes, m);
  const Signal& signal = step.signal;
  if (signal.word == nullptr) return;
  publish(group, signal.word, signal.value + run * signal.increment, signal.add != 0 ? SignalOp::add : SignalOp::set, m);
}

}  // namespace thalweg::device
