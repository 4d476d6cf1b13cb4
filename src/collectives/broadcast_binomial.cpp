// SPDX-License-Identifier: Apache-2.0
// A binomial tree: who has the data sends it to ever nearer ranks, half the ranks that are left each time; ceil(log2 n) rounds.
// Long messages pass through it in chunks. R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication
// Operations in MPICH", 2005.
#include "collectives/algorithms.hpp"
#include "collectives/blocks.hpp"

namespace thalweg::impl {

void binomial_broadcast(const Collective& c, Schedule* schedule) {
  Writer w(c, schedule);
  const Team team = team_from(c, c.root);
  const Part data = c.rank == c.root ? own(c) : output(c);
  uint32_t mask = 1;
  while (mask < team.size() && (team.me & mask) == 0) mask *= 2;
  if (team.me != 0) w.recv(team.rank(team.me - mask), data);
  while ((mask /= 2) != 0) {
    if (team.me + mask < team.size()) w.send(team.rank(team.me + mask), data);
  }
  w.copy(output(c), data);
}

}  // namespace thalweg::impl
