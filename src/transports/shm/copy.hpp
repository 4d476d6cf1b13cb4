// SPDX-License-Identifier: Apache-2.0
// Copies into and out of shared memory, chosen by size.
//
// Up to 40 bytes: overlapping moves, no loop. Below 2 KiB: memcpy. From there on x86-64 `rep movsb`: it does not read for
// ownership the lines that the other core has dirty, which vector copies do (measured: half the time at 64 KiB); glibc picks
// it too, but not in every version. Into a ring, non-temporal stores lose on some processors (Xeon: 159 us a MiB, and 118) and win by
// far on others (two core complexes of an EPYC: 60 and 470): where they were measured to win, they are used from kStreamedFrom on.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/platform/string_copy.hpp"

namespace thalweg::impl::shm {

/// n <= 40. Reads and writes exactly n bytes.
inline void copy_short(std::byte* to, const std::byte* from, uint32_t n) {
  if (n >= 16) {
    struct Pair {
      uint64_t low, high;
    } first, second, last;
    std::memcpy(&first, from, 16);
    std::memcpy(&last, from + n - 16, 16);
    if (n > 32) {
      std::memcpy(&second, from + 16, 16);
      std::memcpy(to + 16, &second, 16);
    }
    std::memcpy(to, &first, 16);
    std::memcpy(to + n - 16, &last, 16);
  } else if (n >= 8) {
    uint64_t first, last;
    std::memcpy(&first, from, 8);
    std::memcpy(&last, from + n - 8, 8);
    std::memcpy(to, &first, 8);
    std::memcpy(to + n - 8, &last, 8);
  } else if (n >= 4) {
    uint32_t first, last;
    std::memcpy(&first, from, 4);
    std::memcpy(&last, from + n - 4, 4);
    std::memcpy(to, &first, 4);
    std::memcpy(to + n - 4, &last, 4);
  } else if (n > 0) {
    to[0] = from[0];
    if (n > 1) {
      to[n - 2] = from[n - 2];
      to[n - 1] = from[n - 1];
    }
  }
}

/// From here on a body may be copied in past the caches (Link::streams): below, a receiver waits longer for memory than for the other core.
inline constexpr size_t kStreamedFrom = 4096;

/// Any n.
inline void copy_bulk(std::byte* to, const std::byte* from, size_t n) {
  if (n < kStringCopyMin)
    std::memcpy(to, from, n);
  else
    string_copy(to, from, n);
}

}  // namespace thalweg::impl::shm
