// SPDX-License-Identifier: Apache-2.0
// Which program of a plan each of its steps is of. A collective by kernels is one of its own (exchange_step.hpp), and a queue runs
// one program after the other.
#pragma once
#include <cstdint>
#include <vector>

#include "plans/plan_list.hpp"

namespace thalweg::impl {

/// (*part_of)[i]: of step i, in the order of runs; *parts: how many. A step goes into the first part that comes after all that it
/// names. Collectives keep the order in which they were added, which all ranks share. What has to wait for a peer, and comes neither
/// before nor after a collective by kernels, would hold it up, or be held up by it: TW_ERR_UNSUPPORTED.
Status part_plan(const PlanList& list, std::vector<uint32_t>* part_of, uint32_t* parts);

}  // namespace thalweg::impl
