// SPDX-License-Identifier: Apache-2.0
// The arguments of reductions.
#include <thalweg/device/reduce.hpp>

#include "plans/c_steps.hpp"

namespace thalweg::impl {
namespace {

using device::ElementType;
using device::ReduceOp;
static_assert(TW_TYPE_FLOAT16 == static_cast<int>(ElementType::float16) &&
              TW_TYPE_UINT8 == static_cast<int>(ElementType::uint8) && TW_REDUCE_SUM == static_cast<int>(ReduceOp::sum) &&
              TW_REDUCE_XOR == static_cast<int>(ReduceOp::bit_xor));

constexpr size_t kMostSources = 1024;

Status check_kind(uint32_t type, uint32_t op) {
  if (type >= static_cast<uint32_t>(ElementType::count_))
    return fail(TW_ERR_INVALID, "type %u is not one of TW_TYPE_* that plans reduce", type);
  if (op >= static_cast<uint32_t>(ReduceOp::count_))
    return fail(TW_ERR_INVALID, "operation %u is not one of TW_REDUCE_* that plans apply", op);
  if (op >= TW_REDUCE_AND && type <= TW_TYPE_FLOAT64)
    return fail(TW_ERR_INVALID, "TW_REDUCE_AND, _OR and _XOR are for integers, not for floating-point elements");
  return TW_OK;
}

Status check_place(uint64_t address, uint32_t size, const char* what, size_t number) {
  if (address == 0) return fail(TW_ERR_INVALID, "%s %zu is NULL", what, number);
  if (address % size != 0)
    return fail(TW_ERR_MISALIGNED, "%s %zu is not aligned to its elements of %u bytes", what, number, size);
  return TW_OK;
}

Status source_of(const tw_source& given, uint64_t to, uint64_t length, uint32_t size, size_t number, ReduceSource* out) {
  out->region = region_of(given.remote);
  out->address = given.remote != nullptr ? given.offset : reinterpret_cast<uint64_t>(given.address);
  if (length == 0) return TW_OK;
  if (out->region == nullptr) {
    const bool apart = out->address + length <= to || to + length <= out->address;
    if (!apart && out->address != to) return fail(TW_ERR_INVALID, "source %zu overlaps the destination", number);
    return check_place(out->address, size, "source", number);
  }
  if (given.address != nullptr) return fail(TW_ERR_INVALID, "source %zu has an address, and remote memory, too", number);
  if (out->region->peer == nullptr)
    return fail(TW_ERR_STALE, "source %zu was imported through an endpoint that is closed", number);
  OpDesc range;
  range.remote = out->region;
  range.remote_offset = given.offset;
  range.length = length;
  if (Status s = check_range(range, TW_MEMORY_READ); is_error(s)) return s;
  return check_place(out->region->key.base + given.offset, size, "source", number);
}

}  // namespace

Status reduce_step(void* to, std::span<const tw_source> sources, size_t count, uint32_t type, uint32_t op, PlanStep* out) {
  if (Status s = check_kind(type, op); is_error(s)) return s;
  if (sources.data() == nullptr || sources.empty() || sources.size() > kMostSources)
    return fail(TW_ERR_INVALID, "a reduction has 1 to %zu sources, not %zu", kMostSources, sources.size());
  const uint32_t size = device::element_bytes(static_cast<ElementType>(type));
  const auto address = reinterpret_cast<uint64_t>(to);
  uint64_t length = 0;
  if (__builtin_mul_overflow(count, uint64_t{size}, &length) || length > UINT64_MAX / 2)
    return fail(TW_ERR_INVALID, "%zu elements of %u bytes are more than there can be", count, size);
  if (length != 0) {
    if (Status s = check_place(address, size, "destination", 0); is_error(s)) return s;
  }
  out->op.verb = Verb::reduce;
  out->op.atomic_op = static_cast<uint8_t>(op);
  out->op.word = static_cast<uint8_t>(type);
  out->op.remote_offset = address;
  out->op.length = length;
  out->sources.resize(sources.size());
  for (size_t i = 0; i < sources.size(); ++i) {
    if (Status s = source_of(sources[i], address, length, size, i, &out->sources[i]); is_error(s)) return s;
  }
  return TW_OK;
}

}  // namespace thalweg::impl
