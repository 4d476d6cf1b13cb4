// SPDX-License-Identifier: Apache-2.0
// Repetitions within a time.
#pragma once
#include <algorithm>
#include <vector>

#include "pair.hpp"

namespace perf {

/// What `once` returned (its seconds), again and again until this many seconds have passed, at least `least` times. A first one
/// warms up and does not count.
template <class Once>
std::vector<double> repeat(double seconds, Once once, size_t least = 3, size_t most = 100000) {
  (void)once();
  std::vector<double> took;
  for (const uint64_t end = now_ns() + static_cast<uint64_t>(seconds * 1e9);
       took.size() < least || (took.size() < most && now_ns() < end);) {
    took.push_back(once());
  }
  return took;
}

inline double best_of(const std::vector<double>& took) { return *std::min_element(took.begin(), took.end()); }

/// In seconds.
template <class F>
double timed(F f) {
  const uint64_t start = now_ns();
  f();
  return static_cast<double>(now_ns() - start) / 1e9;
}

/// A seed that no other run has.
uint64_t fresh_seed();

/// Random integers below 2^20 by position: sums and multiples of them are exact in a double, whatever the order.
inline uint64_t random_at(uint64_t seed, uint64_t i) {
  uint64_t x = (i + 1) * 0x9E3779B97F4A7C15u + seed * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 32)) * 0xD6E8FEB86659FD93u;
  return (x ^ (x >> 29)) & 0xfffff;
}

}  // namespace perf
