// SPDX-License-Identifier: Apache-2.0
// In round k each rank sends all blocks that it has to the one 2^k before it, up to n in all: ceil(log2 n) rounds for any n.
// J. Bruck, C.-T. Ho, S. Kipnis, E. Upfal, D. Weathersby, "Efficient Algorithms for All-to-All Communications in Multiport
// Message-Passing Systems", 1997. Blocks go to their places at once, and only those around the end of the buffer by way of
// scratch memory.
#include <algorithm>

#include "collectives/algorithms.hpp"
#include "collectives/blocks.hpp"

namespace thalweg::impl {

void bruck_allgather(const Collective& c, Schedule* schedule) {
  Writer w(c, schedule);
  const Team team = team_from(c, c.rank);
  const Blocks blocks = ordered(output_blocks(c), team);
  if (!c.in_place) w.copy(blocks[0], {Where::input, 0, own_bytes(c)});
  for (uint32_t have = 1; have < c.size; have *= 2) {
    const uint32_t more = std::min(have, c.size - have);
    w.recv(team.rank(have), among(blocks, have, have + more));
    w.send(team.rank(c.size - have), among(blocks, 0, more));
  }
}

}  // namespace thalweg::impl
