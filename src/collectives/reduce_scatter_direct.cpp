// SPDX-License-Identifier: Apache-2.0
// Each rank sends each other one its block, all at once, and combines what it gets by one reduction in rank order: one hop.
#include "collectives/algorithms.hpp"
#include "collectives/pieces.hpp"
#include "collectives/reduce_scatter_result.hpp"

namespace thalweg::impl {

void direct_reduce_scatter(Writer& w, const Team& team, const Blocks& from, const Part& to) {
  const uint32_t n = team.size(), me = team.me;
  if (n == 1) return w.reduce(to, {from[0]});
  Blocks inputs(n, from[me]);
  for (uint32_t i = 1; i < n; ++i) {
    Part& theirs = inputs[(me + n - i) % n];
    theirs = w.scratch(to.length);
    w.recv(team.rank(me + n - i), theirs);
    w.send(team.rank(me + i), from[(me + i) % n]);
  }
  w.reduce(to, inputs);
}

void direct_reduce_scatter_all(const Collective& c, Schedule* schedule) {
  Writer w(c, schedule);
  const Part result = result_of(w, c);
  direct_reduce_scatter(w, team_of(c), input_blocks(c), result);
  put_result(w, result);
}

}  // namespace thalweg::impl
