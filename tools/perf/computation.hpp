// SPDX-License-Identifier: Apache-2.0
// Computation that a transfer may hide behind.
#pragma once
#include <algorithm>
#include <cstdint>

#include "pair.hpp"

namespace perf {

/// Arithmetic that touches no memory: each step waits for the one before.
inline void compute(uint64_t steps) {
  uint64_t x = steps;
  for (uint64_t i = 0; i < steps; ++i) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    asm volatile("" : "+r"(x));  // neither left out nor done at once
  }
}

inline double seconds_of(uint64_t steps) {
  const uint64_t start = now_ns();
  compute(steps);
  return static_cast<double>(now_ns() - start) / 1e9;
}

/// The steps that take this long, by the fastest of some trials.
inline uint64_t steps_for(double seconds) {
  constexpr uint64_t kTrial = 100000;
  double trial = seconds_of(kTrial);
  for (int i = 0; i < 9; ++i) trial = std::min(trial, seconds_of(kTrial));
  return std::max<uint64_t>(1, static_cast<uint64_t>(seconds / trial * kTrial));
}

/// How much of the shorter one the two together have hidden.
inline double hidden_percent(double transfer, double computation, double both) {
  return 100 * std::clamp((transfer + computation - both) / std::min(transfer, computation), 0.0, 1.0);
}

}  // namespace perf
