// SPDX-License-Identifier: Apache-2.0
// The root sends to all, at once.
#include "collectives/algorithms.hpp"
#include "collectives/blocks.hpp"

namespace thalweg::impl {

void linear_scatter(const Collective& c, Schedule* schedule) {
  Writer w(c, schedule, Writer::Cut::whole);
  const Part own{Where::output, 0, own_bytes(c)};
  if (c.rank != c.root) return w.recv(c.root, own);
  const Blocks blocks = input_blocks(c);
  for (uint32_t i = 1; i < c.size; ++i) w.send((c.root + i) % c.size, blocks[(c.root + i) % c.size]);
  if (!c.in_place) w.copy(own, blocks[c.rank]);
}

}  // namespace thalweg::impl
