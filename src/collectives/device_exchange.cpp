// SPDX-License-Identifier: Apache-2.0
// From a call to what one kernel on each rank's device does (devices/program/exchange.hpp).
#include "collectives/call.hpp"
#include "collectives/collectives.hpp"
#include "collectives/run.hpp"

namespace thalweg::impl {
namespace {

/// To whom this rank sends, and from whom it takes: one block each.
void name_peers(const Collective& c, device::Exchange* x) {
  const uint64_t all = first_ranks(c.size), others = all & ~rank_bit(c.rank), root = rank_bit(c.root);
  const bool is_root = c.rank == c.root;
  switch (c.kind) {
    case CollectiveKind::barrier:
      return;
    case CollectiveKind::broadcast:
      x->sends = is_root ? others : 0;
      x->takes = is_root ? 0 : root;
      return;
    case CollectiveKind::scatter:
      x->sends = is_root ? others : 0;
      x->takes = root;
      return;
    case CollectiveKind::reduce:
    case CollectiveKind::gather:
      x->sends = is_root ? 0 : root;
      x->takes = is_root ? all : 0;
      return;
    case CollectiveKind::scan:
      x->sends = others & ~first_ranks(c.rank);
      x->takes = first_ranks(c.rank + 1);
      return;
    case CollectiveKind::exclusive_scan:
      x->sends = others & ~first_ranks(c.rank);
      x->takes = first_ranks(c.rank);
      return;
    default:
      x->sends = others;
      x->takes = all;
  }
}

/// Where blocks lie one behind the other.
void lay_out(const Collective& c, device::Exchange* x) {
  const bool from_each =
      c.kind == CollectiveKind::alltoall || c.kind == CollectiveKind::scatter || c.kind == CollectiveKind::reduce_scatter;
  const bool to_each =
      c.kind == CollectiveKind::alltoall || c.kind == CollectiveKind::gather || c.kind == CollectiveKind::allgather;
  x->bytes = c.bytes();
  x->input_stride = from_each ? x->bytes : 0;
  x->output_stride = to_each ? x->bytes : 0;
}

/// In two phases: the root of a broadcast has no slice.
void cut_slices(const Collective& c, device::Exchange* x) {
  const bool all = c.kind != CollectiveKind::broadcast;
  x->slices = all ? c.size : c.size - 1;
  x->unsliced = all ? c.size : c.root;
}

}  // namespace

Status resolve_exchange(Collectives& all, Call& call, const tw_collective_options& options,
                        std::shared_ptr<const ExchangeStep>* out) {
  if (all.device() == nullptr) return TW_OK;
  DeviceArea& area = *all.device();
  CollectiveTask task;
  if (Status s = prepare_task(all, call, options, &task); is_error(s)) return s;
  call.what.kernel_room = area.room();
  Kernels kernels = Kernels::none;
  const Status chosen = all.schedules().choose_kernels(call.what, options.algorithm, &kernels);
  const Collective what = call.what;
  call.what.kernel_room = 0;
  if (is_error(chosen) || kernels == Kernels::none) return chosen;
  if (what.bytes() == 0)
    kernels = Kernels::ll;  // Simple has no flags where it has no bytes, and ranks would not wait for each other
  auto made = std::make_shared<ExchangeStep>();
  device::Exchange& x = made->what;
  name_peers(what, &x);
  lay_out(what, &x);
  x.low_latency = kernels == Kernels::ll ? 1 : 0;
  if (kernels == Kernels::two_phases) cut_slices(what, &x);
  x.reduces = call.reduces ? 1 : 0;
  x.type = call.type;
  x.op = call.op;
  x.input = reinterpret_cast<uint64_t>(task.bound.input.address);
  x.output = reinterpret_cast<uint64_t>(task.bound.output.address);
  const bool reads = (x.sends | (x.takes & rank_bit(what.rank))) != 0;
  made->input_bytes = reads ? x.bytes * (x.input_stride != 0 ? what.size : 1) : 0;
  made->output_bytes = x.takes != 0 ? x.bytes * (x.output_stride != 0 ? what.size : 1) : 0;
  area.fill(call.rooted, made.get());
  made->area = all.device();
  *out = std::move(made);
  return TW_OK;
}

}  // namespace thalweg::impl
