// SPDX-License-Identifier: Apache-2.0
// From a call to what one kernel on each rank's device does (devices/program/exchange.hpp).
#include <thalweg/device/reduce.hpp>

#include <algorithm>

#include "base/told_status.hpp"
#include "collectives/call.hpp"
#include "collectives/collectives.hpp"
#include "collectives/planned.hpp"
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

bool has_lengths(const Call& call) { return call.what.counts_at_root || call.sent.given() || call.received.given(); }

/// Of kernels of their own.
bool is_rare(const Call& call, const Operation& operation) {
  return call.reduces && (scales(operation) || call.type >= static_cast<uint32_t>(device::ElementType::count_));
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
  const WindowList::One *input = nullptr, *output = nullptr;
  Symmetric bytes;
  bool any() const { return input != nullptr || output != nullptr; }
};
/// *out: nothing where a buffer lies in none.
void find_windows(const WindowList& windows, const Call& call, const CollectiveTask& task, InWindows* out) {
  const Bound& bound = task.bound;
  if (has_lengths(call) || is_rare(call, task.operation)) return;
  const Symmetric wanted = out->bytes = symmetric_of(call.what);
  if (wanted.input != 0) out->input = windows.find(reinterpret_cast<uint64_t>(bound.input.address), wanted.input);
  if (wanted.output != 0) out->output = windows.find(reinterpret_cast<uint64_t>(bound.output.address), wanted.output);
  if ((wanted.input != 0 && out->input == nullptr) || (wanted.output != 0 && out->output == nullptr)) *out = {};
}

void use_window(const WindowList::One& one, const DeviceArea& area, uint64_t address, uint64_t bytes, const device::u64** bases,
                device::u64* place, device::u64* limit, ExchangeStep* out) {
  *limit = tw_window_length(one.window) - bytes;
  *bases = reinterpret_cast<const device::u64*>(one.window->bound(area.device())->bases);
  *place = one.number << device::kPlaceBits | (address - reinterpret_cast<uint64_t>(tw_memory_address(one.window->memory)));
  out->windows.push_back(one.window->alive);
}

bool is_near(const tw_memory& memory, const Device& device) {
  return memory.origin.kind == MemoryKind::device && std::ranges::equal(memory.origin.device_uuid, device.uuid());
}

void use_windows(const InWindows& in, const DeviceArea& area, uint32_t element, ExchangeStep* out) {
  device::Exchange& x = out->what;
  x.symmetric = 1;
  x.place_align = x.reduces != 0 ? element : 1;
  if (in.input != nullptr) x.input_near = is_near(*in.input->window->memory, area.device()) ? 1 : 0;
  if (in.input != nullptr) use_window(*in.input, area, x.input, in.bytes.input, &x.inputs, &x.input_place, &x.input_limit, out);
  if (in.output != nullptr)
    use_window(*in.output, area, x.output, in.bytes.output, &x.outputs, &x.output_place, &x.output_limit, out);
}

bool in_windows(Kernels kernels) { return kernels == Kernels::symmetric || kernels == Kernels::slots; }

/// In two phases: the root of a broadcast has no slice.
void cut_slices(const Collective& c, device::Exchange* x) {
  x->slice = slice_of(c);
  x->unsliced = c.kind == CollectiveKind::broadcast ? c.root : c.size;
}

// ------------------------------------------------------------------------------------------------ blocks of several lengths

/// Of one side: elements, and where they begin, by rank.
struct Lengths {
  explicit Lengths(uint32_t size) : counts(size, 0), offsets(size, 0) {}
  std::vector<uint64_t> counts, offsets;
  /// An empty block may be said to begin anywhere.
  void take(const Counts& given) {
    counts = given.counts;
    for (size_t i = 0; i < counts.size(); ++i) offsets[i] = counts[i] != 0 ? given.offsets[i] : 0;
  }
  uint64_t extent() const {
    uint64_t end = 0;
    for (size_t i = 0; i < counts.size(); ++i) end = std::max(end, counts[i] != 0 ? offsets[i] + counts[i] : 0);
    return end;
  }
};

/// What goes from this rank to each, and comes from there. own: elements of this rank's block, where one rank has all counts.
void name_lengths(const Collective& c, const Call& call, uint64_t own, Lengths* to, Lengths* from) {
  const bool is_root = c.rank == c.root;
  switch (c.kind) {
    case CollectiveKind::allgather:
      std::fill(to->counts.begin(), to->counts.end(), call.received.counts[c.rank]);
      from->take(call.received);
      return;
    case CollectiveKind::gather:
      if (is_root) from->take(call.received);
      to->counts[c.root] = is_root ? call.received.counts[c.rank] : own;
      return;
    case CollectiveKind::scatter:
      if (is_root) to->take(call.sent);
      from->counts[c.root] = is_root ? call.sent.counts[c.rank] : own;
      return;
    default:
      to->take(call.sent);
      from->take(call.received);
  }
}

/// Rows of a table: counts and offsets of what is sent, of what is received.
void count_blocks(const Collective& c, const Call& call, uint64_t own, ExchangeStep* out, Executor& by) {
  Lengths to(c.size), from(c.size);
  name_lengths(c, call, own, &to, &from);
  std::vector<uint64_t> words;
  for (const auto* row : {&to.counts, &to.offsets, &from.counts, &from.offsets})
    words.insert(words.end(), row->begin(), row->end());
  out->table = std::make_shared<ExchangeTable>(by, std::move(words));
  device::ExchangeCounts& counts = out->counts;
  counts.row_bytes = c.element;
  counts.send_capacity = to.extent();
  counts.recv_capacity = from.extent();
  out->input_bytes = counts.send_capacity * c.element;
  out->output_bytes = counts.recv_capacity * c.element;
  out->what.bytes = out->input_bytes;
}

/// Of a reduce-scatter: where each rank's block is in the input; and what that comes to, which kernels compare.
void part_blocks(const Collective& c, const Counts& given, ExchangeStep* out, Executor& by) {
  std::vector<uint64_t> words;
  for (uint32_t i = 0; i < c.size; ++i) {
    words.push_back(given.offsets[i] * c.element);
    words.push_back(given.counts[i] * c.element);
  }
  words.push_back(checksum(words));
  out->table = std::make_shared<ExchangeTable>(by, std::move(words));
  out->what.any = 1;
  out->input_bytes = given.extent() * c.element;
  out->output_bytes = given.counts[c.rank] * c.element;
  out->apart = c.in_place;
}

/// What is the same of all blocks; of a reduction of several lengths, as if all were as long as the longest.
void fill_equal(const Collective& c, const Call& call, Kernels kernels, const Operation& operation, ExchangeStep* out) {
  device::Exchange& x = out->what;
  name_peers(c, &x);
  lay_out(c, &x);
  x.low_latency = kernels == Kernels::ll || kernels == Kernels::lines ? 1 : 0;
  x.lines = kernels == Kernels::lines ? 1 : 0;
  const bool may_cut = kernels == Kernels::lines || in_windows(kernels);
  if (kernels == Kernels::two_phases || (may_cut && is_sliced(c))) cut_slices(c, &x);
  x.reduces = call.reduces ? 1 : 0;
  x.type = call.type;
  x.op = step_op(call.op);
  x.scales = call.reduces && scales(operation) ? 1 : 0;
  x.factor = scale_factor(operation, c.size);
  x.any = is_rare(call, operation) ? 1 : 0;
  const bool reads = (x.sends | (x.takes & rank_bit(c.rank))) != 0;
  out->input_bytes = reads ? x.bytes * (x.input_stride != 0 ? c.size : 1) : 0;
  out->output_bytes = x.takes != 0 ? x.bytes * (x.output_stride != 0 ? c.size : 1) : 0;
}

}  // namespace

/// All ranks' devices reach it, or none registers it.
Status register_window(tw_queue& queue, tw_window& window) {
  tw_group& group = *window.group;
  const Occupied here(group);
  Collectives* collectives = nullptr;
  if (Status s = enter(group, &collectives); is_error(s)) return s;
  const std::lock_guard turn(collectives->enqueue_order(), std::adopt_lock);
  if (Status s = check_exchange(group); is_error(s)) return s;
  if (Status s = find_device(queue, *collectives, "tw_window_register_on"); is_error(s)) return s;
  const std::shared_ptr<DeviceArea>& area = collectives->device();
  if (area == nullptr)
    return fail(TW_ERR_UNSUPPORTED, "the group's collectives on queues are not by kernels: %s",
                collectives->why_no_device().c_str());
  ExchangeCall call(group, ExchangeKind::registration);  // behind what may refuse this rank alone
  bool shares = false;
  {
    const Engine::Guard guard(*group.worker.engine);
    shares = window.listed != nullptr || group.windows.overlaps(window);
  }
  Status mine =
      shares ? fail(TW_ERR_INVALID, "the window, or one that shares memory with it, is registered already") : Status{TW_OK};
  tw_device_window view{};
  if (!is_error(mine) && window.bound(area->device()) == nullptr) mine = window.bind(area->executor().name().c_str(), &view);
  const std::string why = is_error(mine) ? last_error() : "";
  const int32_t told = mine;
  std::vector<int32_t> all(group.size);
  if (Status s = exchange(call, &told, sizeof told, all.data()); is_error(s)) return s;
  if (is_error(mine)) return fail(mine, "%s", why.c_str());
  for (uint32_t i = 0; i < group.size; ++i) {
    if (const Status other = told_status(all[i]); other != TW_OK)
      return fail(other, "rank %u cannot register the window: its own error text says why", i);
  }
  if (Status s = agree(call, TW_OK); is_error(s)) return s;
  const Engine::Guard guard(*group.worker.engine);
  group.windows.add(window);
  return TW_OK;
}

Status resolve_exchange(Collectives& all, Call& call, const tw_collective_options& options,
                        std::shared_ptr<ExchangeStep>* out) {
  if (all.device() == nullptr) return TW_OK;
  DeviceArea& area = *all.device();
  CollectiveTask task;
  const uint64_t own = call.what.count;  // where one rank has all counts
  if (Status s = prepare_task(all, call, options, &task); is_error(s)) return s;
  call.what.kernel_room = area.room();
  call.what.line_room = area.line_room();
  call.what.rare = is_rare(call, task.operation);
  InWindows in;
  find_windows(all.group().windows, call, task, &in);
  call.what.symmetric = in.any() || (call.what.bytes() == 0 && !has_lengths(call));
  Kernels kernels = Kernels::none;
  const Status chosen = all.schedules().choose_kernels(call.what, options.algorithm, &kernels);
  const Collective what = call.what;
  call.what.kernel_room = call.what.line_room = 0;
  call.what.rare = call.what.symmetric = false;
  if (is_error(chosen) || kernels == Kernels::none) return chosen;
  if (what.bytes() == 0)
    kernels = Kernels::ll;  // Simple has no flags where it has no bytes, and ranks would not wait for each other
  auto made = std::make_shared<ExchangeStep>();
  device::Exchange& x = made->what;
  x.input = reinterpret_cast<uint64_t>(task.bound.input.address);
  x.output = reinterpret_cast<uint64_t>(task.bound.output.address);
  made->area = all.device();
  const bool lengths = has_lengths(call) && (!call.reduces || what.bytes() != 0);
  if (lengths && !call.reduces) {
    count_blocks(what, call, own, made.get(), area.executor());
    area.fill_counted(made.get());
  } else {
    fill_equal(what, call, kernels, task.operation, made.get());
    if (lengths) part_blocks(what, call.received, made.get(), area.executor());
    if (in_windows(kernels)) use_windows(in, area, what.element, made.get());
    x.by_slots = kernels == Kernels::slots ? 1 : 0;
    area.fill(call.rooted, made.get());
  }
  *out = std::move(made);
  return TW_OK;
}

Status place_counts(ExchangeStep& step) {
  if (step.table == nullptr) return TW_OK;
  if (Status s = step.table->place(); is_error(s)) return s;
  const ExchangeTable& table = *step.table;
  const size_t ranks = step.what.size;
  if (step.what.any != 0) {
    step.what.parts = table.at(0);
    return TW_OK;
  }
  step.counts.send_counts = table.at(0);
  step.counts.send_offsets = table.at(ranks);
  step.counts.expected = table.at(2 * ranks);
  step.counts.recv_offsets = table.at(3 * ranks);
  return TW_OK;
}

}  // namespace thalweg::impl
