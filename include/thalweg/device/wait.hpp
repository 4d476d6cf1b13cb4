// SPDX-License-Identifier: Apache-2.0
// Bounded waiting. A wait ends when what it waits for is there, when its Guard's abort flag is set (an earlier wait failed), when the
// host aborts it (a peer was lost), or at its limit. The last two fill in the Failure and set the Guard's abort flag, so that one failure
// releases every wait of the kernel, or plan, that shares it. Null members of a Guard are ignored.
#pragma once
#include <thalweg/device/order.hpp>

namespace thalweg::device {

/// As tw_status.
constexpr i64 kOutOfBounds = -104, kMisaligned = -105, kUnreachable = -302, kTimedOut = -304, kTruncated = -501;

/// As TW_COMPARE_*: cyclically not less, equal, not equal.
enum class Compare : u32 { greater_equal = 0, equal = 1, not_equal = 2 };

THALWEG_DEVICE bool holds(u64 word, Compare compare, u64 value) {
  if (compare == Compare::equal) return word == value;
  if (compare == Compare::not_equal) return word != value;
  return static_cast<i64>(word - value) >= 0;
}

template <class M>
THALWEG_DEVICE bool abort_flag_set(M m, const Guard& guard) {
  return guard.abort_flag != nullptr && m.load(guard.abort_flag) != 0;
}

template <class M>
THALWEG_DEVICE_CALL void record(M m, u64* abort_flag, Failure* failure, i64 code, u64 what, u64 expected, u64 found) {
  if (abort_flag != nullptr && m.compare_swap(abort_flag, u64{0}, static_cast<u64>(code)) != 0) return;
  if (failure == nullptr) return;
  // The abort flag decides which caller is first: not every GPU has system-wide atomics on the host's memory.
  if (abort_flag == nullptr ? m.compare_swap(&failure->claimed, u64{0}, u64{1}) != 0 : m.load(&failure->claimed) != 0) return;
  m.store(&failure->claimed, u64{1});
  m.store(&failure->what, what);
  m.store(&failure->expected, expected);
  m.store(&failure->found, found);
  m.release(reinterpret_cast<u64*>(&failure->code), static_cast<u64>(code));
}

/// Poisons the guard; the first caller fills in the Failure. For `what`, `expected` and `found` see there.
template <class M>
THALWEG_DEVICE void fail(M m, const Guard& guard, i64 code, u64 what, u64 expected, u64 found) {
  record(m, guard.abort_flag, guard.failure, code, what, expected, found);
}

// Of a wait: short ones poll neither. A poll takes some 0.3 us on a GPU, one at pinned host memory several times that.
constexpr u32 kPollsPerClock = 64;  // the clock and the abort flag
constexpr u32 kClocksPerAbort = 4;  // the host's word

/// Has a word reached what it should? For await().
template <class M>
struct WordHolds {
  M m;
  const u64* word;
  Compare compare;
  u64 value;
  THALWEG_DEVICE bool asks() const { return true; }
  THALWEG_DEVICE bool agree(bool any) const { return any; }
  THALWEG_DEVICE bool operator()(u64* found) const {
    *found = m.acquire(word);
    return holds(*found, compare, value);
  }
};

/// One thread, or several. poll(&found): has it happened? poll.asks(): does this thread poll the abort flag before it waits?
/// poll.agree(it): is it so for any of the threads that wait for the same? Returns false: do nothing more.
template <class M, class Poll>
THALWEG_DEVICE bool await(M m, const Guard& guard, u64 what, u64 expected, Poll poll) {
  u64 start = 0;
  for (u32 polls = 0;; ++polls) {
    const bool asks = polls == 0 ? poll.asks() : polls % kPollsPerClock == 0;
    const bool aborted = asks && abort_flag_set(m, guard);  // under way while the word is
    u64 found = 0;
    const bool there = poll(&found);
    if (polls % kPollsPerClock == 0 && poll.agree(aborted)) return false;
    if (there) return true;
    if (polls % kPollsPerClock == kPollsPerClock - 1) {
      const u64 now = m.nanoseconds();
      if (start == 0) start = now;
      i64 code = now - start >= guard.limit_ns ? kTimedOut : 0;
      if (guard.abort != nullptr && polls / kPollsPerClock % kClocksPerAbort == kClocksPerAbort - 1) {
        const i64 reason = static_cast<i64>(m.load(guard.abort));
        if (reason != 0) code = reason;
      }
      if (code != 0) fail(m, guard, code, what, expected, found);
      if (poll.agree(code != 0)) return false;
    }
    m.pause(polls);
  }
}

}  // namespace thalweg::device
