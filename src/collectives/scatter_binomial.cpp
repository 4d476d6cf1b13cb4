// SPDX-License-Identifier: Apache-2.0
// A binomial tree from the root: each rank gets its children's blocks behind its own, by one message; ceil(log2 n) rounds, for
// short blocks. R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH", 2005.
#include <algorithm>

#include "collectives/algorithms.hpp"
#include "collectives/blocks.hpp"

namespace thalweg::impl {

void binomial_scatter(const Collective& c, Schedule* schedule) {
  Writer w(c, schedule, Writer::Cut::whole);
  const Team team = team_from(c, c.root);
  const uint32_t n = team.size(), me = team.me, low = me == 0 ? 2 * power_of_two(n) : me & (~me + 1);
  const uint32_t end = std::min(me + low, n);  // of the own subtree
  const Part own{Where::output, 0, own_bytes(c)};
  Blocks blocks = ordered(input_blocks(c), team);
  if (me != 0 && end == me + 1) return w.recv(team.rank(me - low), own);
  if (me != 0) {
    const Blocks packed = w.scratch_like(among(blocks, me, end));
    std::ranges::copy(packed, blocks.begin() + me);
    w.recv(team.rank(me - low), among(blocks, me, end));
  }
  for (uint32_t mask = low / 2; mask != 0; mask /= 2) {
    if (me + mask < end) w.send(team.rank(me + mask), among(blocks, me + mask, std::min(me + 2 * mask, end)));
  }
  if (!in_place_here(c)) w.copy(own, blocks[me]);
}

}  // namespace thalweg::impl
