// SPDX-License-Identifier: Apache-2.0
// What copying costs between two cores of this machine, measured in some ten milliseconds by two threads: what processes do
// over shm, with data that is new each time, because resending a buffer favours a direct reader.
#pragma once
#include "base/status.hpp"
#include "routes/costs.hpp"

namespace thalweg::impl {

/// Two processors of measuring_processors(), which share no core where others are to be had.
struct TwoCores {
  int first = -1, second = -1;
};
/// False: there is only one.
bool two_cores(TwoCores* cores);

/// Copy, mapped memory and the kernel's copy of `out`, each up to kLarge and beyond; the rest of it stays. TW_ERR_TIMED_OUT:
/// the cores were too busy to measure. Threads: two of its own, at these cores, for at most `limit_ns`.
Status measure_shm(const TwoCores& cores, uint64_t limit_ns, LinkCosts* out);

}  // namespace thalweg::impl
