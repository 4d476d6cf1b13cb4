// SPDX-License-Identifier: Apache-2.0
// C interface: collectives. Each says what it is (calls.hpp); call.cpp does the rest.
#include <type_traits>

#include "collectives/calls.hpp"
#include "core/c_checks.hpp"
#include "groups/c_checks.hpp"

using namespace thalweg::impl;

namespace {

constexpr tw_collective_options kDefaults = TW_COLLECTIVE_OPTIONS_INIT;

/// make: returns the call, or fills one in, which may be refused.
template <class Make>
Status run(tw_group* group, const tw_collective_options* given, tw_request* request, Make make) {
  if (Status s = check(group); is_error(s)) return s;
  const Enter enter(&group->worker);
  if (is_error(enter.status())) return enter.status();
  const Options<tw_collective_options> options(given, kDefaults);
  if (Status s = options.status(); is_error(s)) return s;
  if constexpr (std::is_invocable_r_v<Call, Make>) {
    Call call = make();
    return run_call(*group, call, *options, request);
  } else {
    Call call;
    if (Status s = make(call); is_error(s)) return s;
    return run_call(*group, call, *options, request);
  }
}

}  // namespace

extern "C" {

tw_status tw_barrier(tw_group* group, const tw_collective_options* options, tw_request* request) {
  return run(group, options, request, [&] { return barrier_call(); });
}

tw_status tw_broadcast(tw_group* group, void* buffer, size_t count, uint32_t type, uint32_t root,
                       const tw_collective_options* options, tw_request* request) {
  return run(group, options, request, [&] { return broadcast_call(buffer, count, type, root); });
}

tw_status tw_reduce(tw_group* group, const void* send, void* recv, size_t count, uint32_t type, uint32_t op, uint32_t root,
                    const tw_collective_options* options, tw_request* request) {
  return run(group, options, request, [&] { return reduce_call(*group, {send, recv, count, type, op}, root); });
}

tw_status tw_allreduce(tw_group* group, const void* send, void* recv, size_t count, uint32_t type, uint32_t op,
                       const tw_collective_options* options, tw_request* request) {
  return run(group, options, request, [&] { return allreduce_call({send, recv, count, type, op}); });
}

tw_status tw_reduce_scatter(tw_group* group, const void* send, void* recv, size_t count, uint32_t type, uint32_t op,
                            const tw_collective_options* options, tw_request* request) {
  return run(group, options, request, [&] { return reduce_scatter_call(*group, {send, recv, count, type, op}); });
}

tw_status tw_reduce_scatterv(tw_group* group, const void* send, void* recv, const size_t* counts, uint32_t type, uint32_t op,
                             const tw_collective_options* options, tw_request* request) {
  return run(group, options, request,
             [&](Call& call) { return reduce_scatterv_call(*group, {send, recv, 0, type, op}, counts, &call); });
}

tw_status tw_allgather(tw_group* group, const void* send, void* recv, size_t count, uint32_t type,
                       const tw_collective_options* options, tw_request* request) {
  return run(group, options, request, [&] { return allgather_call(*group, {send, recv, count, type}); });
}

tw_status tw_allgatherv(tw_group* group, const void* send, void* recv, const size_t* counts, const size_t* offsets,
                        uint32_t type, const tw_collective_options* options, tw_request* request) {
  return run(group, options, request,
             [&](Call& call) { return allgatherv_call(*group, {send, recv, 0, type}, {counts, offsets}, &call); });
}

tw_status tw_gather(tw_group* group, const void* send, void* recv, size_t count, uint32_t type, uint32_t root,
                    const tw_collective_options* options, tw_request* request) {
  return run(group, options, request, [&] { return gather_call(*group, {send, recv, count, type}, root); });
}

tw_status tw_gatherv(tw_group* group, const void* send, size_t send_count, void* recv, const size_t* counts,
                     const size_t* offsets, uint32_t type, uint32_t root, const tw_collective_options* options,
                     tw_request* request) {
  return run(group, options, request,
             [&](Call& call) { return gatherv_call(*group, {send, recv, send_count, type}, {counts, offsets}, root, &call); });
}

tw_status tw_scatter(tw_group* group, const void* send, void* recv, size_t count, uint32_t type, uint32_t root,
                     const tw_collective_options* options, tw_request* request) {
  return run(group, options, request, [&] { return scatter_call(*group, {send, recv, count, type}, root); });
}

tw_status tw_scatterv(tw_group* group, const void* send, const size_t* counts, const size_t* offsets, void* recv,
                      size_t recv_count, uint32_t type, uint32_t root, const tw_collective_options* options,
                      tw_request* request) {
  return run(group, options, request,
             [&](Call& call) { return scatterv_call(*group, {send, recv, recv_count, type}, {counts, offsets}, root, &call); });
}

tw_status tw_alltoall(tw_group* group, const void* send, void* recv, size_t count, uint32_t type,
                      const tw_collective_options* options, tw_request* request) {
  return run(group, options, request, [&] { return alltoall_call(*group, {send, recv, count, type}); });
}

tw_status tw_alltoallv(tw_group* group, const void* send, const size_t* send_counts, const size_t* send_offsets, void* recv,
                       const size_t* recv_counts, const size_t* recv_offsets, uint32_t type,
                       const tw_collective_options* options, tw_request* request) {
  return run(group, options, request, [&](Call& call) {
    return alltoallv_call(*group, {send, recv, 0, type}, {send_counts, send_offsets}, {recv_counts, recv_offsets}, &call);
  });
}

tw_status tw_scan(tw_group* group, const void* send, void* recv, size_t count, uint32_t type, uint32_t op,
                  const tw_collective_options* options, tw_request* request) {
  return run(group, options, request, [&] { return scan_call({send, recv, count, type, op}, false); });
}

tw_status tw_exclusive_scan(tw_group* group, const void* send, void* recv, size_t count, uint32_t type, uint32_t op,
                            const tw_collective_options* options, tw_request* request) {
  return run(group, options, request, [&] { return scan_call({send, recv, count, type, op}, true); });
}

}  // extern "C"
