// SPDX-License-Identifier: Apache-2.0
// Device code of the tests of the machine, the same text for a kernel and for its twin on the CPU: flags, atomic adds, first touches.
#pragma once
#include <thalweg/device/thread_group.hpp>

#include "arguments.hpp"

namespace perf {

/// Until *word is `value`; false: not within the limit.
THALWEG_DEVICE bool await(const u64* word, u64 value, u64 limit_ns) {
  constexpr u32 kLooks = 4096;  // between looks at the clock
  const thalweg::device::DirectMachine m;
  const u64 end = m.nanoseconds() + limit_ns;
  for (;;) {
    for (u32 i = 0; i < kLooks; ++i) {
      if (m.load(word) == value) return true;
      m.pause(i);
    }
    if (m.nanoseconds() > end) return false;
  }
}

/// By one thread.
THALWEG_DEVICE void flags(const Flags& f) {
  const thalweg::device::DirectMachine m;
  if (f.rounds == 0) m.store(f.theirs, 1);
  const u64 start = m.nanoseconds();
  u64 round = 0;
  while (round < f.rounds) {
    ++round;
    if (f.leads) m.store(f.theirs, round);
    if (!await(f.mine, round, f.limit_ns)) {
      --round;
      break;
    }
    if (!f.leads) m.store(f.theirs, round);
  }
  m.store(f.took, m.nanoseconds() - start);
  m.release(f.done, round);
}

THALWEG_DEVICE void adds(const Adds& a) {
  const thalweg::device::DirectMachine m;
  for (u64 i = 0; i < a.each; ++i) m.fetch_add(a.word, u64{1});
}

THALWEG_DEVICE void touch(const Touches& t, u64 thread, u64 threads) {
  for (u64 page = thread; page < t.pages; page += threads) {
    u64* const word = t.first + page * t.words;
    *word = *word + 1;
  }
}

}  // namespace perf
