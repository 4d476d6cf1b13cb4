// SPDX-License-Identifier: Apache-2.0
// The 8-bit floating-point formats of the Open Compute Project (OFP8), and truth values, as elements of thalweg/device/reduce.hpp.
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

namespace thalweg::impl {

/// E exponent and M mantissa bits. E4M3 has no infinity, and one NaN of each sign (S.1111.111); E5M2 is as IEEE 754.
template <unsigned E, unsigned M>
struct Float8 {
  using Stored = unsigned char;
  using Accumulated = float;
  static constexpr int kBias = (1 << (E - 1)) - 1;
  static constexpr bool kInfinity = E == 5;
  static constexpr unsigned kTop = (1u << (E + M)) - 1;                          // all bits but the sign
  static constexpr unsigned kLargest = kInfinity ? kTop - (1u << M) : kTop - 1;  // finite
  static constexpr unsigned kNan = kTop;

  static float value_of(unsigned stored) {
    const unsigned exponent = (stored & kTop) >> M, mantissa = stored & ((1u << M) - 1);
    float value = 0;
    if ((stored & kTop) > kLargest) {
      value = kInfinity && mantissa == 0 ? INFINITY : NAN;
    } else if (exponent == 0) {
      value = std::ldexp(static_cast<float>(mantissa), 1 - kBias - static_cast<int>(M));
    } else {
      value = std::ldexp(static_cast<float>((1u << M) | mantissa), static_cast<int>(exponent) - kBias - static_cast<int>(M));
    }
    return (stored & 0x80) != 0 ? -value : value;
  }
  static const std::array<float, 256>& table() {
    static const std::array<float, 256> values = [] {
      std::array<float, 256> made{};
      for (unsigned i = 0; i < 256; ++i) made[i] = value_of(i);
      return made;
    }();
    return values;
  }
  static float widen(unsigned char stored) { return table()[stored]; }

  /// To nearest, ties to even; beyond the largest finite number: that one.
  static unsigned char narrow(float value) {
    const unsigned bits = std::bit_cast<uint32_t>(value), sign = bits >> 24 & 0x80;
    const float size = std::fabs(value);
    if (std::isnan(value)) return static_cast<unsigned char>(sign | kNan);
    if (std::isinf(value)) return static_cast<unsigned char>(sign | (kInfinity ? kTop - (1u << M) + 1 : kNan));
    if (size == 0) return static_cast<unsigned char>(sign);
    // The unit in the last place: of the number's exponent, but not below that of subnormal numbers.
    const int lowest = 1 - kBias - static_cast<int>(M);
    int exponent = 0;
    std::frexp(size, &exponent);  // size = [0.5, 1) * 2^exponent
    const int unit = std::max(exponent - 1 - static_cast<int>(M), lowest);
    const auto units = static_cast<unsigned>(std::nearbyint(std::ldexp(size, -unit)));  // exact, then rounded once
    // Counted in units, an exponent above the lowest adds 2^M for each step.
    const unsigned code = units + (static_cast<unsigned>(unit - lowest) << M);
    return static_cast<unsigned char>(sign | std::min(code, kLargest));
  }
};
using E4M3 = Float8<4, 3>;
using E5M2 = Float8<5, 2>;

}  // namespace thalweg::impl
