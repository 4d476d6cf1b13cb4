// SPDX-License-Identifier: Apache-2.0
// Copies into and out of shared memory, chosen by size.
//
// Up to 40 bytes: overlapping moves, no loop. More: copy_bulk (base/platform/string_copy.hpp), and for long bodies what
// transports/body_copy.hpp takes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/platform/string_copy.hpp"

namespace thalweg::impl::shm {

/// Of a slot's body. Reads and writes exactly n bytes.
inline void copy_short(std::byte* to, const std::byte* from, uint32_t n) {
  if (n >= 16) {
    struct Pair {
      uint64_t low, high;
    } first, next, last;
    std::memcpy(&first, from, 16);
    std::memcpy(&last, from + n - 16, 16);
    for (uint32_t at = 16; at + 16 < n; at += 16) {
      std::memcpy(&next, from + at, 16);
      std::memcpy(to + at, &next, 16);
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

}  // namespace thalweg::impl::shm
