// SPDX-License-Identifier: Apache-2.0
// A binomial tree towards the root, in which each rank combines what its children send with its own input; ceil(log2 n) rounds.
// Each sum is of neighbours; where that order counts the tree begins at rank 0, which sends the sum to the root. R. Thakur, R.
// Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH", 2005.
#include "collectives/algorithms.hpp"
#include "collectives/blocks.hpp"

namespace thalweg::impl {

void binomial_reduce(const Collective& c, Schedule* schedule) {
  Writer w(c, schedule);
  const bool rank_order = !c.commutative || c.repeatable;
  const uint32_t top = rank_order ? 0 : c.root;
  const Team team = team_from(c, top);
  Part sum = own(c), to;
  for (uint32_t mask = 1; mask < team.size(); mask *= 2) {
    if ((team.me & mask) != 0) {
      w.send(team.rank(team.me - mask), sum);
      break;
    }
    if (team.me + mask >= team.size()) continue;
    if (to.length == 0) to = c.rank == c.root ? output(c) : w.scratch(c.bytes());
    const Part theirs = w.scratch(c.bytes());
    w.recv(team.rank(team.me + mask), theirs);
    w.reduce(to, {sum, theirs});
    sum = to;
  }
  if (c.rank == top && top != c.root) w.send(c.root, sum);
  if (c.rank == c.root && top != c.root) w.recv(top, output(c));
  if (c.size == 1) w.reduce(output(c), {sum});
}

}  // namespace thalweg::impl
