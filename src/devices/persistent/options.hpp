// SPDX-License-Identifier: Apache-2.0
// A context's options of persistent kernels (devices/persistent.hpp).
#pragma once
#include "base/clock.hpp"

namespace thalweg::impl {

struct PersistentOptions {
  static constexpr unsigned kMostBlocks = 8;
  static constexpr uint64_t kShortest = 10 * kMicrosecond, kLongest = 100 * kMillisecond, kUsual = kMillisecond;
  unsigned blocks = 0;  // thread blocks of each device's kernel, at most kMostBlocks; 0: no such kernels
  uint64_t idle_ns = kUsual;
};

}  // namespace thalweg::impl
