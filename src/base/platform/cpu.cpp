// SPDX-License-Identifier: Apache-2.0
// The rate of the processor's counter.
#include "base/platform/cpu.hpp"

#include "base/clock.hpp"

namespace thalweg::impl {
namespace {

[[maybe_unused]] uint64_t measure_rate() {
  const uint64_t start_ns = monotonic_ns();
  const uint64_t start_ticks = cpu_ticks();
  uint64_t now_ns = start_ns;
  while (now_ns - start_ns < 1'000'000) now_ns = monotonic_ns();
  const uint64_t ticks = cpu_ticks() - start_ticks;
  return uint64_t(double(ticks) * 1e9 / double(now_ns - start_ns));
}

uint64_t read_rate() {
#if defined(__x86_64__)
  return measure_rate();
#elif defined(__aarch64__)
  uint64_t rate;
  asm volatile("mrs %0, cntfrq_el0" : "=r"(rate));
  return rate;
#else
  return 1000000000u;
#endif
}

}  // namespace

uint64_t cpu_ticks_per_second() {
  static const uint64_t rate = read_rate();
  return rate;
}

}  // namespace thalweg::impl
