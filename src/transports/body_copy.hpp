// SPDX-License-Identifier: Apache-2.0
// How a producer copies long bodies into the memory of a link: by plain stores, or by non-temporal ones, past the caches.
//
// Between two cores that share a last-level cache plain stores win; where each store has to fetch its line from a cache that
// is far away, non-temporal ones do, by up to 8 times (two core complexes of an EPYC). Which it is may change while the link
// lives: schedulers move threads, hypervisors move virtual processors. The producer's own part of the copy shows it: plain
// stores that take longer than a whole transfer by non-temporal ones are far from the lines. So one body in a few is timed,
// and while non-temporal stores are in use a rare one is copied by plain stores instead. Progress owner only.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/clock.hpp"
#include "base/platform/string_copy.hpp"

namespace thalweg::impl {

/// From here on a body may be copied past the caches: below, a receiver waits longer for memory than for the other core.
inline constexpr size_t kStreamedFrom = 4096;

class BodyCopy {
 public:
  static constexpr unsigned kPlainEvery = 16, kStreamedEvery = 256;  // bodies, for each that is timed
  static constexpr unsigned kAgree = 4;                              // timed bodies in a row that speak for the other routine
  static constexpr double kClearly = 1.5;

  /// `stream_ns`: nanoseconds a byte of a transfer by non-temporal stores, both ends; 0: not known, what is begun with
  /// stays.
  void choose(bool streamed, double stream_ns) {
    *this = BodyCopy();
    streamed_ = streamed;
    stream_ns_ = stream_ns;
    rest();
  }
  bool streamed() const { return streamed_; }

  void copy(std::byte* to, const std::byte* from, size_t n) {
    if (n < kStreamedFrom) return copy_bulk(to, from, n);
    if (--left_ == 0) [[unlikely]]
      return sample(to, from, n);
    streamed_ ? streaming_copy(to, from, n) : copy_bulk(to, from, n);
  }

  /// Plain stores of n bytes took so long.
  [[gnu::cold]] void judge(uint64_t ns, size_t n) {
    const bool slow = static_cast<double>(ns) > kClearly * stream_ns_ * static_cast<double>(n);
    other_ = slow != streamed_ ? other_ + 1 : 0;
    if (other_ < kAgree) return;
    streamed_ = slow;
    other_ = 0;
  }

 private:
  [[gnu::cold]] void sample(std::byte* to, const std::byte* from, size_t n) {
    if (stream_ns_ == 0) {
      streamed_ ? streaming_copy(to, from, n) : copy_bulk(to, from, n);
    } else {
      const uint64_t start = monotonic_ns();
      copy_bulk(to, from, n);
      judge(monotonic_ns() - start, n);
    }
    rest();
  }
  void rest() { left_ = streamed_ ? kStreamedEvery : kPlainEvery; }

  bool streamed_ = false;
  unsigned left_ = kPlainEvery, other_ = 0;
  double stream_ns_ = 0;
};

}  // namespace thalweg::impl
