// SPDX-License-Identifier: Apache-2.0
// The root sends to each: the fewest hops, for few ranks.
#include "collectives/algorithms.hpp"
#include "collectives/blocks.hpp"

namespace thalweg::impl {

void linear_broadcast(const Collective& c, Schedule* schedule) {
  Writer w(c, schedule, Writer::Cut::whole);
  if (c.rank != c.root) return w.recv(c.root, output(c));
  const Team team = team_from(c, c.root);
  for (uint32_t i = 1; i < c.size; ++i) w.send(team.rank(i), own(c));
  w.copy(output(c), own(c));
}

}  // namespace thalweg::impl
