// SPDX-License-Identifier: Apache-2.0
// C interface: single collectives on a queue.
#include "collectives/calls.hpp"
#include "collectives/counted.hpp"
#include "collectives/planned.hpp"
#include "core/c_checks.hpp"
#include "groups/c_checks.hpp"
#include "plans/queue.hpp"
#include "plans/window.hpp"

using namespace thalweg::impl;

namespace {

constexpr tw_collective_options kDefaults = TW_COLLECTIVE_OPTIONS_INIT;

template <class Begin>
Status enter_on(tw_queue* queue, tw_group* group, const tw_collective_options* given, Begin begin) {
  if (Status s = check(queue); is_error(s)) return s;
  if (Status s = check(group); is_error(s)) return s;
  const Enter enter(&group->worker);
  if (is_error(enter.status())) return enter.status();
  const Options<tw_collective_options> options(given, kDefaults);
  if (Status s = options.status(); is_error(s)) return s;
  return begin(*options);
}

template <class Fill>
Status run_on(tw_queue* queue, tw_group* group, const tw_collective_options* given, Fill fill) {
  return enter_on(queue, group, given, [&](const tw_collective_options& options) {
    Call call;
    if (Status s = fill(call); is_error(s)) return s;
    return call_on(*queue, *group, call, options);
  });
}

}  // namespace

extern "C" {

tw_status tw_window_register_on(tw_window* window, tw_queue* queue) {
  if (Status s = check(window); is_error(s)) return s;
  if (Status s = check(queue); is_error(s)) return s;
  if (window->group == nullptr) return fail(TW_ERR_INVALID, "the window is not a group's: make it by tw_group_window");
  const Enter enter(window->worker);
  if (is_error(enter.status())) return enter.status();
  return register_window(*queue, *window);
}

tw_status tw_barrier_on(tw_queue* queue, tw_group* group, const tw_collective_options* options) {
  return run_on(queue, group, options, [&](Call& call) {
    call = barrier_call();
    return Status{TW_OK};
  });
}

tw_status tw_broadcast_on(tw_queue* queue, tw_group* group, void* buffer, size_t count, uint32_t type, uint32_t root,
                          const tw_collective_options* options) {
  return run_on(queue, group, options, [&](Call& call) {
    call = broadcast_call(buffer, count, type, root);
    return Status{TW_OK};
  });
}

tw_status tw_reduce_to_root_on(tw_queue* queue, tw_group* group, const void* send, void* recv, size_t count, uint32_t type,
                               uint32_t op, uint32_t root, const tw_collective_options* options) {
  return run_on(queue, group, options, [&](Call& call) {
    call = reduce_call(*group, {send, recv, count, type, op}, root);
    return Status{TW_OK};
  });
}

tw_status tw_allreduce_on(tw_queue* queue, tw_group* group, const void* send, void* recv, size_t count, uint32_t type,
                          uint32_t op, const tw_collective_options* options) {
  return run_on(queue, group, options, [&](Call& call) {
    call = allreduce_call({send, recv, count, type, op});
    return Status{TW_OK};
  });
}

tw_status tw_reduce_scatter_on(tw_queue* queue, tw_group* group, const void* send, void* recv, size_t count, uint32_t type,
                               uint32_t op, const tw_collective_options* options) {
  return run_on(queue, group, options, [&](Call& call) {
    call = reduce_scatter_call(*group, {send, recv, count, type, op});
    return Status{TW_OK};
  });
}

tw_status tw_reduce_scatterv_on(tw_queue* queue, tw_group* group, const void* send, void* recv, const size_t* counts,
                                uint32_t type, uint32_t op, const tw_collective_options* options) {
  return run_on(queue, group, options,
                [&](Call& call) { return reduce_scatterv_call(*group, {send, recv, 0, type, op}, counts, &call); });
}

tw_status tw_allgather_on(tw_queue* queue, tw_group* group, const void* send, void* recv, size_t count, uint32_t type,
                          const tw_collective_options* options) {
  return run_on(queue, group, options, [&](Call& call) {
    call = allgather_call(*group, {send, recv, count, type});
    return Status{TW_OK};
  });
}

tw_status tw_allgatherv_on(tw_queue* queue, tw_group* group, const void* send, void* recv, const size_t* counts,
                           const size_t* offsets, uint32_t type, const tw_collective_options* options) {
  return run_on(queue, group, options,
                [&](Call& call) { return allgatherv_call(*group, {send, recv, 0, type}, {counts, offsets}, &call); });
}

tw_status tw_gather_on(tw_queue* queue, tw_group* group, const void* send, void* recv, size_t count, uint32_t type,
                       uint32_t root, const tw_collective_options* options) {
  return run_on(queue, group, options, [&](Call& call) {
    call = gather_call(*group, {send, recv, count, type}, root);
    return Status{TW_OK};
  });
}

tw_status tw_gatherv_on(tw_queue* queue, tw_group* group, const void* send, size_t send_count, void* recv, const size_t* counts,
                        const size_t* offsets, uint32_t type, uint32_t root, const tw_collective_options* options) {
  return run_on(queue, group, options, [&](Call& call) {
    return gatherv_call(*group, {send, recv, send_count, type}, {counts, offsets}, root, &call);
  });
}

tw_status tw_scatter_on(tw_queue* queue, tw_group* group, const void* send, void* recv, size_t count, uint32_t type,
                        uint32_t root, const tw_collective_options* options) {
  return run_on(queue, group, options, [&](Call& call) {
    call = scatter_call(*group, {send, recv, count, type}, root);
    return Status{TW_OK};
  });
}

tw_status tw_scatterv_on(tw_queue* queue, tw_group* group, const void* send, const size_t* counts, const size_t* offsets,
                         void* recv, size_t recv_count, uint32_t type, uint32_t root, const tw_collective_options* options) {
  return run_on(queue, group, options, [&](Call& call) {
    return scatterv_call(*group, {send, recv, recv_count, type}, {counts, offsets}, root, &call);
  });
}

tw_status tw_alltoall_on(tw_queue* queue, tw_group* group, const void* send, void* recv, size_t count, uint32_t type,
                         const tw_collective_options* options) {
  return run_on(queue, group, options, [&](Call& call) {
    call = alltoall_call(*group, {send, recv, count, type});
    return Status{TW_OK};
  });
}

tw_status tw_alltoallv_on(tw_queue* queue, tw_group* group, const void* send, const size_t* send_counts,
                          const size_t* send_offsets, void* recv, const size_t* recv_counts, const size_t* recv_offsets,
                          uint32_t type, const tw_collective_options* options) {
  return run_on(queue, group, options, [&](Call& call) {
    return alltoallv_call(*group, {send, recv, 0, type}, {send_counts, send_offsets}, {recv_counts, recv_offsets}, &call);
  });
}

tw_status tw_scan_on(tw_queue* queue, tw_group* group, const void* send, void* recv, size_t count, uint32_t type, uint32_t op,
                     const tw_collective_options* options) {
  return run_on(queue, group, options, [&](Call& call) {
    call = scan_call({send, recv, count, type, op}, false);
    return Status{TW_OK};
  });
}

tw_status tw_exclusive_scan_on(tw_queue* queue, tw_group* group, const void* send, void* recv, size_t count, uint32_t type,
                               uint32_t op, const tw_collective_options* options) {
  return run_on(queue, group, options, [&](Call& call) {
    call = scan_call({send, recv, count, type, op}, true);
    return Status{TW_OK};
  });
}

tw_status tw_alltoallv_counted_on(tw_queue* queue, tw_group* group, const void* send, const uint64_t* send_counts,
                                  const uint64_t* send_offsets, size_t send_capacity, void* recv, uint64_t* recv_counts,
                                  const uint64_t* recv_offsets, size_t recv_capacity, size_t row_bytes,
                                  const tw_collective_options* options) {
  const CountedCall call{send,        send_counts,  send_offsets,  send_capacity, recv,
                         recv_counts, recv_offsets, recv_capacity, row_bytes};
  return enter_on(queue, group, options,
                  [&](const tw_collective_options& given) { return counted_on(*queue, *group, call, given); });
}

}  // extern "C"
