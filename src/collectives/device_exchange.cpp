// SPDX-License-Identifier: Apache-2.0
// From a call to what one kernel on each rank's device does (devices/program/exchange.hpp).
#include <algorithm>

#include "collectives/call.hpp"
#include "collectives/collectives.hpp"
#include "collectives/run.hpp"
#include "groups/exchange.hpp"

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

/// Which buffers of all ranks kernels use by themselves where they lie in windows.
struct Symmetric {
  uint64_t input = 0, output = 0;  // bytes; 0: not that buffer
};
Symmetric symmetric_of(const Collective& c) {
  const uint64_t bytes = c.bytes();
  switch (c.kind) {
    case CollectiveKind::broadcast:
      return {0, bytes};
    case CollectiveKind::reduce:
      return {bytes, 0};
    case CollectiveKind::allreduce:
      return {bytes, bytes};
    case CollectiveKind::reduce_scatter:
      return {c.in_place ? 0 : bytes * c.size, 0};  // in place, ranks would store where others read
    case CollectiveKind::allgather:
      return {0, bytes * c.size};
    case CollectiveKind::alltoall:
      return {0, c.in_place ? 0 : bytes * c.size};
    default:
      return {};
  }
}

struct InWindows {
  WindowList::One *input = nullptr, *output = nullptr;
  bool all_reach() const {
    const auto fits = [](const WindowList::One* one) { return one == nullptr || one->reach == WindowList::Reach::all; };
    return (input != nullptr || output != nullptr) && fits(input) && fits(output);
  }
};
/// *out: nothing where a buffer lies in none.
void find_windows(WindowList& windows, const Collective& c, const Bound& bound, InWindows* out) {
  const Symmetric wanted = symmetric_of(c);
  if (wanted.input != 0) out->input = windows.find(reinterpret_cast<uint64_t>(bound.input.address), wanted.input);
  if (wanted.output != 0) out->output = windows.find(reinterpret_cast<uint64_t>(bound.output.address), wanted.output);
  if ((wanted.input != 0 && out->input == nullptr) || (wanted.output != 0 && out->output == nullptr)) *out = {};
}

/// Collective: a window's first use by kernels.
Status agree_on(tw_group& group, WindowList::One* one, const DeviceArea& area) {
  if (one == nullptr || one->reach != WindowList::Reach::unknown) return TW_OK;
  tw_device_window view{};
  tw_window* const window = one->window;
  char mine = window->bound(area.device()) != nullptr || !is_error(window->bind(area.place().c_str(), &view)) ? 1 : 0;
  std::vector<char> all(group.size);
  if (Status s = exchange(group, &mine, 1, all.data()); is_error(s)) return s;
  one->reach = std::ranges::find(all, 0) == all.end() ? WindowList::Reach::all : WindowList::Reach::not_all;
  return TW_OK;
}

void use_window(const WindowList::One& one, const DeviceArea& area, uint64_t address, const device::u64** bases,
                device::u64* place, ExchangeStep* out) {
  *bases = reinterpret_cast<const device::u64*>(one.window->bound(area.device())->bases);
  *place = one.number << device::kPlaceBits | (address - reinterpret_cast<uint64_t>(tw_memory_address(one.window->memory)));
  out->windows.push_back(one.window->alive);
}

/// In two phases: the root of a broadcast has no slice.
void cut_slices(const Collective& c, device::Exchange* x) {
  const bool all = c.kind != CollectiveKind::broadcast;
  x->slices = all ? c.size : c.size - 1;
  x->unsliced = all ? c.size : c.root;
}

}  // namespace

Status agree_on_windows(tw_group& group, Call& call, const tw_collective_options& options) {
  if (group.collectives->device() == nullptr) return TW_OK;
  const DeviceArea& area = *group.collectives->device();
  InWindows found;
  {
    const Engine::Guard guard(*group.worker.engine);
    CollectiveTask task;
    if (Status s = prepare_task(*group.collectives, call, options, &task); is_error(s)) return s;
    find_windows(group.windows, call.what, task.bound, &found);
  }
  if (Status s = agree_on(group, found.input, area); is_error(s)) return s;
  return agree_on(group, found.output, area);
}

Status resolve_exchange(Collectives& all, Call& call, const tw_collective_options& options,
                        std::shared_ptr<const ExchangeStep>* out) {
  if (all.device() == nullptr) return TW_OK;
  DeviceArea& area = *all.device();
  CollectiveTask task;
  if (Status s = prepare_task(all, call, options, &task); is_error(s)) return s;
  call.what.kernel_room = area.room();
  InWindows in;
  find_windows(all.group().windows, call.what, task.bound, &in);
  call.what.symmetric = in.all_reach() || call.what.bytes() == 0;
  Kernels kernels = Kernels::none;
  const Status chosen = all.schedules().choose_kernels(call.what, options.algorithm, &kernels);
  const Collective what = call.what;
  call.what.kernel_room = 0;
  call.what.symmetric = false;
  if (is_error(chosen) || kernels == Kernels::none) return chosen;
  if (what.bytes() == 0)
    kernels = Kernels::ll;  // Simple has no flags where it has no bytes, and ranks would not wait for each other
  auto made = std::make_shared<ExchangeStep>();
  device::Exchange& x = made->what;
  name_peers(what, &x);
  lay_out(what, &x);
  x.low_latency = kernels == Kernels::ll ? 1 : 0;
  const bool sliced = what.kind == CollectiveKind::allreduce || (what.kind == CollectiveKind::broadcast && what.size > 2);
  if (kernels == Kernels::two_phases || (kernels == Kernels::symmetric && sliced)) cut_slices(what, &x);
  x.reduces = call.reduces ? 1 : 0;
  x.type = call.type;
  x.op = call.op;
  x.input = reinterpret_cast<uint64_t>(task.bound.input.address);
  x.output = reinterpret_cast<uint64_t>(task.bound.output.address);
  if (kernels == Kernels::symmetric) {
    x.symmetric = 1;
    if (in.input != nullptr) use_window(*in.input, area, x.input, &x.inputs, &x.input_place, made.get());
    if (in.output != nullptr) use_window(*in.output, area, x.output, &x.outputs, &x.output_place, made.get());
  }
  const bool reads = (x.sends | (x.takes & rank_bit(what.rank))) != 0;
  made->input_bytes = reads ? x.bytes * (x.input_stride != 0 ? what.size : 1) : 0;
  made->output_bytes = x.takes != 0 ? x.bytes * (x.output_stride != 0 ? what.size : 1) : 0;
  area.fill(call.rooted, made.get());
  made->area = all.device();
  *out = std::move(made);
  return TW_OK;
}

}  // namespace thalweg::impl
