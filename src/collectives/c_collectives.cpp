// SPDX-License-Identifier: Apache-2.0
// C interface: collectives. Each says what it is; call.cpp does the rest.
#include "collectives/call.hpp"
#include "core/c_checks.hpp"
#include "groups/c_checks.hpp"

using namespace thalweg::impl;

namespace {

constexpr tw_collective_options kDefaults = TW_COLLECTIVE_OPTIONS_INIT;

Status run(tw_group* group, Call& call, const tw_collective_options* given, tw_request* request) {
  const Enter enter(&group->worker);
  if (is_error(enter.status())) return enter.status();
  const Options<tw_collective_options> options(given, kDefaults);
  return run_call(*group, call, *options, request);
}

Call reduction(const char* name, CollectiveKind kind, const void* send, void* recv, size_t count, uint32_t type, uint32_t op) {
  Call call(name, kind, type);
  call.what.count = count;
  call.reduces = true;
  call.op = op;
  call.send = {send, true, true, "send"};
  call.recv = {recv, true, false, "recv"};
  return call;
}

/// `blocks`: of `count` elements, that there are in each buffer.
Call exchange(const char* name, CollectiveKind kind, const void* send, uint64_t send_blocks, void* recv, uint64_t recv_blocks,
              size_t count, uint32_t type) {
  Call call(name, kind, type);
  call.what.count = count;
  call.send = {send, true, true, "send"};
  call.recv = {recv, true, false, "recv"};
  call.send_blocks = send_blocks;
  call.recv_blocks = recv_blocks;
  return call;
}

void set_root(Call& call, uint32_t root) {
  call.rooted = true;
  call.what.root = root;
}

/// gather, gatherv: at other ranks than root there is no recv.
void gathers(Call& call, const tw_group& group, uint32_t root) {
  set_root(call, root);
  call.recv.used = call.send.may_be_placed = group.rank == root;
}
/// scatter, scatterv
void scatters(Call& call, const tw_group& group, uint32_t root) {
  set_root(call, root);
  call.send.used = call.recv.may_be_placed = group.rank == root;
  call.send.may_be_placed = false;
}

}  // namespace

extern "C" {

tw_status tw_barrier(tw_group* group, const tw_collective_options* options, tw_request* request) {
  if (Status s = check(group); is_error(s)) return s;
  Call call("tw_barrier", CollectiveKind::barrier, TW_TYPE_UINT8);
  return run(group, call, options, request);
}

tw_status tw_broadcast(tw_group* group, void* buffer, size_t count, uint32_t type, uint32_t root,
                       const tw_collective_options* options, tw_request* request) {
  if (Status s = check(group); is_error(s)) return s;
  Call call("tw_broadcast", CollectiveKind::broadcast, type);
  call.what.count = count;
  call.recv = {buffer, true, false, "the buffer"};
  set_root(call, root);
  return run(group, call, options, request);
}

tw_status tw_reduce(tw_group* group, const void* send, void* recv, size_t count, uint32_t type, uint32_t op, uint32_t root,
                    const tw_collective_options* options, tw_request* request) {
  if (Status s = check(group); is_error(s)) return s;
  Call call = reduction("tw_reduce", CollectiveKind::reduce, send, recv, count, type, op);
  gathers(call, *group, root);
  return run(group, call, options, request);
}

tw_status tw_allreduce(tw_group* group, const void* send, void* recv, size_t count, uint32_t type, uint32_t op,
                       const tw_collective_options* options, tw_request* request) {
  if (Status s = check(group); is_error(s)) return s;
  Call call = reduction("tw_allreduce", CollectiveKind::allreduce, send, recv, count, type, op);
  return run(group, call, options, request);
}

tw_status tw_reduce_scatter(tw_group* group, const void* send, void* recv, size_t count, uint32_t type, uint32_t op,
                            const tw_collective_options* options, tw_request* request) {
  if (Status s = check(group); is_error(s)) return s;
  Call call = reduction("tw_reduce_scatter", CollectiveKind::reduce_scatter, send, recv, count, type, op);
  call.send_blocks = group->size;
  return run(group, call, options, request);
}

tw_status tw_reduce_scatterv(tw_group* group, const void* send, void* recv, const size_t* counts, uint32_t type, uint32_t op,
                             const tw_collective_options* options, tw_request* request) {
  if (Status s = check(group); is_error(s)) return s;
  Call call = reduction("tw_reduce_scatterv", CollectiveKind::reduce_scatter, send, recv, 0, type, op);
  if (Status s = take_counts(counts, nullptr, group->size, "counts", &call.received); is_error(s)) return s;
  return run(group, call, options, request);
}

tw_status tw_allgather(tw_group* group, const void* send, void* recv, size_t count, uint32_t type,
                       const tw_collective_options* options, tw_request* request) {
  if (Status s = check(group); is_error(s)) return s;
  Call call = exchange("tw_allgather", CollectiveKind::allgather, send, 1, recv, group->size, count, type);
  return run(group, call, options, request);
}

tw_status tw_allgatherv(tw_group* group, const void* send, void* recv, const size_t* counts, const size_t* offsets,
                        uint32_t type, const tw_collective_options* options, tw_request* request) {
  if (Status s = check(group); is_error(s)) return s;
  Call call = exchange("tw_allgatherv", CollectiveKind::allgather, send, 1, recv, 1, 0, type);
  if (Status s = take_counts(counts, offsets, group->size, "counts", &call.received); is_error(s)) return s;
  return run(group, call, options, request);
}

tw_status tw_gather(tw_group* group, const void* send, void* recv, size_t count, uint32_t type, uint32_t root,
                    const tw_collective_options* options, tw_request* request) {
  if (Status s = check(group); is_error(s)) return s;
  Call call = exchange("tw_gather", CollectiveKind::gather, send, 1, recv, group->size, count, type);
  gathers(call, *group, root);
  return run(group, call, options, request);
}

tw_status tw_gatherv(tw_group* group, const void* send, size_t send_count, void* recv, const size_t* counts,
                     const size_t* offsets, uint32_t type, uint32_t root, const tw_collective_options* options,
                     tw_request* request) {
  if (Status s = check(group); is_error(s)) return s;
  Call call = exchange("tw_gatherv", CollectiveKind::gather, send, 1, recv, 1, send_count, type);
  gathers(call, *group, root);
  call.what.counts_at_root = true;
  if (group->rank == root) {
    if (Status s = take_counts(counts, offsets, group->size, "counts", &call.received); is_error(s)) return s;
  }
  return run(group, call, options, request);
}

tw_status tw_scatter(tw_group* group, const void* send, void* recv, size_t count, uint32_t type, uint32_t root,
                     const tw_collective_options* options, tw_request* request) {
  if (Status s = check(group); is_error(s)) return s;
  Call call = exchange("tw_scatter", CollectiveKind::scatter, send, group->size, recv, 1, count, type);
  scatters(call, *group, root);
  return run(group, call, options, request);
}

tw_status tw_scatterv(tw_group* group, const void* send, const size_t* counts, const size_t* offsets, void* recv,
                      size_t recv_count, uint32_t type, uint32_t root, const tw_collective_options* options,
                      tw_request* request) {
  if (Status s = check(group); is_error(s)) return s;
  Call call = exchange("tw_scatterv", CollectiveKind::scatter, send, 1, recv, 1, recv_count, type);
  scatters(call, *group, root);
  call.what.counts_at_root = true;
  if (group->rank == root) {
    if (Status s = take_counts(counts, offsets, group->size, "counts", &call.sent); is_error(s)) return s;
  }
  return run(group, call, options, request);
}

tw_status tw_alltoall(tw_group* group, const void* send, void* recv, size_t count, uint32_t type,
                      const tw_collective_options* options, tw_request* request) {
  if (Status s = check(group); is_error(s)) return s;
  Call call = exchange("tw_alltoall", CollectiveKind::alltoall, send, group->size, recv, group->size, count, type);
  return run(group, call, options, request);
}

tw_status tw_alltoallv(tw_group* group, const void* send, const size_t* send_counts, const size_t* send_offsets, void* recv,
                       const size_t* recv_counts, const size_t* recv_offsets, uint32_t type,
                       const tw_collective_options* options, tw_request* request) {
  if (Status s = check(group); is_error(s)) return s;
  Call call = exchange("tw_alltoallv", CollectiveKind::alltoall, send, 1, recv, 1, 0, type);
  call.send.may_be_placed = false;
  if (Status s = take_counts(send_counts, send_offsets, group->size, "send_counts", &call.sent); is_error(s)) return s;
  if (Status s = take_counts(recv_counts, recv_offsets, group->size, "recv_counts", &call.received); is_error(s)) return s;
  return run(group, call, options, request);
}

tw_status tw_scan(tw_group* group, const void* send, void* recv, size_t count, uint32_t type, uint32_t op,
                  const tw_collective_options* options, tw_request* request) {
  if (Status s = check(group); is_error(s)) return s;
  Call call = reduction("tw_scan", CollectiveKind::scan, send, recv, count, type, op);
  return run(group, call, options, request);
}

tw_status tw_exclusive_scan(tw_group* group, const void* send, void* recv, size_t count, uint32_t type, uint32_t op,
                            const tw_collective_options* options, tw_request* request) {
  if (Status s = check(group); is_error(s)) return s;
  Call call = reduction("tw_exclusive_scan", CollectiveKind::exclusive_scan, send, recv, count, type, op);
  return run(group, call, options, request);
}

}  // extern "C"
