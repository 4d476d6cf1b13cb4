// SPDX-License-Identifier: Apache-2.0
// Each rank passes on the block that it received last: n - 1 rounds, neighbours only.
#include "collectives/algorithms.hpp"
#include "collectives/pieces.hpp"

namespace thalweg::impl {

void ring_allgather(Writer& w, const Team& team, const Blocks& blocks) {
  const uint32_t n = team.size(), me = team.me;
  for (uint32_t step = 0; step + 1 < n; ++step) {
    w.recv(team.rank(me + n - 1), blocks[(me + 2 * n - step - 1) % n]);
    w.send(team.rank(me + 1), blocks[(me + n - step) % n]);
  }
}

void ring_allgather_all(const Collective& c, Schedule* schedule) {
  Writer w(c, schedule);
  const Blocks blocks = output_blocks(c);
  if (!c.in_place) w.copy(blocks[c.rank], {Where::input, 0, own_bytes(c)});
  ring_allgather(w, team_of(c), blocks);
}

}  // namespace thalweg::impl
