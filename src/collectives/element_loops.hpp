// SPDX-License-Identifier: Apache-2.0
// Reductions of two to four operands in one pass, by the widest vectors of the processor: most reductions among few ranks, and those
// whose operands come from another core's cache. The bits are those of device/reduce.hpp.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace thalweg::impl {

/// false: not of this type, operation or number of operands. The destination may be one of the operands.
bool reduce_few(uint32_t type, uint32_t op, std::byte* to, std::span<const uint64_t> sources, uint64_t count);

/// Sums of the first float16 elements, of any number of operands: how many. 0: this processor does not convert them.
uint64_t reduce_halves(std::byte* to, std::span<const uint64_t> sources, uint64_t count);

}  // namespace thalweg::impl
