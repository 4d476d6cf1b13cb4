// SPDX-License-Identifier: Apache-2.0
// From the arguments of C functions to calls: the same for those that run at once, for plans and for queues. The group is checked.
#pragma once
#include "collectives/call.hpp"

namespace thalweg::impl {

/// Of a reduction: what is combined.
struct Reduces {
  const void* send;
  void* recv;
  size_t count;
  uint32_t type, op;
};
/// Of an exchange: what is sent and received; count as in the C functions.
struct Exchanges {
  const void* send;
  void* recv;
  size_t count;
  uint32_t type;
};
struct GivenCounts {
  const size_t* counts;
  const size_t* offsets;
};

Call barrier_call();
Call broadcast_call(void* buffer, size_t count, uint32_t type, uint32_t root);
Call allreduce_call(const Reduces& what);
Call reduce_call(const tw_group& group, const Reduces& what, uint32_t root);
Call reduce_scatter_call(const tw_group& group, const Reduces& what);
/// what.count is not used.
Status reduce_scatterv_call(const tw_group& group, const Reduces& what, const size_t* counts, Call* out);
Call scan_call(const Reduces& what, bool exclusive);
Call allgather_call(const tw_group& group, const Exchanges& what);
Status allgatherv_call(const tw_group& group, const Exchanges& what, const GivenCounts& received, Call* out);
Call gather_call(const tw_group& group, const Exchanges& what, uint32_t root);
Status gatherv_call(const tw_group& group, const Exchanges& what, const GivenCounts& received, uint32_t root, Call* out);
Call scatter_call(const tw_group& group, const Exchanges& what, uint32_t root);
Status scatterv_call(const tw_group& group, const Exchanges& what, const GivenCounts& sent, uint32_t root, Call* out);
Call alltoall_call(const tw_group& group, const Exchanges& what);
Status alltoallv_call(const tw_group& group, const Exchanges& what, const GivenCounts& sent, const GivenCounts& received,
                      Call* out);

}  // namespace thalweg::impl
