// SPDX-License-Identifier: Apache-2.0
#include "collectives/elements.hpp"

#include <algorithm>
#include <cstring>

#include "collectives/element_loops.hpp"
#include "collectives/float8.hpp"
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
static_assert(TW_TYPE_BOOL + 1 == kTypeCount && TW_TYPE_UINT8 + 1 == static_cast<int>(ElementType::count_));

bool bitwise(uint32_t op) { return op == TW_REDUCE_AND || op == TW_REDUCE_OR || op == TW_REDUCE_XOR; }

template <class Element>
void reduce_small(ReduceOp op, uint64_t to, std::span<const uint64_t> sources, uint64_t count) {
  const device::Reduction what{ElementType::uint8,
                               op,
                               static_cast<device::u32>(sources.size()),
                               false,
                               to,
                               reinterpret_cast<const device::u64*>(sources.data())};
  device::reduce_type<Element>(device::DirectMachine(), 0, 1, what, {0, count});
}

void reduce_truths(uint32_t op, std::byte* to, std::span<const uint64_t> sources, uint64_t count) {
  const auto at = [&](size_t source, uint64_t i) { return reinterpret_cast<const uint8_t*>(sources[source])[i] != 0; };
  for (uint64_t i = 0; i < count; ++i) {
    bool truth = at(0, i);
    for (size_t s = 1; s < sources.size(); ++s) {
      const bool next = at(s, i);
      truth = op == TW_REDUCE_AND ? truth && next : op == TW_REDUCE_OR ? truth || next : truth != next;
    }
    to[i] = std::byte{truth};
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

void reduce_by_user(const Operation& what, std::byte* to, std::span<const uint64_t> sources, uint64_t count, ReduceRoom& room) {
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
  for (size_t s = 1; s < sources.size(); ++s) what.reduce(address(s), sum, count, what.arg);
  if (sum != to) std::memcpy(to, sum, bytes);
}

template <class Element, class Factor>
void scale_floats(std::byte* at, uint64_t count, Factor factor) {
  auto* const elements = reinterpret_cast<typename Element::Stored*>(at);
  for (uint64_t i = 0; i < count; ++i)
    elements[i] = Element::narrow(static_cast<typename Element::Accumulated>(Element::widen(elements[i]) * factor));
}

template <class Integer>
void divide(std::byte* at, uint64_t count, uint32_t size) {
  auto* const elements = reinterpret_cast<Integer*>(at);
  for (uint64_t i = 0; i < count; ++i)
    elements[i] = static_cast<Integer>(static_cast<int64_t>(elements[i]) / static_cast<int64_t>(size));
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

void reduce_host(const Operation& what, std::byte* to, std::span<const uint64_t> sources, uint64_t count, ReduceRoom& room) {
  if (count == 0) return;
  if (what.op == TW_REDUCE_USER) return reduce_by_user(what, to, sources, count, room);
  const uint32_t op = step_op(what.op);
  const auto target = reinterpret_cast<uint64_t>(to);
  if (what.type == TW_TYPE_BOOL) return reduce_truths(op, to, sources, count);
  if (what.type == TW_TYPE_FLOAT8_E4M3) return reduce_small<E4M3>(static_cast<ReduceOp>(op), target, sources, count);
  if (what.type == TW_TYPE_FLOAT8_E5M2) return reduce_small<E5M2>(static_cast<ReduceOp>(op), target, sources, count);
  if (reduce_few(what.type, op, to, sources, count)) return;
  const bool halves = what.type == TW_TYPE_FLOAT16 && op == TW_REDUCE_SUM;
  reduce_from(halves ? reduce_halves(to, sources, count) : 0, what, op, target, sources, count);
}

void scale_host(const Operation& what, std::byte* at, uint64_t count, uint32_t size) {
  const double factor = what.op == TW_REDUCE_AVERAGE ? 1.0 / size : what.scale;
  switch (what.type) {
    case TW_TYPE_FLOAT16:
      return scale_floats<device::Half>(at, count, static_cast<float>(factor));
    case TW_TYPE_BFLOAT16:
      return scale_floats<device::Brain>(at, count, static_cast<float>(factor));
    case TW_TYPE_FLOAT32:
      return scale_floats<device::Plain<float>>(at, count, static_cast<float>(factor));
    case TW_TYPE_FLOAT64:
      return scale_floats<device::Plain<double>>(at, count, factor);
    case TW_TYPE_FLOAT8_E4M3:
      return scale_floats<E4M3>(at, count, static_cast<float>(factor));
    case TW_TYPE_FLOAT8_E5M2:
      return scale_floats<E5M2>(at, count, static_cast<float>(factor));
    case TW_TYPE_INT8:
      return divide<int8_t>(at, count, size);
    case TW_TYPE_INT16:
      return divide<int16_t>(at, count, size);
    case TW_TYPE_INT32:
      return divide<int32_t>(at, count, size);
    case TW_TYPE_INT64:
      return divide<int64_t>(at, count, size);
    default:
      return divide<uint8_t>(at, count, size);
  }
}

}  // namespace thalweg::impl
