// SPDX-License-Identifier: Apache-2.0
// Store and forward: a block that has to go a distance of i ranks goes there digit by digit of i, in base radix; blocks of the
// same digit travel as one message. About log_radix n rounds of radix - 1 messages that run at once, for short blocks: a larger
// radix sends each block fewer times. J. Bruck, C.-T. Ho, S. Kipnis, E. Upfal, D. Weathersby, "Efficient Algorithms for
// All-to-All Communications in Multiport Message-Passing Systems", 1997. Blocks are packed from where they came to, without a
// rotation.
#include "collectives/algorithms.hpp"
#include "collectives/blocks.hpp"

namespace thalweg::impl {

void bruck_alltoall(const Collective& c, uint32_t radix, Schedule* schedule) {
  Writer w(c, schedule, Writer::Cut::whole);
  const Team team = team_from(c, c.rank);
  const uint32_t n = c.size;
  const Blocks to = ordered(output_blocks(c), team);
  Blocks at = ordered(input_blocks(c), team);  // the i-th: what still has to go the digits of i that have not had their turn
  for (uint64_t digit = 1; digit < n; digit *= radix) {
    Blocks next = at;
    for (uint64_t value = 1; value < radix && value * digit < n; ++value) {
      Blocks moved;
      for (uint32_t i = 0; i < n; ++i) {
        if (i / digit % radix == value) moved.push_back(at[i]);
      }
      const Blocks received = w.scratch_like(moved);
      w.recv(team.rank(n - value * digit), received);
      w.send(team.rank(value * digit), moved);
      for (uint32_t i = 0, k = 0; i < n; ++i) {
        if (i / digit % radix == value) next[i] = received[k++];
      }
    }
    at = next;
  }
  for (uint32_t i = 0; i < n; ++i) w.copy(to[(n - i) % n], at[i]);
}

}  // namespace thalweg::impl
