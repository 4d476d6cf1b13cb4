// SPDX-License-Identifier: Apache-2.0
// Each rank sends its input to all others, and combines all by one reduction in rank order: one hop, for the shortest messages.
#include "collectives/algorithms.hpp"
#include "collectives/pieces.hpp"

namespace thalweg::impl {

void one_shot(Writer& w, const Team& team, const Part& from, const Part& to) {
  if (team.size() == 1) return w.reduce(to, {from});
  Blocks inputs(team.size(), from);
  for (uint32_t i = 1; i < team.size(); ++i) {
    Part& theirs = inputs[(team.me + team.size() - i) % team.size()];
    theirs = w.scratch(from.length);
    w.recv(team.rank(team.me + team.size() - i), theirs);
    w.send(team.rank(team.me + i), from);
  }
  w.reduce(to, inputs);
}

void one_shot_allreduce(const Collective& c, Schedule* schedule) {
  Writer w(c, schedule);
  one_shot(w, team_of(c), own(c), output(c));
}

}  // namespace thalweg::impl
