// SPDX-License-Identifier: Apache-2.0
// Reductions on any back end: every type by every operation, the same bits everywhere.
#include <cmath>

#include "tests/gpu/programs.hpp"
#include "thalweg/device/reduce.hpp"

namespace thalweg::impl::contract {
namespace {

using namespace programs;
using device::ElementType;
using device::ReduceOp;

/// One element of an integer type, as two's complement has it.
uint64_t reduce_integers(ReduceOp op, int64_t a, int64_t b) {
  const auto ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
  switch (op) {
    case ReduceOp::sum:
      return ua + ub;
    case ReduceOp::product:
      return ua * ub;
    case ReduceOp::min:
      return static_cast<uint64_t>(std::min(a, b));
    case ReduceOp::max:
      return static_cast<uint64_t>(std::max(a, b));
    case ReduceOp::bit_and:
      return ua & ub;
    case ReduceOp::bit_or:
      return ua | ub;
    default:
      return ua ^ ub;
  }
}
template <class T>
T reduce_floats(ReduceOp op, T a, T b) {
  switch (op) {
    case ReduceOp::sum:
      return a + b;
    case ReduceOp::product:
      return a * b;
    case ReduceOp::min:
      return std::isnan(a) || std::isnan(b) ? static_cast<T>(NAN) : std::min(a, b);
    default:
      return std::isnan(a) || std::isnan(b) ? static_cast<T>(NAN) : std::max(a, b);
  }
}

/// 16-bit floating-point numbers by arithmetic on their fields.
double of_bits(uint16_t bits, int mantissa) {
  const int exponents = 15 - mantissa, bias = (1 << (exponents - 1)) - 1;
  const int exponent = bits >> mantissa & ((1 << exponents) - 1), fraction = bits & ((1 << mantissa) - 1);
  double value = exponent == 0 ? std::ldexp(fraction, 1 - bias - mantissa)
                               : std::ldexp(fraction + (1 << mantissa), exponent - bias - mantissa);
  if (exponent == (1 << exponents) - 1) value = fraction != 0 ? NAN : INFINITY;
  return (bits >> 15) != 0 ? -value : value;
}
/// The nearest one, ties to even: found among its neighbours.
uint16_t to_bits(float value, int mantissa) {
  if (std::isnan(value)) return 0x7fff;
  const auto sign = static_cast<uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const double wanted = std::fabs(static_cast<double>(value));
  uint32_t low = 0, high = ((1u << (15 - mantissa)) - 1) << mantissa;  // infinity
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    (of_bits(static_cast<uint16_t>(middle), mantissa) <= wanted ? low : high) = middle;
  }
  if (std::isinf(wanted)) return static_cast<uint16_t>(sign | high);
  const double below = of_bits(static_cast<uint16_t>(low), mantissa);
  const double step = std::ldexp(1.0, std::ilogb(std::max(below, 0.0) == 0 ? 1.0 : below));
  double above = of_bits(static_cast<uint16_t>(high), mantissa);
  if (std::isinf(above)) above = 2 * step;  // where the next one would be
  const double middle = (below + above) / 2;
  const bool up = wanted > middle || (wanted == middle && low % 2 != 0);
  return static_cast<uint16_t>(sign | (up ? high : low));
}

template <class T>
T load(const Bytes& bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at * sizeof(T), sizeof(T));
  return value;
}
template <class T>
void store(Bytes& bytes, size_t at, T value) {
  std::memcpy(bytes.data() + at * sizeof(T), &value, sizeof(T));
}

template <class T>
void integers(ReduceOp op, const std::vector<Bytes>& sources, size_t count, Bytes* out) {
  for (size_t i = 0; i < count; ++i) {
    T sum = load<T>(sources[0], i);
    for (size_t s = 1; s < sources.size(); ++s) sum = static_cast<T>(reduce_integers(op, sum, load<T>(sources[s], i)));
    store(*out, i, sum);
  }
}
template <class T>
void floats(ReduceOp op, const std::vector<Bytes>& sources, size_t count, Bytes* out) {
  for (size_t i = 0; i < count; ++i) {
    T sum = load<T>(sources[0], i);
    for (size_t s = 1; s < sources.size(); ++s) sum = reduce_floats(op, sum, load<T>(sources[s], i));
    store(*out, i, sum);
  }
}
void shorts(int mantissa, ReduceOp op, const std::vector<Bytes>& sources, size_t count, Bytes* out) {
  for (size_t i = 0; i < count; ++i) {
    auto sum = static_cast<float>(of_bits(load<uint16_t>(sources[0], i), mantissa));
    for (size_t s = 1; s < sources.size(); ++s)
      sum = reduce_floats(op, sum, static_cast<float>(of_bits(load<uint16_t>(sources[s], i), mantissa)));
    store(*out, i, to_bits(sum, mantissa));
  }
}

Bytes expected(ElementType type, ReduceOp op, const std::vector<Bytes>& sources, size_t count) {
  Bytes out(sources[0].size());
  switch (type) {
    case ElementType::float16:
      shorts(10, op, sources, count, &out);
      break;
    case ElementType::bfloat16:
      shorts(7, op, sources, count, &out);
      break;
    case ElementType::float32:
      floats<float>(op, sources, count, &out);
      break;
    case ElementType::float64:
      floats<double>(op, sources, count, &out);
      break;
    case ElementType::int8:
      integers<int8_t>(op, sources, count, &out);
      break;
    case ElementType::int16:
      integers<int16_t>(op, sources, count, &out);
      break;
    case ElementType::int32:
      integers<int32_t>(op, sources, count, &out);
      break;
    case ElementType::int64:
      integers<int64_t>(op, sources, count, &out);
      break;
    default:
      integers<uint8_t>(op, sources, count, &out);
  }
  return out;
}

/// A NaN of 32 or 64 bits is any NaN.
bool same(ElementType type, const Bytes& a, const Bytes& b, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    bool alike = false;
    if (type == ElementType::float32) {
      const auto x = load<float>(a, i), y = load<float>(b, i);
      alike = (std::isnan(x) && std::isnan(y)) || std::memcmp(&x, &y, sizeof x) == 0;
    } else if (type == ElementType::float64) {
      const auto x = load<double>(a, i), y = load<double>(b, i);
      alike = (std::isnan(x) && std::isnan(y)) || std::memcmp(&x, &y, sizeof x) == 0;
    } else {
      const size_t size = device::element_bytes(type);
      alike = std::memcmp(a.data() + i * size, b.data() + i * size, size) == 0;
    }
    if (!alike) return false;
  }
  return true;
}

class Reductions : public Programs {};
INSTANTIATE_TEST_SUITE_P(Triggers, Reductions, kTriggers, trigger_name);

/// Random bytes: of floating-point types with infinities, NaNs and subnormal numbers among them.
void reduce_once(Site& site, ElementType type, ReduceOp op, size_t sources, size_t count, uint64_t shift, bool in_place) {
  SCOPED_TRACE(testing::Message() << "type " << static_cast<int>(type) << ", operation " << static_cast<int>(op) << ", "
                                  << sources << " sources, " << count << " elements, shift " << shift);
  const size_t bytes = count * device::element_bytes(type), guard = 32;
  std::vector<Bytes> data;
  std::vector<uint64_t> at;
  for (size_t s = 0; s < sources; ++s) {
    at.push_back(site.allocate(bytes + 64) + shift);
    data.push_back(site.fill(at.back(), bytes));
  }
  const uint64_t area = in_place ? at.back() - guard : site.allocate(bytes + 160) + guard;
  const uint64_t to = in_place ? at.back() : area + guard + shift;
  Bytes around;
  if (!in_place) around = site.fill(area, bytes + 96);
  const uint64_t table = site.allocate(sources * sizeof(uint64_t));
  for (size_t s = 0; s < sources; ++s) site.put(table + s * 8, at[s]);
  Written program(site);
  Step& step = program.add(StepKind::reduce);
  step.to = programs::at(to);
  step.bytes = bytes;
  step.word = pointer<device::u64>(table);
  step.compare = static_cast<uint32_t>(sources);
  step.atomic_op = static_cast<uint32_t>(op);
  step.atomic_bytes = static_cast<uint32_t>(type);
  uint64_t all = to;
  for (const uint64_t one : at) all |= one;
  step.operand = all % 16 == 0;
  program.prepare();
  program.trigger();
  program.finish();
  program.expect_good();
  EXPECT_TRUE(same(type, site.read(to, bytes), expected(type, op, data, count), count));
  if (in_place) return;
  const Bytes now = site.read(area, bytes + 96);
  EXPECT_TRUE(std::equal(now.begin(), now.begin() + static_cast<long>(to - area), around.begin())) << "before the destination";
  EXPECT_TRUE(std::equal(now.begin() + static_cast<long>(to - area + bytes), now.end(),
                         around.begin() + static_cast<long>(to - area + bytes)))
      << "behind the destination";
}

TEST_P(Reductions, EveryTypeByEveryOperation) {
  Site site(GetParam(), device, ordinary);
  for (uint32_t type = 0; type < static_cast<uint32_t>(ElementType::count_); ++type) {
    const bool integer = type > static_cast<uint32_t>(ElementType::float64);
    const uint32_t size = device::element_bytes(static_cast<ElementType>(type));
    for (uint32_t op = 0; op < static_cast<uint32_t>(integer ? ReduceOp::count_ : ReduceOp::bit_and); ++op) {
      const size_t count = 1 + rng()() % 700;
      const uint64_t shift = rng()() % 2 == 0 ? 0 : rng()() % 8 * size % 32;
      reduce_once(site, static_cast<ElementType>(type), static_cast<ReduceOp>(op), 1 + rng()() % 5, count, shift,
                  rng()() % 3 == 0);
    }
  }
}

TEST_P(Reductions, SizesAroundEverySwitch) {
  Site site(GetParam(), device, ordinary);
  for (const size_t count : {size_t{1}, size_t{255}, size_t{256}, size_t{257}, size_t{4096}, size_t{40001}}) {
    for (const ElementType type : {ElementType::float16, ElementType::float32, ElementType::int8, ElementType::float64})
      reduce_once(site, type, ReduceOp::sum, 3, count, count % 2 == 0 ? 0 : 8, false);
  }
}

}  // namespace
}  // namespace thalweg::impl::contract
