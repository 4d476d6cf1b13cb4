// SPDX-License-Identifier: Apache-2.0
// From a job to the function of collectives.h that a rank calls: at once, as a part of a plan, or on a queue.
#pragma once
#include "model/jobs.hpp"

namespace thalweg::model {

struct Target {
  tw_group* group = nullptr;
  const tw_collective_options& options;
  tw_request* request = nullptr;  // of a call at once; null: blocking, unless the options name a sink
  tw_plan* plan = nullptr;
  tw_queue* queue = nullptr;
};
tw_status call(const Target& target, const Job& job, uint32_t rank, const void* send, void* recv);

}  // namespace thalweg::model
