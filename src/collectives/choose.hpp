// SPDX-License-Identifier: Apache-2.0
// Which algorithm is the fastest, by what each is predicted to take.
#pragma once
#include "collectives/estimate.hpp"

namespace thalweg::impl {

struct Candidate {
  const Algorithm* algorithm;
  const char* why_not = nullptr;  // it cannot do this
  double ns = 0;                  // predicted
  bool chosen = false;
};
/// All of the kind, with one chosen. A repeatable collective's are predicted by the built-in costs, since a measurement must
/// not change its order. in_steps: predicts also what takes steps where kernels do it, which is not chosen there.
std::vector<Candidate> candidates(const Collective& collective, const CollectiveCosts& costs, bool in_steps = false);

/// The same on all ranks, if the costs are. Takes as long as to write the schedules of up to a few hundred ranks of all candidates: what
/// calls it often keeps its answers.
const Algorithm* choose(const Collective& collective, const CollectiveCosts& costs);

}  // namespace thalweg::impl
