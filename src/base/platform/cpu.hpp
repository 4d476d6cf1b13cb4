// SPDX-License-Identifier: Apache-2.0
// The processor's own counter and its hint for spin loops.
#pragma once
#include <cstdint>
#if defined(__x86_64__)
#include <x86intrin.h>
#elif !defined(__aarch64__)
#include <ctime>
#endif

namespace thalweg::impl {

/// Tells the core that this is a spin loop (PAUSE).
inline void cpu_pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // yield is a no-op on most cores; isb waits about as long as x86's pause
#endif
}

/// Has the line brought here to be stored to, from a core that has read it. A hint: any address.
inline void prefetch_to_store(const void* line) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" ::"m"(*static_cast<const char*>(line)));  // the compiler's builtin takes a shared copy by default
#else
  __builtin_prefetch(line, 1);
#endif
}

/// A counter that runs at a constant rate (cpu_ticks_per_second()); not ordered with other instructions.
inline uint64_t cpu_ticks() {
#if defined(__x86_64__)
  return __rdtsc();
#elif defined(__aarch64__)
  uint64_t ticks;
  asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
#else
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return uint64_t(now.tv_sec) * 1000000000u + uint64_t(now.tv_nsec);
#endif
}

/// Measured once per process (x86-64: against the monotonic clock, about a millisecond on the first call).
uint64_t cpu_ticks_per_second();

}  // namespace thalweg::impl
