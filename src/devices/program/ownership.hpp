// SPDX-License-Identifier: Apache-2.0
// One run of a program at a time.
//
// Each block of a launch has a number, and a word for it after ProgramState. It acquires that word by setting its lowest
// bit; if the bit is set already, the block is refused and does nothing. The other bits count runs, so the word also names
// the owner's run. The last block to leave releases all of them at once. With two launches at once a run may be done by
// blocks of both: nothing that is baked into a graph could tell its replays apart, and each block's part is still done once. A
// refusal closes a program of several blocks after the run in progress, because blocks that were not refused would begin
// another one that is never complete. So does a failure. A closed program stays so until its state is zeroed.
//
// Every block that was launched ends: as part of a run that ProgramState counts, or in vain, because it was refused or its run
// failed; blocks of an exchange are counted one by one. The launching thread, which knows how many, sees by the two counts when all
// have ended.
#pragma once
#include <thalweg/device/wait.hpp>

namespace thalweg::device {

constexpr i64 kBusy = -108;            // as tw_status
constexpr u64 kClosed = u64{1} << 62;  // of a block's word
constexpr u64 kRefused = ~u64{0};
constexpr u32 kMostOwners = 64;

/// Of an exchange, whose blocks have theirs in its area, the first one is the timeline's (step_times.hpp).
THALWEG_DEVICE u64* owner_words(ProgramState* state, u32 steps) { return reinterpret_cast<u64*>(state + 1) + steps; }
/// Blocks that have ended and are of no run that is counted: those in vain, and all of an exchange.
THALWEG_DEVICE u64* ended_word(ProgramState* state, u32 steps) { return owner_words(state, steps) + kMostOwners; }
/// The last thing that they do; before a failed run releases its blocks.
template <class M>
THALWEG_DEVICE void count_in_vain(M m, ProgramState* state, u32 steps, u32 blocks) {
  m.fence();
  m.fetch_add(ended_word(state, steps), u64{blocks});
}

/// closed: the reason why nothing runs any more is recorded.
template <class M>
THALWEG_DEVICE_COLD u64 refuse(M m, Guard guard, ProgramState* state, u32 steps, u32 blocks, bool closed, u64 run) {
  if (closed) return kRefused;
  if (blocks > 1) m.store(&state->closed, run + 1);
  Failure* const failure = guard.failure;
  if (failure == nullptr || m.load(&failure->claimed) != 0) return kRefused;
  m.store(&failure->claimed, u64{1});
  m.store(&failure->what, u64{steps});
  m.release(reinterpret_cast<u64*>(&failure->code), static_cast<u64>(kBusy));
  return kRefused;
}

/// Of the run that this block is of, the number; kRefused: it does nothing, and is to count_in_vain().
template <class M>
THALWEG_DEVICE u64 own_block(M m, const Guard& guard, ProgramState* state, u32 steps, u32 blocks, u32 block) {
  const u64 first_shut = blocks > 1 ? m.load(&state->closed) : 0;  // under way together with the next one
  const u64 before = machine::take_lowest_bit(m, owner_words(state, steps) + block), run = before / 2;
  const bool closed = (before & kClosed) != 0 || (first_shut != 0 && run >= first_shut);
  if (closed || (before & 1) != 0) return refuse(m, guard, state, steps, blocks, closed, run);
  return run;
}

/// By each of `lanes` threads of the last block: after what this run counted, if the next one reads any of it.
template <class M>
THALWEG_DEVICE void release_blocks(M m, ProgramState* state, u32 steps, u32 blocks, u64 run, bool open, u32 lane, u32 lanes) {
  u64* const words = owner_words(state, steps);
  for (u32 block = lane; block < blocks; block += lanes) m.store(words + block, open ? 2 * run + 2 : kClosed | 1);
}

/// By one thread of the last block. open: another run may begin.
template <class M>
THALWEG_DEVICE void end_run(M m, ProgramState* state, u32 steps, u32 blocks, u64 run, bool failed, bool open) {
  m.store(failed ? &state->closed : &state->runs, run + 1);
  if (failed) count_in_vain(m, state, steps, blocks);
  release_blocks(m, state, steps, blocks, run, open, 0, 1);
}

/// The last thing of a run that went well: a host that polls the word sees it sooner than the end of the kernel.
template <class M>
THALWEG_DEVICE void tell_over(M m, u64* over) {
  if (over != nullptr) m.release(over, u64{1});
}

/// What a signal, or a wait for one, means in a run.
THALWEG_DEVICE u64 value_in(const Signal& signal, u64 run) { return signal.value + run * signal.increment; }
/// Behind a fence. No word: none is given.
template <class M>
THALWEG_DEVICE void give(M m, const Signal& signal, u64 run) {
  if (signal.word == nullptr) return;
  if (signal.add != 0) {
    m.fetch_add(signal.word, value_in(signal, run));
  } else {
    m.store(signal.word, value_in(signal, run));
  }
}

/// Ordered behind all that came before it.
template <class M>
THALWEG_DEVICE void give_released(M m, const Signal& signal, u64 run) {
  if (signal.word == nullptr) return;
  if (signal.add != 0) {
    m.add_release(signal.word, value_in(signal, run));
  } else {
    m.release(signal.word, value_in(signal, run));
  }
}

/// A word of each step, behind the state: how many of those that share it have done their part, over all runs.
THALWEG_DEVICE u64* shared_word(ProgramState* state, u32 step) { return reinterpret_cast<u64*>(state + 1) + step; }

/// What a doorbell is for. Then, behind a fence: the doorbell.
template <class M>
THALWEG_DEVICE void tell_carrier(M m, const Step& step, u64 run) {
  if (step.result != nullptr) m.store(step.result, step.operand);
  give(m, step.signal, run);
}
template <class M>
THALWEG_DEVICE void ring_doorbell(M m, const Step& step, u64 run) {
  m.store(step.word, run + 1);
}

}  // namespace thalweg::device
