// SPDX-License-Identifier: Apache-2.0
// A binomial tree towards the root: each rank sends its children's blocks behind its own, by one message; ceil(log2 n) rounds,
// for short blocks. R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH", 2005.
#include <algorithm>

#include "collectives/algorithms.hpp"
#include "collectives/blocks.hpp"

namespace thalweg::impl {

void binomial_gather(const Collective& c, Schedule* schedule) {
  Writer w(c, schedule, Writer::Cut::whole);
  const Team team = team_from(c, c.root);
  const uint32_t n = team.size(), me = team.me;
  const uint32_t end = me == 0 ? n : std::min(me + (me & (~me + 1)), n);  // of the own subtree
  const Part own{Where::input, 0, own_bytes(c)};
  Blocks blocks = ordered(output_blocks(c), team);
  if (me != 0 && end == me + 1) return w.send(team.rank(me & (me - 1)), own);
  if (me != 0) {
    const Blocks packed = w.scratch_like(among(blocks, me, end));
    std::ranges::copy(packed, blocks.begin() + me);
  }
  if (!in_place_here(c)) w.copy(blocks[me], own);
  for (uint32_t mask = 1; me + mask < end; mask *= 2) {
    w.recv(team.rank(me + mask), among(blocks, me + mask, std::min(me + 2 * mask, end)));
  }
  if (me != 0) w.send(team.rank(me & (me - 1)), among(blocks, me, end));
}

}  // namespace thalweg::impl
