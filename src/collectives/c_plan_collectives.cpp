// SPDX-License-Identifier: Apache-2.0
// C interface: collectives as steps of plans.
#include "collectives/calls.hpp"
#include "collectives/planned.hpp"
#include "core/c_checks.hpp"
#include "groups/c_checks.hpp"

using namespace thalweg::impl;

namespace {

constexpr tw_collective_options kDefaults = TW_COLLECTIVE_OPTIONS_INIT;

template <class Fill>
Status add(tw_plan* plan, tw_group* group, const tw_collective_options* given, uint32_t* step, Fill fill) {
  if (plan == nullptr) return fail(TW_ERR_INVALID, "the plan is NULL");
  if (Status s = check(group); is_error(s)) return s;
  const Enter enter(&group->worker);
  if (is_error(enter.status())) return enter.status();
  const Options<tw_collective_options> options(given, kDefaults);
  if (Status s = options.status(); is_error(s)) return s;
  Call call;
  if (Status s = fill(call); is_error(s)) return s;
  return add_call(*plan, *group, call, *options, step);
}

}  // namespace

extern "C" {

tw_status tw_plan_barrier(tw_plan* plan, tw_group* group, const tw_collective_options* options, uint32_t* step) {
  return add(plan, group, options, step, [&](Call& call) {
    call = barrier_call();
    return Status{TW_OK};
  });
}

tw_status tw_plan_broadcast(tw_plan* plan, tw_group* group, void* buffer, size_t count, uint32_t type, uint32_t root,
                            const tw_collective_options* options, uint32_t* step) {
  return add(plan, group, options, step, [&](Call& call) {
    call = broadcast_call(buffer, count, type, root);
    return Status{TW_OK};
  });
}

tw_status tw_plan_reduce_to_root(tw_plan* plan, tw_group* group, const void* send, void* recv, size_t count, uint32_t type,
                                 uint32_t op, uint32_t root, const tw_collective_options* options, uint32_t* step) {
  return add(plan, group, options, step, [&](Call& call) {
    call = reduce_call(*group, {send, recv, count, type, op}, root);
    return Status{TW_OK};
  });
}

tw_status tw_plan_allreduce(tw_plan* plan, tw_group* group, const void* send, void* recv, size_t count, uint32_t type,
                            uint32_t op, const tw_collective_options* options, uint32_t* step) {
  return add(plan, group, options, step, [&](Call& call) {
    call = allreduce_call({send, recv, count, type, op});
    return Status{TW_OK};
  });
}

tw_status tw_plan_reduce_scatter(tw_plan* plan, tw_group* group, const void* send, void* recv, size_t count, uint32_t type,
                                 uint32_t op, const tw_collective_options* options, uint32_t* step) {
  return add(plan, group, options, step, [&](Call& call) {
    call = reduce_scatter_call(*group, {send, recv, count, type, op});
    return Status{TW_OK};
  });
}

tw_status tw_plan_reduce_scatterv(tw_plan* plan, tw_group* group, const void* send, void* recv, const size_t* counts,
                                  uint32_t type, uint32_t op, const tw_collective_options* options, uint32_t* step) {
  return add(plan, group, options, step,
             [&](Call& call) { return reduce_scatterv_call(*group, {send, recv, 0, type, op}, counts, &call); });
}

tw_status tw_plan_allgather(tw_plan* plan, tw_group* group, const void* send, void* recv, size_t count, uint32_t type,
                            const tw_collective_options* options, uint32_t* step) {
  return add(plan, group, options, step, [&](Call& call) {
    call = allgather_call(*group, {send, recv, count, type});
    return Status{TW_OK};
  });
}

tw_status tw_plan_allgatherv(tw_plan* plan, tw_group* group, const void* send, void* recv, const size_t* counts,
                             const size_t* offsets, uint32_t type, const tw_collective_options* options, uint32_t* step) {
  return add(plan, group, options, step,
             [&](Call& call) { return allgatherv_call(*group, {send, recv, 0, type}, {counts, offsets}, &call); });
}

tw_status tw_plan_gather(tw_plan* plan, tw_group* group, const void* send, void* recv, size_t count, uint32_t type,
                         uint32_t root, const tw_collective_options* options, uint32_t* step) {
  return add(plan, group, options, step, [&](Call& call) {
    call = gather_call(*group, {send, recv, count, type}, root);
    return Status{TW_OK};
  });
}

tw_status tw_plan_gatherv(tw_plan* plan, tw_group* group, const void* send, size_t send_count, void* recv, const size_t* counts,
                          const size_t* offsets, uint32_t type, uint32_t root, const tw_collective_options* options,
                          uint32_t* step) {
  return add(plan, group, options, step,
             [&](Call& call) { return gatherv_call(*group, {send, recv, send_count, type}, {counts, offsets}, root, &call); });
}

tw_status tw_plan_scatter(tw_plan* plan, tw_group* group, const void* send, void* recv, size_t count, uint32_t type,
                          uint32_t root, const tw_collective_options* options, uint32_t* step) {
  return add(plan, group, options, step, [&](Call& call) {
    call = scatter_call(*group, {send, recv, count, type}, root);
    return Status{TW_OK};
  });
}

tw_status tw_plan_scatterv(tw_plan* plan, tw_group* group, const void* send, const size_t* counts, const size_t* offsets,
                           void* recv, size_t recv_count, uint32_t type, uint32_t root, const tw_collective_options* options,
                           uint32_t* step) {
  return add(plan, group, options, step,
             [&](Call& call) { return scatterv_call(*group, {send, recv, recv_count, type}, {counts, offsets}, root, &call); });
}

tw_status tw_plan_alltoall(tw_plan* plan, tw_group* group, const void* send, void* recv, size_t count, uint32_t type,
                           const tw_collective_options* options, uint32_t* step) {
  return add(plan, group, options, step, [&](Call& call) {
    call = alltoall_call(*group, {send, recv, count, type});
    return Status{TW_OK};
  });
}

tw_status tw_plan_alltoallv(tw_plan* plan, tw_group* group, const void* send, const size_t* send_counts,
                            const size_t* send_offsets, void* recv, const size_t* recv_counts, const size_t* recv_offsets,
                            uint32_t type, const tw_collective_options* options, uint32_t* step) {
  return add(plan, group, options, step, [&](Call& call) {
    return alltoallv_call(*group, {send, recv, 0, type}, {send_counts, send_offsets}, {recv_counts, recv_offsets}, &call);
  });
}

tw_status tw_plan_scan(tw_plan* plan, tw_group* group, const void* send, void* recv, size_t count, uint32_t type, uint32_t op,
                       const tw_collective_options* options, uint32_t* step) {
  return add(plan, group, options, step, [&](Call& call) {
    call = scan_call({send, recv, count, type, op}, false);
    return Status{TW_OK};
  });
}

tw_status tw_plan_exclusive_scan(tw_plan* plan, tw_group* group, const void* send, void* recv, size_t count, uint32_t type,
                                 uint32_t op, const tw_collective_options* options, uint32_t* step) {
  return add(plan, group, options, step, [&](Call& call) {
    call = scan_call({send, recv, count, type, op}, true);
    return Status{TW_OK};
  });
}

}  // extern "C"
