// SPDX-License-Identifier: Apache-2.0
// In round k each rank exchanges its sum with the one whose number differs in bit k: log2 n rounds of all bytes, for short
// messages. The lower rank's sum comes first on both sides, so the order is that of the ranks, and all get the same bits. R.
// Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH", 2005.
#include "collectives/algorithms.hpp"
#include "collectives/pieces.hpp"

namespace thalweg::impl {

void recursive_doubling(Writer& w, const Team& all, const Part& from, const Part& to) {
  if (all.size() == 1) return w.reduce(to, {from});
  const Fold folded = fold(all);
  if (folded.sits_out) {
    w.send(folded.partner, from);
    return w.recv(folded.partner, to);
  }
  const Team& team = folded.team;
  Part sum = fold_in(w, folded, from, to);
  const Part slots[2] = {w.scratch(to.length), w.scratch(to.length)};
  uint32_t round = 0;
  for (uint32_t mask = 1; mask < team.size(); mask *= 2, ++round) {
    const uint32_t peer = team.rank(team.me ^ mask);
    const Part& theirs = slots[round % 2];
    w.recv(peer, theirs);
    w.send(peer, sum);
    reduce_in_order(w, to, sum, theirs, (team.me & mask) != 0);
    sum = to;
  }
  if (folded.folded) w.send(folded.partner, sum);
}

void recursive_doubling_allreduce(const Collective& c, Schedule* schedule) {
  Writer w(c, schedule);
  recursive_doubling(w, team_of(c), own(c), output(c));
}

}  // namespace thalweg::impl
