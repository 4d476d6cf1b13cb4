// SPDX-License-Identifier: Apache-2.0
// The executor's part of the timeline: when it did a program's steps, by its own clock, in a ring of runs in pinned host memory that the
// host reads meanwhile (plans/plan_times.hpp). One text for GPUs, emulated devices and the host. Where nothing is recorded it costs one
// comparison of a parameter at each place, and no register: what has begun is noted in the ring at once.
#pragma once
#include "devices/program/ownership.hpp"

namespace thalweg::device {

/// Of the run `run` of a program of `steps` steps; step == steps: the run itself.
THALWEG_DEVICE StepTime* step_time(StepTime* times, u32 kept_runs, u32 steps, u64 run, u32 step) {
  return times + (run & (kept_runs - 1)) * (u64{steps} + 1) + step;
}
template <class M>
THALWEG_DEVICE void note_begin(M m, StepTime* times, u32 kept_runs, u32 steps, u64 run, u32 step) {
  m.store(&step_time(times, kept_runs, steps, run, step)->begun, m.nanoseconds());
}
template <class M>
THALWEG_DEVICE void note_end(M m, StepTime* times, u32 kept_runs, u32 steps, u64 run, u32 step) {
  StepTime* const to = step_time(times, kept_runs, steps, run, step);
  const u64 ended = m.nanoseconds();
  m.store(&to->ended, ended);
  m.store(&to->run, run + 1);
  m.store(&to->check, ended ^ (run + 1));
}
// The same, apart from what notes.
template <class M>
THALWEG_DEVICE_COLD void keep_begin(M m, StepTime* times, u32 kept_runs, u32 steps, u64 run, u32 step) {
  note_begin(m, times, kept_runs, steps, run, step);
}
template <class M>
THALWEG_DEVICE_COLD void keep_end(M m, StepTime* times, u32 kept_runs, u32 steps, u64 run, u32 step) {
  note_end(m, times, kept_runs, steps, run, step);
}

// An exchange has no steps, and its blocks end one by one: from block 0's begin to the last block's end, whichever that is. It is known by
// a count in the program's state, where other programs have their blocks' words. Runs that a block of failed are not counted, and are the
// last.

template <class M>
THALWEG_DEVICE_COLD void keep_exchange_begin(M m, StepTime* times, u32 kept_runs, const u64* ended, u32 blocks) {
  keep_begin(m, times, kept_runs, 0, m.load(ended) / blocks, 0);
}
/// By each block, before it counts for the host, which may free all of this then.
template <class M>
THALWEG_DEVICE_COLD void keep_exchange_end(M m, StepTime* times, u32 kept_runs, u64* ended, u32 blocks) {
  m.fence();  // block 0's begin is there
  const u64 before = m.fetch_add(ended, u64{1});
  if ((before + 1) % blocks != 0) return;
  m.fence();
  keep_end(m, times, kept_runs, 0, before / blocks, 0);
  m.fence();
}

}  // namespace thalweg::device
