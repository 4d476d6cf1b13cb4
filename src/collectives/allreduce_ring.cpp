// SPDX-License-Identifier: Apache-2.0
// A reduce-scatter by a ring, then an allgather by it: 2 (n - 1) rounds of a block, neighbours only, and 2 bytes sent for each
// of the message. Two rings: each half of the message in another direction, where a link carries both at full speed. P.
// Patarasuk, X. Yuan, "Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations", 2009.
#include "collectives/algorithms.hpp"
#include "collectives/pieces.hpp"

namespace thalweg::impl {

void ring(Writer& w, const Team& team, const Part& from, const Part& to) {
  const Blocks blocks = cut(to, team.size(), w.element());
  ring_reduce_scatter(w, team, cut(from, team.size(), w.element()), blocks[team.me]);
  ring_allgather(w, team, blocks);
}

void ring_allreduce(const Collective& c, Schedule* schedule) {
  Writer w(c, schedule);
  ring(w, team_of(c), own(c), output(c));
}

void two_rings_allreduce(const Collective& c, Schedule* schedule) {
  Writer w(c, schedule);
  const Blocks from = cut(own(c), 2, w.element()), to = cut(output(c), 2, w.element());
  ring(w, team_of(c), from[0], to[0]);
  ring(w, backwards(team_of(c)), from[1], to[1]);
}

}  // namespace thalweg::impl
