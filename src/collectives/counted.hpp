// SPDX-License-Identifier: Apache-2.0
// An alltoallv whose counts lie in memory that the queue's device reads (devices/program/exchange_counted_run.hpp).
#pragma once
#include <thalweg/collectives.h>

#include "base/status.hpp"

namespace thalweg::impl {

/// As the C function's arguments: counts, offsets and capacities are rows.
struct CountedCall {
  const void* send;
  const uint64_t* send_counts;
  const uint64_t* send_offsets;
  size_t send_capacity;
  void* recv;
  uint64_t* recv_counts;
  const uint64_t* recv_offsets;
  size_t recv_capacity, row_bytes;
};

/// Enqueues a run of the plan that the queue keeps for this call; made and prepared when there is none.
Status counted_on(tw_queue& queue, tw_group& group, const CountedCall& call, const tw_collective_options& options);

}  // namespace thalweg::impl
