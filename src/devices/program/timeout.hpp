// SPDX-License-Identifier: Apache-2.0
// What becomes of a run whose polls are in vain: asked now and then, because each question takes longer than a poll.
#pragma once
#include "devices/program/ownership.hpp"

namespace thalweg::device {

/// What a wait that takes long has come to. By value: a run whose address is taken would be kept in memory.
struct TimeoutCheck {
  i64 code;   // why it ends, as tw_status; kAlreadyAborted: another part of the run has failed; 0: it goes on
  u64 since;  // when it was first asked; 0: not yet
};
constexpr i64 kAlreadyAborted = 1;

/// The clock, the abort flag, the host's word. clocks: how often it was asked before.
template <class M>
THALWEG_DEVICE TimeoutCheck ask_timeout(M m, const Guard& guard, u64 since, u32 clocks) {
  const u64 now = m.nanoseconds();
  if (since == 0) since = now;  // not by `clocks`, which begin anew where a wait takes many minutes
  if (abort_flag_set(m, guard)) return {kAlreadyAborted, since};
  if (guard.abort != nullptr && clocks % kClocksPerAbort == kClocksPerAbort - 1) {
    if (const i64 aborted = static_cast<i64>(m.load(guard.abort)); aborted != 0) return {aborted, since};
  }
  return {now - since >= guard.limit_ns ? kTimedOut : 0, since};
}

/// The same, apart from what asks.
template <class M>
THALWEG_DEVICE_COLD TimeoutCheck check_timeout(M m, Guard guard, u64 since, u32 clocks) {
  return ask_timeout(m, guard, since, clocks);
}

}  // namespace thalweg::device
