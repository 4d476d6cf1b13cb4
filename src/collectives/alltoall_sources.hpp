// SPDX-License-Identifier: Apache-2.0
// Blocks that an alltoall sends, in an order that lets them be received in place.
#pragma once
#include "collectives/blocks.hpp"

namespace thalweg::impl {

/// Of other ranks: in place, copies in scratch memory, as what is received replaces the blocks. The own one: copied to its
/// place.
inline Blocks alltoall_sources(Writer& w, const Collective& c, const Blocks& to) {
  Blocks from = input_blocks(c);
  if (!c.in_place) {
    w.copy(to[c.rank], from[c.rank]);
    return from;
  }
  from[c.rank].length = 0;
  const Blocks copies = w.scratch_like(from);
  for (uint32_t i = 0; i < c.size; ++i) w.copy(copies[i], from[i]);
  return copies;
}

}  // namespace thalweg::impl
