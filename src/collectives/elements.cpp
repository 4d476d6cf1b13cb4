// SPDX-License-Identifier: Apache-2.0
#include "collectives/elements.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/told_status.hpp"
#include "collectives/element_loops.hpp"
#include "devices/program/exchange_fold.hpp"
#include "devices/program/reduce_host.hpp"

namespace thalweg::impl {
namespace {

using device::ElementType;
using device::ReduceOp;

struct TypeFacts {
  const char* name;
  uint32_t bytes;
  bool floating;
};
constexpr TypeFacts kTypes[] = {{"float16", 2, true}, {"bfloat16", 2, true},    {"float32", 4, true},     {"float64", 8, true},
                                {"int8", 1, false},   {"int16", 2, false},      {"int32", 4, false},      {"int64", 8, false},
                                {"uint8", 1, false},  {"float8_e4m3", 1, true}, {"float8_e5m2", 1, true}, {"bool", 1, false}};
constexpr uint32_t kTypeCount = sizeof kTypes / sizeof kTypes[0];
static_assert(TW_TYPE_FLOAT8_E4M3 == device::AnyElements::kE4m3 && TW_TYPE_FLOAT8_E5M2 == device::AnyElements::kE5m2 &&
              TW_TYPE_BOOL == device::AnyElements::kTruth);
static_assert(TW_TYPE_BOOL + 1 == kTypeCount && TW_TYPE_UINT8 + 1 == static_cast<int>(ElementType::count_));

bool bitwise(uint32_t op) { return op == TW_REDUCE_AND || op == TW_REDUCE_OR || op == TW_REDUCE_XOR; }

template <class Element>
void reduce_small(uint32_t op, uint64_t to, std::span<const uint64_t> sources, uint64_t count) {
  const device::Reduction what{ElementType::uint8,
                               static_cast<ReduceOp>(op),
                               static_cast<device::u32>(sources.size()),
                               false,
                               to,
                               reinterpret_cast<const device::u64*>(sources.data())};
  if constexpr (std::is_floating_point_v<typename Element::Accumulated>) {
    device::reduce_type<Element>(device::DirectMachine(), 0, 1, what, {0, count});
  } else {
    device::reduce_bits<Element>(device::DirectMachine(), 0, 1, what, {0, count});
  }
}

/// The elements from `first` on.
void reduce_from(uint64_t first, const Operation& what, uint32_t op, uint64_t to, std::span<const uint64_t> sources,
                 uint64_t count) {
  const device::Reduction reduction{static_cast<ElementType>(what.type),
                                    static_cast<ReduceOp>(op),
                                    static_cast<device::u32>(sources.size()),
                                    false,
                                    to,
                                    reinterpret_cast<const device::u64*>(sources.data())};
  const uint64_t bytes = element_size(what.type);
  reduce_on_host(reduction, {first * bytes, count * bytes});
}

/// Of the user's function.
Status check_returned(tw_status returned) {
  if (returned == TW_OK) return TW_OK;
  return fail(told_error(returned), "the caller's reduction function failed there (it returned %d)", int{returned});
}

Status reduce_by_user(const Operation& what, std::byte* to, std::span<const uint64_t> sources, uint64_t count,
                      ReduceRoom& room) {
  const uint64_t bytes = count * element_size(what.type);
  const auto address = [&](size_t i) { return reinterpret_cast<const std::byte*>(sources[i]); };
  const bool apart =
      std::none_of(sources.begin() + 1, sources.end(), [&](uint64_t one) { return one == reinterpret_cast<uint64_t>(to); });
  std::byte* sum = to;
  if (!apart) {
    room.resize(std::max<size_t>(room.size(), bytes));
    sum = room.data();
  }
  if (sum != address(0)) std::memcpy(sum, address(0), bytes);
  for (size_t s = 1; s < sources.size(); ++s) {
    if (Status failed = check_returned(what.reduce(address(s), sum, count, what.arg)); is_error(failed)) return failed;
  }
  if (sum != to) std::memcpy(to, sum, bytes);
  return TW_OK;
}

template <class Element>
void scale_all(const device::Scale& by, std::byte* at, uint64_t count) {
  auto* const elements = reinterpret_cast<typename Element::Stored*>(at);
  for (uint64_t i = 0; i < count; ++i) elements[i] = by.of<Element>(elements[i]);
}

}  // namespace

uint32_t element_size(uint32_t type) { return type < kTypeCount ? kTypes[type].bytes : 0; }
const char* type_name(uint32_t type) { return type < kTypeCount ? kTypes[type].name : "?"; }
uint32_t step_op(uint32_t op) { return op == TW_REDUCE_AVERAGE || op == TW_REDUCE_SCALED_SUM ? uint32_t{TW_REDUCE_SUM} : op; }
bool scales(const Operation& what) { return step_op(what.op) != what.op; }

Status check_operation(const Operation& what) {
  if (what.op > TW_REDUCE_USER) return fail(TW_ERR_INVALID, "operation %u is not one of TW_REDUCE_*", what.op);
  if ((what.op == TW_REDUCE_USER) != (what.reduce != nullptr))
    return fail(TW_ERR_INVALID, what.reduce == nullptr
                                    ? "TW_REDUCE_USER needs the function in the options' `reduce`"
                                    : "the options name a function, and the operation is not TW_REDUCE_USER");
  if (what.scale != 0 && what.op != TW_REDUCE_SCALED_SUM)
    return fail(TW_ERR_INVALID, "the options have a scale, and the operation is not TW_REDUCE_SCALED_SUM");
  if (what.op == TW_REDUCE_USER) return TW_OK;
  if (bitwise(what.op) && kTypes[what.type].floating)
    return fail(TW_ERR_INVALID, "TW_REDUCE_AND, _OR and _XOR are for integers and truth values, not for %s",
                type_name(what.type));
  if (what.type == TW_TYPE_BOOL && !bitwise(what.op))
    return fail(TW_ERR_INVALID, "truth values take TW_REDUCE_AND, _OR and _XOR; send them as TW_TYPE_UINT8 to count them");
  if (what.op == TW_REDUCE_SCALED_SUM && !kTypes[what.type].floating)
    return fail(TW_ERR_INVALID, "TW_REDUCE_SCALED_SUM is for floating-point elements, not for %s", type_name(what.type));
  return TW_OK;
}

Status reduce_host(const Operation& what, std::byte* to, std::span<const uint64_t> sources, uint64_t count, ReduceRoom& room) {
  if (count == 0) return TW_OK;
  if (what.op == TW_REDUCE_USER) return reduce_by_user(what, to, sources, count, room);
  const uint32_t op = step_op(what.op);
  const auto target = reinterpret_cast<uint64_t>(to);
  const bool halves = what.type == TW_TYPE_FLOAT16 && op == TW_REDUCE_SUM;
  if (what.type == TW_TYPE_BOOL) {
    reduce_small<device::Truth>(op, target, sources, count);
  } else if (what.type == TW_TYPE_FLOAT8_E4M3) {
    reduce_small<device::E4M3>(op, target, sources, count);
  } else if (what.type == TW_TYPE_FLOAT8_E5M2) {
    reduce_small<device::E5M2>(op, target, sources, count);
  } else if (!reduce_few(what.type, op, to, sources, count)) {
    reduce_from(halves ? reduce_halves(to, sources, count) : 0, what, op, target, sources, count);
  }
  return TW_OK;
}

double scale_factor(const Operation& what, uint32_t size) { return what.op == TW_REDUCE_AVERAGE ? 1.0 / size : what.scale; }

void scale_host(const Operation& what, std::byte* at, uint64_t count, uint32_t size) {
  const device::Scale by{scale_factor(what, size), size};
  switch (what.type) {
    case TW_TYPE_FLOAT16:
      return scale_all<device::Half>(by, at, count);
    case TW_TYPE_BFLOAT16:
      return scale_all<device::Brain>(by, at, count);
    case TW_TYPE_FLOAT32:
      return scale_all<device::Plain<float>>(by, at, count);
    case TW_TYPE_FLOAT64:
      return scale_all<device::Plain<double>>(by, at, count);
    case TW_TYPE_FLOAT8_E4M3:
      return scale_all<device::E4M3>(by, at, count);
    case TW_TYPE_FLOAT8_E5M2:
      return scale_all<device::E5M2>(by, at, count);
    case TW_TYPE_INT8:
      return scale_all<device::Plain<signed char>>(by, at, count);
    case TW_TYPE_INT16:
      return scale_all<device::Plain<short>>(by, at, count);
    case TW_TYPE_INT32:
      return scale_all<device::Plain<int>>(by, at, count);
    case TW_TYPE_INT64:
      return scale_all<device::Plain<device::i64>>(by, at, count);
    default:
      return scale_all<device::Plain<unsigned char>>(by, at, count);
  }
}

}  // namespace thalweg::impl
