// SPDX-License-Identifier: Apache-2.0
// Time. Nanoseconds of the monotonic clock everywhere; a coarse deadline from the processor's counter for spin loops, where
// even clock_gettime would be the largest cost.
#pragma once
#include <cstdint>
#include <ctime>

#include "base/platform/cpu.hpp"

namespace thalweg::impl {

constexpr uint64_t kMicrosecond = 1'000;
constexpr uint64_t kMillisecond = 1'000'000;
constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kForever = UINT64_MAX;  // TW_FOREVER

inline uint64_t monotonic_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return uint64_t(now.tv_sec) * kSecond + uint64_t(now.tv_nsec);
}

/// A deadline, possibly infinite.
class Deadline {
 public:
  explicit Deadline(uint64_t timeout_ns) {
    const uint64_t now = monotonic_ns();
    at_ = timeout_ns >= kForever - now ? kForever : now + timeout_ns;
  }
  bool passed() const { return at_ != kForever && monotonic_ns() >= at_; }
  /// kForever when there is none; 0 when passed.
  uint64_t left_ns() const {
    if (at_ == kForever) return kForever;
    const uint64_t now = monotonic_ns();
    return now >= at_ ? 0 : at_ - now;
  }
  /// For poll and epoll_wait: rounded up, -1 for ever.
  int left_ms() const {
    const uint64_t left = left_ns();
    if (left == kForever) return -1;
    const uint64_t ms = (left + kMillisecond - 1) / kMillisecond;
    return ms > 1'000'000'000 ? 1'000'000'000 : int(ms);
  }

 private:
  uint64_t at_;
};

/// How long a spin loop may spin: a few nanoseconds per question, right to about a percent. kForever never passes.
class SpinDeadline {
 public:
  explicit SpinDeadline(uint64_t timeout_ns) : start_(cpu_ticks()) {
    const double ticks = double(timeout_ns) * 1e-9 * double(cpu_ticks_per_second());
    ticks_ = ticks >= 9e18 ? UINT64_MAX : uint64_t(ticks);
  }
  bool passed() const { return cpu_ticks() - start_ >= ticks_; }

 private:
  uint64_t start_;
  uint64_t ticks_;
};

}  // namespace thalweg::impl
