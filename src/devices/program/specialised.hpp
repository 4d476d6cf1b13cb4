// SPDX-License-Identifier: Apache-2.0
// Programs that need less than a ProgramExecutor: at most one polled step (a wait, or a receive with its credit) and at most
// one move (a copy, several with what signals their end, or a send), where the polled step comes before all of the move or
// after none of it; or any number of these that wait for nothing of each other. Most programs of queues have such a kernel, and a GPU runs
// it with a small part of the instructions.
#pragma once
#include "thalweg/device/types.hpp"

namespace thalweg::device {

enum class Poll : u32 { none, wait, take };
/// Of one copy, aligned: contiguous memory in words of 16 bytes, or one of 8. rows4 to rows16: short rows of such words. sides:
/// any other. list: copies and signals. independent: sends, copies and signals, beside receives and waits (independent_run.hpp).
enum class Move : u32 { none, aligned, rows4, rows8, rows16, sides, list, send, independent };

constexpr u32 kNoStep = ~0u;
constexpr u32 kMostIndependent = 32;  // moves; polled steps; receives: a lane of a warp has one of each

struct Specialised {
  Poll poll = Poll::none;
  Move move = Move::none;  // both none: no such kernel, a ProgramExecutor runs it
  u32 behind = 0;          // 1: the move waits for the polled step
  u32 poll_step = kNoStep, post_step = kNoStep, move_step = kNoStep;
  u32 items = 0;                                    // of a list: pieces of ProgramShape::item bytes, in the order of its copies
  u32 first_signal = 0;                             // of a list: no step before it gives one
  u32 moves = 0, copies = 0, polls = 0, posts = 0;  // of independent steps

  constexpr bool known() const { return poll != Poll::none || move != Move::none; }
};

}  // namespace thalweg::device
