// SPDX-License-Identifier: Apache-2.0
// Each block passes through all ranks, from the one behind its own on, and each adds its input: n - 1 rounds of a block. Two
// slots are received into by turns, so a chunk is received while another one is added, and a third one sent.
#include "collectives/algorithms.hpp"
#include "collectives/pieces.hpp"
#include "collectives/reduce_scatter_result.hpp"

namespace thalweg::impl {

void ring_reduce_scatter(Writer& w, const Team& team, const Blocks& from, const Part& to) {
  const uint32_t n = team.size(), me = team.me;
  if (n == 1) return w.reduce(to, {from[0]});
  const Part slots[2] = {w.scratch(longest(from)), w.scratch(n > 2 ? longest(from) : 0)};
  Part sum = from[(me + n - 1) % n];
  for (uint32_t step = 0; step + 1 < n; ++step) {
    const Part& input = from[(me + 2 * n - step - 2) % n];
    const Part theirs = slice(slots[step % 2], 0, input.length);
    w.recv(team.rank(me + n - 1), theirs);
    w.send(team.rank(me + 1), sum);
    sum = step + 2 == n ? to : theirs;
    w.reduce(sum, {theirs, input});
  }
}

void ring_reduce_scatter_all(const Collective& c, Schedule* schedule) {
  Writer w(c, schedule);
  const Part result = result_of(w, c);
  ring_reduce_scatter(w, team_of(c), input_blocks(c), result);
  put_result(w, result);
}

}  // namespace thalweg::impl
