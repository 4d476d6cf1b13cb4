// SPDX-License-Identifier: Apache-2.0
// A binomial scatter of blocks, then an allgather of them by a ring, without what a rank has already: long messages in 2 bytes
// sent for each of the message. M. Barnett, D. Payne, R. van de Geijn, J. Watts, "Broadcasting on Meshes with Worm-Hole
// Routing", 1996.
#include <algorithm>

#include "collectives/algorithms.hpp"
#include "collectives/blocks.hpp"

namespace thalweg::impl {
namespace {

/// Blocks from its own on that the i-th rank gets by the scatter.
uint32_t scattered_to(uint32_t i, uint32_t n) { return i == 0 ? n : std::min(i & (~i + 1), n - i); }

}  // namespace

void scatter_allgather_broadcast(const Collective& c, Schedule* schedule) {
  Writer w(c, schedule);
  const Team team = team_from(c, c.root);
  const uint32_t n = team.size(), me = team.me, mine = scattered_to(me, n);
  const Blocks blocks = cut(me == 0 ? own(c) : output(c), n, w.element());
  uint32_t mask = power_of_two(n);
  if (me != 0) {
    mask = me & (~me + 1);
    w.recv(team.rank(me - mask), among(blocks, me, me + mine));
    mask /= 2;
  }
  for (; mask != 0; mask /= 2) {
    const uint32_t to = me + mask;
    if (to < n) w.send(team.rank(to), among(blocks, to, to + scattered_to(to, n)));
  }
  const uint32_t next = (me + 1) % n, has = scattered_to(next, n);
  for (uint32_t step = 0; step + 1 < n; ++step) {
    const uint32_t sent = (me + n - step) % n, received = (sent + n - 1) % n;
    if (received < me || received >= me + mine) w.recv(team.rank(me + n - 1), blocks[received]);
    if (sent < next || sent >= next + has) w.send(team.rank(next), blocks[sent]);
  }
  w.copy(output(c), me == 0 ? own(c) : output(c));
}

}  // namespace thalweg::impl
