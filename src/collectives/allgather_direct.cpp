// SPDX-License-Identifier: Apache-2.0
// Each rank sends its block to all others, at once: one hop.
#include "collectives/algorithms.hpp"
#include "collectives/pieces.hpp"

namespace thalweg::impl {

void direct_allgather(Writer& w, const Team& team, const Blocks& blocks, const Part& own) {
  const uint32_t n = team.size(), me = team.me;
  for (uint32_t i = 1; i < n; ++i) {
    w.recv(team.rank(me + n - i), blocks[(me + n - i) % n]);
    w.send(team.rank(me + i), own);
  }
  w.copy(blocks[me], own);
}

void direct_allgather_all(const Collective& c, Schedule* schedule) {
  Writer w(c, schedule, Writer::Cut::whole);
  const Blocks blocks = output_blocks(c);
  direct_allgather(w, team_of(c), blocks, c.in_place ? blocks[c.rank] : Part{Where::input, 0, own_bytes(c)});
}

}  // namespace thalweg::impl
