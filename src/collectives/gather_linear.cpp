// SPDX-License-Identifier: Apache-2.0
// All send to the root, at once.
#include "collectives/algorithms.hpp"
#include "collectives/blocks.hpp"

namespace thalweg::impl {

void linear_gather(const Collective& c, Schedule* schedule) {
  Writer w(c, schedule, Writer::Cut::whole);
  const Part own{Where::input, 0, own_bytes(c)};
  if (c.rank != c.root) return w.send(c.root, own);
  const Blocks blocks = output_blocks(c);
  for (uint32_t i = 1; i < c.size; ++i) w.recv((c.root + i) % c.size, blocks[(c.root + i) % c.size]);
  if (!c.in_place) w.copy(blocks[c.rank], own);
}

}  // namespace thalweg::impl
