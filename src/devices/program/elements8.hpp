// SPDX-License-Identifier: Apache-2.0
// Elements of 8 bits that collectives have beside those of thalweg/device/reduce.hpp: the floating-point formats of the Open Compute
// Project (OFP8), and truth values. The same bits on every machine, whatever it does with subnormal numbers.
#pragma once
#include "thalweg/device/reduce.hpp"

namespace thalweg::device {

/// E exponent and M mantissa bits. E4M3 has no infinity, and one NaN of each sign (S.1111.111); E5M2 is as IEEE 754.
template <u32 E, u32 M>
struct Float8 {
  using Stored = unsigned char;
  using Accumulated = float;
  static constexpr u32 kBias = (1u << (E - 1)) - 1;
  static constexpr bool kInfinity = E == 5;
  static constexpr u32 kTop = (1u << (E + M)) - 1;                           // all bits but the sign
  static constexpr u32 kInfinite = kInfinity ? kTop - (1u << M) + 1 : kTop;  // E4M3: a NaN
  static constexpr u32 kLargest = kInfinite - 1;                             // finite
  static constexpr u32 kNan = kTop;

  static THALWEG_DEVICE float widen(unsigned char stored) {
    const u32 size = stored & kTop, sign = u32{stored & 0x80u} << 24;
    u32 bits = (size << kDropped) + kRebias;
    if (size > kLargest) bits = kInfinity && size == kInfinite ? kFloatInfinity : kFloatNan;
    if (size < 1u << M) bits = subnormal(size);
    return from_bits(sign | bits);
  }
  /// To nearest, ties to even; beyond the largest finite number: that one. A NaN: the one without a sign.
  static THALWEG_DEVICE unsigned char narrow(float value) {
    const u32 bits = to_bits(value), size = bits & 0x7fffffffu, sign = bits >> 24 & 0x80u;
    if (size > kFloatInfinity) return static_cast<unsigned char>(kNan);
    if (size == kFloatInfinity) return static_cast<unsigned char>(sign | kInfinite);
    u32 code = (size - kRebias + (kHalf - 1) + (size >> kDropped & 1)) >> kDropped;
    if (size < kRebias + kFloatOne) code = rounded_small(size);
    return static_cast<unsigned char>(sign | (code < kLargest ? code : kLargest));
  }

 private:
  static constexpr u32 kFloatInfinity = 0x7f800000u, kFloatNan = 0x7fc00000u, kFloatOne = 1u << 23;  // One: of the exponent
  static constexpr u32 kDropped = 23 - M, kHalf = 1u << (kDropped - 1);
  static constexpr u32 kRebias = (127 - kBias) << 23;

  static THALWEG_DEVICE float from_bits(u32 bits) {
    float value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
  }
  static THALWEG_DEVICE u32 to_bits(float value) {
    u32 bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    return bits;
  }
  // The smallest number of all; what is added to it has its unit in the last place.
  static constexpr u32 kUnit = (127 + 1 - kBias - M) << 23, kWhole = kUnit + (23u << 23);

  /// Without a leading bit: exact.
  static THALWEG_DEVICE u32 subnormal(u32 size) { return to_bits(multiply(static_cast<float>(size), from_bits(kUnit))); }
  /// Below the smallest number with a leading bit.
  static THALWEG_DEVICE u32 rounded_small(u32 size) { return to_bits(add(from_bits(size), from_bits(kWhole))) - kWhole; }
};
using E4M3 = Float8<4, 3>;
using E5M2 = Float8<5, 2>;

/// Every byte but 0 is true; results are 0 and 1.
struct Truth {
  using Stored = unsigned char;
  using Accumulated = unsigned char;
  static THALWEG_DEVICE unsigned char widen(unsigned char stored) { return stored != 0 ? 1 : 0; }
  static THALWEG_DEVICE unsigned char narrow(unsigned char value) { return value; }
};

/// The last pass of an average or a scaled sum, over what the sum was rounded to.
struct Scale {
  double factor;
  u32 divisor;  // of integers, towards zero
  template <class Element>
  THALWEG_DEVICE typename Element::Stored of(typename Element::Stored sum) const {
    using Stored = typename Element::Stored;
    using Accumulated = typename Element::Accumulated;
    if constexpr (static_cast<Accumulated>(0.5) != 0) {
      return Element::narrow(multiply(Element::widen(sum), static_cast<Accumulated>(factor)));
    } else if constexpr (sizeof(Stored) < sizeof(i64)) {
      return static_cast<Stored>(static_cast<int>(sum) / static_cast<int>(divisor));
    } else {
      return sum / static_cast<i64>(divisor);
    }
  }
};

}  // namespace thalweg::device
