// SPDX-License-Identifier: Apache-2.0
// Collectives as steps of plans: a schedule becomes sends and receives on channels of the group's own, copies and reductions.
#pragma once
#include "collectives/call.hpp"
#include "plans/plan.hpp"

namespace thalweg::impl {

/// Adds the rank's part to the plan; *step, if not null, is the number of a step that ends when all of it is over. After an error
/// the plan is as it was.
Status add_call(tw_plan& plan, tw_group& group, Call& call, const tw_collective_options& options, uint32_t* step);
/// Enqueues a run of the plan that the queue keeps for this call; made and prepared when there is none.
Status call_on(tw_queue& queue, tw_group& group, Call& call, const tw_collective_options& options);

/// Without the algorithm "kernel", which leaves the choice among kernels, or steps, to the costs.
tw_collective_options without_any(tw_collective_options options);
/// In a plan kernels are named: they have an order among all of the group, and plans otherwise have none.
bool names_kernels(CollectiveKind kind, const tw_collective_options& options);

/// The thread's turn to enqueue collectives of the group: TW_ERR_THREAD where another thread has it. Ends by unlock().
Status enter(tw_group& group, Collectives** out);
/// Before the group's first collective on a queue: whether these are of devices that reach each other. name: of the call.
Status find_device(tw_queue& queue, Collectives& all, const char* name);

}  // namespace thalweg::impl
