// SPDX-License-Identifier: Apache-2.0
// A chain from the root on, through which chunks follow each other: each rank receives and sends all bytes once, whatever the
// number of ranks; as Open MPI's pipeline.
#include "collectives/algorithms.hpp"
#include "collectives/blocks.hpp"

namespace thalweg::impl {

void chain_broadcast(const Collective& c, Schedule* schedule) {
  Writer w(c, schedule);
  const Team team = team_from(c, c.root);
  const Part data = c.rank == c.root ? own(c) : output(c);
  if (team.me != 0) w.recv(team.rank(team.me - 1), data);
  if (team.me + 1 < team.size()) w.send(team.rank(team.me + 1), data);
  w.copy(output(c), data);
}

}  // namespace thalweg::impl
