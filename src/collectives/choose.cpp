// SPDX-License-Identifier: Apache-2.0
#include "collectives/choose.hpp"

#include <algorithm>

namespace thalweg::impl {
namespace {

/// A later one of the table, which does more for the same, has to be that much faster: predictions are not that good.
constexpr double kFaster = 0.97;

/// Where kernels do it, what takes steps of a plan is not looked at. Repeatable reductions are not the kernels'.
bool kernels_do_it(const Algorithm& algorithm, const Collective& c) {
  const auto is_kernel = [&](const Algorithm& each) { return each.kernels != Kernels::none && each.applies(c); };
  return algorithm.kernels == Kernels::none && std::ranges::any_of(algorithms_of(c.kind), is_kernel);
}

}  // namespace

std::vector<Candidate> candidates(const Collective& c, const CollectiveCosts& measured, bool in_steps) {
  const CollectiveCosts costs = c.repeatable ? CollectiveCosts{} : measured;
  std::vector<Candidate> all;
  size_t best = SIZE_MAX;
  for (const Algorithm& algorithm : algorithms_of(c.kind)) {
    Candidate& each = all.emplace_back(Candidate{&algorithm, algorithm.why_not(c)});
    if (each.why_not != nullptr) continue;
    const bool left_out = kernels_do_it(algorithm, c);
    if (left_out) each.why_not = "one kernel does it in fewer hops";
    if (!left_out || in_steps) each.ns = predicted_ns(algorithm, c, costs);
    if (left_out) continue;
    if (best == SIZE_MAX || each.ns < kFaster * all[best].ns) best = all.size() - 1;
  }
  all[best].chosen = true;  // one of each kind has no condition
  return all;
}

const Algorithm* choose(const Collective& collective, const CollectiveCosts& costs) {
  for (const Candidate& each : candidates(collective, costs)) {
    if (each.chosen) return each.algorithm;
  }
  return nullptr;
}

}  // namespace thalweg::impl
