// SPDX-License-Identifier: Apache-2.0
// Where a reduce-scatter puts its result: in place the output still has inputs there, which other steps read.
#pragma once
#include "collectives/blocks.hpp"

namespace thalweg::impl {

inline Part result_of(Writer& w, const Collective& c) {
  const uint64_t bytes = own_bytes(c);
  return c.in_place ? w.scratch(bytes) : Part{Where::output, 0, bytes};
}
inline void put_result(Writer& w, const Part& result) { w.copy({Where::output, 0, result.length}, result); }

}  // namespace thalweg::impl
