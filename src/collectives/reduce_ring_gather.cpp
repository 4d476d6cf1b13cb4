// SPDX-License-Identifier: Apache-2.0
// A reduce-scatter by a ring, after which each rank sends its block to the root: the longest messages, operations of any order.
#include "collectives/algorithms.hpp"
#include "collectives/pieces.hpp"

namespace thalweg::impl {

void ring_gather_reduce(const Collective& c, Schedule* schedule) {
  Writer w(c, schedule);
  const Blocks to = cut(output(c), c.size, w.element());
  const Part sum = c.rank == c.root ? to[c.rank] : w.scratch(to[c.rank].length);
  ring_reduce_scatter(w, team_of(c), cut(own(c), c.size, w.element()), sum);
  if (c.rank != c.root) return w.send(c.root, sum);
  for (uint32_t i = 0; i < c.size; ++i) {
    if (i != c.rank) w.recv(i, to[i]);
  }
}

}  // namespace thalweg::impl
