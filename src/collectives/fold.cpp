// SPDX-License-Identifier: Apache-2.0
// Non-power-of-two numbers of ranks, after R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication
// Operations in MPICH", 2005.
#include <algorithm>

#include "collectives/pieces.hpp"

namespace thalweg::impl {

Fold fold(const Team& team) {
  const uint32_t n = team.size(), rest = n - power_of_two(n);
  Fold fold;
  for (uint32_t i = 0; i < rest; ++i) fold.team.ranks.push_back(team.ranks[2 * i + 1]);
  fold.team.ranks.insert(fold.team.ranks.end(), team.ranks.begin() + 2 * rest, team.ranks.end());
  fold.folded = team.me < 2 * rest;
  fold.sits_out = fold.folded && team.me % 2 == 0;
  fold.team.me = fold.folded ? team.me / 2 : team.me - rest;
  if (fold.folded) fold.partner = team.ranks[team.me ^ 1];
  return fold;
}

uint32_t ranks_before(const Team& team, uint32_t i) {
  const uint32_t rest = team.size() - power_of_two(team.size());
  return i + std::min(i, rest);
}

Part fold_in(Writer& w, const Fold& fold, const Part& from, const Part& to) {
  if (!fold.folded) return from;
  const Part theirs = w.scratch(from.length);
  w.recv(fold.partner, theirs);
  w.reduce(to, {theirs, from});
  return to;
}

}  // namespace thalweg::impl
