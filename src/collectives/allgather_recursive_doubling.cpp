// SPDX-License-Identifier: Apache-2.0
// In round k each rank exchanges all blocks that it has with the one whose number differs in bit k: log2 n rounds, for powers
// of two.
#include "collectives/algorithms.hpp"
#include "collectives/blocks.hpp"

namespace thalweg::impl {

void recursive_doubling_allgather(const Collective& c, Schedule* schedule) {
  Writer w(c, schedule);
  const Blocks blocks = output_blocks(c);
  const Part own = c.in_place ? blocks[c.rank] : Part{Where::input, 0, own_bytes(c)};
  for (uint32_t mask = 1; mask < c.size; mask *= 2) {
    const uint32_t peer = c.rank ^ mask, mine = c.rank & ~(mask - 1), theirs = peer & ~(mask - 1);
    w.recv(peer, among(blocks, theirs, theirs + mask));
    mask == 1 ? w.send(peer, own) : w.send(peer, among(blocks, mine, mine + mask));
    if (mask == 1) w.copy(blocks[c.rank], own);
  }
  if (c.size == 1) w.copy(blocks[c.rank], own);
}

}  // namespace thalweg::impl
