// SPDX-License-Identifier: Apache-2.0
// Random numbers of the model: the same for a seed on every machine and with every library.
#pragma once
#include <cstdint>

namespace thalweg::model {

/// SplitMix64.
class Random {
 public:
  explicit Random(uint64_t seed = 0) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  /// 0 .. n - 1.
  uint32_t below(uint32_t n) { return static_cast<uint32_t>((next() >> 32) * n >> 32); }
  bool percent(uint32_t n) { return below(100) < n; }
  template <class T, unsigned kCount>
  const T& of(const T (&choices)[kCount]) {
    return choices[below(kCount)];
  }

 private:
  uint64_t state_;
};

}  // namespace thalweg::model
