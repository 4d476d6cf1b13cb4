// SPDX-License-Identifier: Apache-2.0
// Collectives as text: a schedule, and the algorithms among which one was chosen.
#pragma once
#include "collectives/choose.hpp"

namespace thalweg::impl {

/// A line for each step:
///   3 reduce output[0, 64) = scratch[0, 64), input[0, 64) after 0 2
std::string schedule_text(const Schedule& schedule);
/// A line for each algorithm: its predicted time in microseconds, or why it cannot do this; the one that is taken is marked by *.
/// taken null: what choose() gives.
std::string candidates_text(const Collective& collective, const CollectiveCosts& costs, const Algorithm* taken = nullptr);

}  // namespace thalweg::impl
