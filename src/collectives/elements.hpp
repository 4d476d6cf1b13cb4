// SPDX-License-Identifier: Apache-2.0
// Elements of collectives in host memory: all types and operations of TW_TYPE_* and TW_REDUCE_*.
#pragma once
#include <thalweg/collectives.h>

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.hpp"

namespace thalweg::impl {

/// What is combined, and how.
struct Operation {
  uint32_t type = TW_TYPE_UINT8, op = TW_REDUCE_SUM;
  double scale = 0;                     // TW_REDUCE_SCALED_SUM
  tw_reduce_function reduce = nullptr;  // TW_REDUCE_USER
  void* arg = nullptr;
};

/// Bytes; 0: not one of TW_TYPE_*.
uint32_t element_size(uint32_t type);
const char* type_name(uint32_t type);
/// TW_ERR_INVALID: the operation is none, or none of that type.
Status check_operation(const Operation& what);
/// The operation that steps apply: of averages and scaled sums the sum.
uint32_t step_op(uint32_t op);
/// Is there a pass over the result once all is summed?
bool scales(const Operation& what);

/// Of a reduction by the caller's function: where operands are combined.
using ReduceRoom = std::vector<std::byte>;
/// to[i] = sources[0][i] op sources[1][i] ... `to` may be one of the sources. An error, with a text, is the caller's function's.
Status reduce_host(const Operation& what, std::byte* to, std::span<const uint64_t> sources, uint64_t count, ReduceRoom& room);
/// What the last pass multiplies floating-point elements by.
double scale_factor(const Operation& what, uint32_t size);
/// The last pass: of a sum over `size` ranks.
void scale_host(const Operation& what, std::byte* at, uint64_t count, uint32_t size);

}  // namespace thalweg::impl
