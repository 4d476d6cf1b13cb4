// SPDX-License-Identifier: Apache-2.0
#include "collectives/calls.hpp"

namespace thalweg::impl {
namespace {

Call reduction(const char* name, CollectiveKind kind, const Reduces& what) {
  Call call(name, kind, what.type);
  call.what.count = what.count;
  call.reduces = true;
  call.op = what.op;
  call.send = {what.send, true, true, "send"};
  call.recv = {what.recv, true, false, "recv"};
  return call;
}

/// `blocks`: of `count` elements, that there are in each buffer.
Call exchange(const char* name, CollectiveKind kind, const Exchanges& what, uint64_t send_blocks, uint64_t recv_blocks) {
  Call call(name, kind, what.type);
  call.what.count = what.count;
  call.send = {what.send, true, true, "send"};
  call.recv = {what.recv, true, false, "recv"};
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

Call barrier_call() { return Call("tw_barrier", CollectiveKind::barrier, TW_TYPE_UINT8); }

Call broadcast_call(void* buffer, size_t count, uint32_t type, uint32_t root) {
  Call call("tw_broadcast", CollectiveKind::broadcast, type);
  call.what.count = count;
  call.recv = {buffer, true, false, "the buffer"};
  set_root(call, root);
  return call;
}

Call allreduce_call(const Reduces& what) { return reduction("tw_allreduce", CollectiveKind::allreduce, what); }

Call reduce_call(const tw_group& group, const Reduces& what, uint32_t root) {
  Call call = reduction("tw_reduce", CollectiveKind::reduce, what);
  gathers(call, group, root);
  return call;
}

Call reduce_scatter_call(const tw_group& group, const Reduces& what) {
  Call call = reduction("tw_reduce_scatter", CollectiveKind::reduce_scatter, what);
  call.send_blocks = group.size;
  return call;
}

Status reduce_scatterv_call(const tw_group& group, const Reduces& what, const size_t* counts, Call* out) {
  *out = reduction("tw_reduce_scatterv", CollectiveKind::reduce_scatter, what);
  return take_counts(counts, nullptr, group.size, "counts", &out->received);
}

Call scan_call(const Reduces& what, bool exclusive) {
  return exclusive ? reduction("tw_exclusive_scan", CollectiveKind::exclusive_scan, what)
                   : reduction("tw_scan", CollectiveKind::scan, what);
}

Call allgather_call(const tw_group& group, const Exchanges& what) {
  return exchange("tw_allgather", CollectiveKind::allgather, what, 1, group.size);
}

Status allgatherv_call(const tw_group& group, const Exchanges& what, const GivenCounts& received, Call* out) {
  *out = exchange("tw_allgatherv", CollectiveKind::allgather, what, 1, 1);
  return take_counts(received.counts, received.offsets, group.size, "counts", &out->received);
}

Call gather_call(const tw_group& group, const Exchanges& what, uint32_t root) {
  Call call = exchange("tw_gather", CollectiveKind::gather, what, 1, group.size);
  gathers(call, group, root);
  return call;
}

Status gatherv_call(const tw_group& group, const Exchanges& what, const GivenCounts& received, uint32_t root, Call* out) {
  *out = exchange("tw_gatherv", CollectiveKind::gather, what, 1, 1);
  gathers(*out, group, root);
  out->what.counts_at_root = true;
  if (group.rank != root) return TW_OK;
  return take_counts(received.counts, received.offsets, group.size, "counts", &out->received);
}

Call scatter_call(const tw_group& group, const Exchanges& what, uint32_t root) {
  Call call = exchange("tw_scatter", CollectiveKind::scatter, what, group.size, 1);
  scatters(call, group, root);
  return call;
}

Status scatterv_call(const tw_group& group, const Exchanges& what, const GivenCounts& sent, uint32_t root, Call* out) {
  *out = exchange("tw_scatterv", CollectiveKind::scatter, what, 1, 1);
  scatters(*out, group, root);
  out->what.counts_at_root = true;
  if (group.rank != root) return TW_OK;
  return take_counts(sent.counts, sent.offsets, group.size, "counts", &out->sent);
}

Call alltoall_call(const tw_group& group, const Exchanges& what) {
  return exchange("tw_alltoall", CollectiveKind::alltoall, what, group.size, group.size);
}

Status alltoallv_call(const tw_group& group, const Exchanges& what, const GivenCounts& sent, const GivenCounts& received,
                      Call* out) {
  *out = exchange("tw_alltoallv", CollectiveKind::alltoall, what, 1, 1);
  out->send.may_be_placed = false;
  if (Status s = take_counts(sent.counts, sent.offsets, group.size, "send_counts", &out->sent); is_error(s)) return s;
  return take_counts(received.counts, received.offsets, group.size, "recv_counts", &out->received);
}

}  // namespace thalweg::impl
