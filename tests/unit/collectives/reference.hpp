// SPDX-License-Identifier: Apache-2.0
// What collectives must give, from all ranks' inputs: computed in doubles and 64-bit integers, apart from the library's code.
#pragma once
#include <thalweg/collectives.h>

#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace thalweg::test {

/// A floating-point format by its bits: values of codes by the formula, codes of values by a search.
class Format {
 public:
  Format(unsigned exponent, unsigned mantissa, bool infinity) : exponent_(exponent), mantissa_(mantissa), infinity_(infinity) {
    for (unsigned code = 0; code < 1u << (exponent + mantissa + 1); ++code) {
      const double value = value_of(code);
      if (std::isfinite(value)) codes_.emplace(value, code);
    }
  }
  double value_of(unsigned code) const {
    const unsigned top = 1u << (exponent_ + mantissa_), bits = code & (top - 1);
    const int bias = (1 << (exponent_ - 1)) - 1, e = static_cast<int>(bits >> mantissa_);
    const double m = static_cast<double>(bits & ((1u << mantissa_) - 1)), sign = (code & top) != 0 ? -1 : 1;
    const bool last = e == (1 << exponent_) - 1;
    if (last && (infinity_ || bits == top - 1)) return infinity_ && m == 0 ? sign * INFINITY : NAN;
    const double scale = std::pow(2.0, (e == 0 ? 1 : e) - bias);
    return sign * scale * ((e == 0 ? 0 : 1) + m / static_cast<double>(1u << mantissa_));
  }
  /// The nearest: of two that are as near the one with an even code. Beyond the last one: that.
  unsigned code_of(double value) const {
    auto above = codes_.lower_bound(value);
    if (above == codes_.end()) return codes_.rbegin()->second;
    if (above == codes_.begin() || above->first == value) return above->second;
    const auto below = std::prev(above);
    const double up = above->first - value, down = value - below->first;
    if (up != down) return up < down ? above->second : below->second;
    return (above->second & 1) == 0 ? above->second : below->second;
  }

 private:
  const unsigned exponent_, mantissa_;
  const bool infinity_;
  std::map<double, unsigned> codes_;
};

inline const Format& format_of(uint32_t type) {
  static const Format half(5, 10, true), brain(8, 7, true), e4m3(4, 3, false), e5m2(5, 2, true);
  return type == TW_TYPE_FLOAT16 ? half : type == TW_TYPE_BFLOAT16 ? brain : type == TW_TYPE_FLOAT8_E4M3 ? e4m3 : e5m2;
}

inline size_t size_of(uint32_t type) {
  constexpr size_t sizes[] = {2, 2, 4, 8, 1, 2, 4, 8, 1, 1, 1, 1};
  return sizes[type];
}
inline bool is_float(uint32_t type) {
  return type <= TW_TYPE_FLOAT64 || type == TW_TYPE_FLOAT8_E4M3 || type == TW_TYPE_FLOAT8_E5M2;
}

using Values = std::vector<double>;

template <class T>
void append(std::string& bytes, double value) {
  const T stored = static_cast<T>(value);
  bytes.append(reinterpret_cast<const char*>(&stored), sizeof stored);
}

inline std::string encode(uint32_t type, const Values& values) {
  std::string bytes;
  for (const double value : values) {
    switch (type) {
      case TW_TYPE_FLOAT32:
        append<float>(bytes, value);
        break;
      case TW_TYPE_FLOAT64:
        append<double>(bytes, value);
        break;
      case TW_TYPE_INT8:
        append<int8_t>(bytes, value);
        break;
      case TW_TYPE_INT16:
        append<int16_t>(bytes, value);
        break;
      case TW_TYPE_INT32:
        append<int32_t>(bytes, value);
        break;
      case TW_TYPE_INT64:
        append<int64_t>(bytes, value);
        break;
      case TW_TYPE_UINT8:
      case TW_TYPE_BOOL:
        append<uint8_t>(bytes, value);
        break;
      case TW_TYPE_FLOAT16:
      case TW_TYPE_BFLOAT16: {
        const auto code = static_cast<uint16_t>(format_of(type).code_of(value));
        bytes.append(reinterpret_cast<const char*>(&code), sizeof code);
        break;
      }
      default:
        bytes += static_cast<char>(format_of(type).code_of(value));
    }
  }
  return bytes;
}

inline double combine(uint32_t op, double a, double b) {
  const auto x = static_cast<int64_t>(a), y = static_cast<int64_t>(b);
  switch (op) {
    case TW_REDUCE_PRODUCT:
      return a * b;
    case TW_REDUCE_MIN:
      return std::min(a, b);
    case TW_REDUCE_MAX:
      return std::max(a, b);
    case TW_REDUCE_AND:
      return static_cast<double>(x & y);
    case TW_REDUCE_OR:
      return static_cast<double>(x | y);
    case TW_REDUCE_XOR:
      return static_cast<double>(x ^ y);
    default:
      return a + b;
  }
}

/// Over inputs[first], ..., inputs[last - 1], of elements [begin, begin + count).
inline Values reduced(uint32_t op, const std::vector<Values>& inputs, size_t first, size_t last, size_t begin, size_t count) {
  Values out(inputs[first].begin() + static_cast<long>(begin), inputs[first].begin() + static_cast<long>(begin + count));
  for (size_t r = first + 1; r < last; ++r) {
    for (size_t i = 0; i < count; ++i) out[i] = combine(op, out[i], inputs[r][begin + i]);
  }
  return out;
}

}  // namespace thalweg::test
