// SPDX-License-Identifier: Apache-2.0
// Recursive halving as in the first half of halving_doubling, after which each rank sends its range to the root: long messages.
// R. Rabenseifner, "Optimization of Collective Reduction Operations", 2004.
#include "collectives/algorithms.hpp"
#include "collectives/pieces.hpp"

namespace thalweg::impl {

void halving_gather_reduce(const Collective& c, Schedule* schedule) {
  Writer w(c, schedule);
  const Fold folded = fold(team_of(c));
  const bool root = c.rank == c.root;
  const auto range = [&](uint32_t i) { return halved(c.bytes(), w.element(), folded.team.size(), i).back(); };
  const Part to = root ? output(c) : folded.sits_out ? Part{} : w.scratch(c.bytes());
  if (folded.sits_out) {
    w.send(folded.partner, own(c));
  } else {
    halve(w, folded, own(c), to);
    if (!root) w.send(c.root, slice(to, range(folded.team.me)));
  }
  for (uint32_t i = 0; root && i < folded.team.size(); ++i) {
    if (folded.team.ranks[i] != c.rank) w.recv(folded.team.ranks[i], slice(to, range(i)));
  }
}

}  // namespace thalweg::impl
