// SPDX-License-Identifier: Apache-2.0
#include "collectives/call.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/interrupt.hpp"
#include "collectives/collectives.hpp"
#include "collectives/direct_run.hpp"
#include "collectives/group_wire.hpp"
#include "collectives/repeated_call.hpp"
#include "collectives/run.hpp"
#include "core/c_checks.hpp"
#include "groups/parts.hpp"
#include "trace/trace.hpp"

namespace thalweg::impl {

Status check_call(const tw_group& group, const Call& call, const tw_collective_options& options) {
  if (call.rooted && call.what.root >= group.size)
    return fail(TW_ERR_INVALID, "%s: there is no rank %u to be the root: the group has %u ranks", call.name, call.what.root,
                group.size);
  if (element_size(call.type) == 0) return fail(TW_ERR_INVALID, "%s: type %u is not one of TW_TYPE_*", call.name, call.type);
  if ((options.flags & ~uint32_t{TW_COLLECTIVE_REPEATABLE}) != 0 || options.commutative > 1)
    return fail(TW_ERR_INVALID, "%s: the options have unknown flags: initialise them by TW_COLLECTIVE_OPTIONS_INIT", call.name);
  const Operation what{call.type, call.op, options.scale, options.reduce, options.reduce_arg};
  if (!call.reduces && (what.scale != 0 || what.reduce != nullptr))
    return fail(TW_ERR_INVALID, "%s: the options have a scale or a function, and it combines nothing", call.name);
  if (Status s = call.reduces ? check_operation(what) : Status{TW_OK}; is_error(s)) return s;
  const bool scans = call.what.kind == CollectiveKind::scan || call.what.kind == CollectiveKind::exclusive_scan;
  if (scans && call.op == TW_REDUCE_AVERAGE)
    return fail(TW_ERR_INVALID, "%s: each rank's is of another number of ranks: use TW_REDUCE_SUM", call.name);
  return TW_OK;
}

namespace {

constexpr uint64_t kGuess = 16u << 10;  // bytes of a block of an alltoallv: all ranks must think the same
constexpr uint64_t kGrace = kSecond;    // for peers, when a collective has failed

/// The device that combines elements, and has the scratch memory.
Status place_task(const Call& call, CollectiveTask* task) {
  const Buffer &input = task->bound.input, &output = task->bound.output;
  const bool in = input.on_device, out = output.on_device;
  if (!in && !out) return TW_OK;
  task->device = out ? output.info.device : input.info.device;
  if (!call.reduces) return TW_OK;
  const bool apart = (input.length != 0 && output.length != 0) && (in != out || input.info.device != output.info.device);
  if (apart)
    return fail(TW_ERR_UNSUPPORTED, "%s: one buffer is a device's, and the other one is not: copy one to where the other is",
                call.name);
  return TW_OK;
}

/// Where a device combines elements by programs, not by a kernel of all ranks.
Status check_combined(const Call& call, const CollectiveTask& task) {
  return call.reduces && task.device != nullptr ? check_device_operation(task.operation) : Status{TW_OK};
}

/// What the other ranks are told of the call.
uint64_t called_of(const Call& call, const tw_collective_options& options) {
  const Collective& what = call.what;
  uint8_t named = 0;
  for (const char* c = options.algorithm; c != nullptr && *c != '\0'; ++c) named = static_cast<uint8_t>(named * 7 + *c);
  CalledThing one{static_cast<uint8_t>(what.kind),  static_cast<uint8_t>(call.type),  static_cast<uint8_t>(call.op), named,
                  static_cast<uint16_t>(what.root), static_cast<uint32_t>(what.count)};
  if (call.has_counts()) one.count = 0;
  if (call.knows_all_counts()) {
    one.root = kCountsByRank;
    one.count = static_cast<uint32_t>(checksum(call.received.counts) >> 32);
  }
  return pack(one);
}

void describe(Collectives& all, Call& call, const tw_collective_options& options, CollectiveTask* task) {
  Collective& what = call.what;
  what.rank = all.group().rank;
  what.size = all.group().size;
  what.ranks_per_host = all.ranks_per_host();
  what.element = task->element = element_size(call.type);
  what.commutative = call.op != TW_REDUCE_USER || options.commutative != 0;
  what.truths = call.reduces && call.type == TW_TYPE_BOOL && call.op != TW_REDUCE_USER;
  what.repeatable = (options.flags & TW_COLLECTIVE_REPEATABLE) != 0;
  const auto pointers = [](const Counts& counts, const uint64_t** numbers, const uint64_t** offsets) {
    *numbers = counts.given() ? counts.counts.data() : nullptr;
    *offsets = counts.given() ? counts.offsets.data() : nullptr;
  };
  pointers(call.sent, &what.send_counts, &what.send_offsets);
  pointers(call.received, &what.recv_counts, &what.recv_offsets);
  task->called = called_of(call, options);
  if (what.kind == CollectiveKind::alltoall && call.has_counts()) what.count = kGuess / what.element;
  if (call.knows_all_counts()) {
    for (const uint64_t one : call.received.counts) what.count = std::max(what.count, one);
  }
}

uint64_t scaled_elements(const tw_group& group, const Call& call, const Operation& operation) {
  const bool left_alone = call.what.kind == CollectiveKind::exclusive_scan && group.rank == 0;
  if (!scales(operation) || !call.recv.used || left_alone) return 0;
  return call.received.given() ? call.received.counts[group.rank] : call.what.count;
}

}  // namespace

uint64_t checksum(const std::vector<uint64_t>& numbers) {
  uint64_t sum = numbers.size();
  for (const uint64_t one : numbers) sum = mixed(sum, one);
  return sum;
}

Status settle(Collectives& all, Status status) {
  const std::string why = last_error();
  all.group().worker.wait_until([&] { return all.settled(); }, kGrace);
  return fail(status, "%s", why.c_str());
}

uint64_t planned_chunk(const Collective& what) {
  constexpr uint64_t kMostChunks = 64;
  if (what.counts_at_root) return 0;  // ranks do not know of each other's
  const bool by_rank = what.kind == CollectiveKind::reduce_scatter || what.kind == CollectiveKind::allgather ||
                       what.kind == CollectiveKind::gather || what.kind == CollectiveKind::scatter ||
                       what.kind == CollectiveKind::alltoall;
  return std::max(what.chunk, what.bytes() / kMostChunks * (by_rank ? what.size : 1));
}

Status prepare_task(Collectives& all, Call& call, const tw_collective_options& options, CollectiveTask* task) {
  tw_group& group = all.group();
  task->operation = {call.type, call.op, options.scale, options.reduce, options.reduce_arg};
  if (Status s = bind_buffers(group, call, &task->bound); is_error(s)) return s;
  if (Status s = place_task(call, task); is_error(s)) return s;
  task->scaled_count = scaled_elements(group, call, task->operation);
  describe(all, call, options, task);
  return TW_OK;
}

Status resolve_planned(Collectives& all, Call& call, const tw_collective_options& options, CollectiveTask* task) {
  if (Status s = prepare_task(all, call, options, task); is_error(s)) return s;
  if (Status s = check_combined(call, *task); is_error(s)) return s;
  call.what.chunk = planned_chunk(call.what);
  return all.schedules().find(call.what, options.algorithm, &task->schedule);
}

namespace {

/// What it runs by: a schedule with its scratch memory, or, without one, memory that all ranks map. Under the lock, under which
/// scratch memory goes back, too. Of a call that has its number already, others wait for this rank's part: without scratch memory the
/// group fails, as the next call would have another number than theirs.
Status choose_way(Collectives& all, const Call& call, const tw_collective_options& options, CollectiveTask* task) {
  if (Status s = all.schedules().find(call.what, options.algorithm, &task->schedule); is_error(s)) return s;
  if (task->schedule == nullptr) return TW_OK;
  const Status taken = all.scratch().take(task->device, task->schedule->schedule().scratch, &task->bound.scratch);
  if (!is_error(taken) || !task->number) return taken;
  all.fail(taken, all.group().rank, std::string(call.name) + ": " + last_error());
  return all.failure();
}

// ------------------------------------------------------------------------------------------------ running

/// The wait is over before the run is: all ranks are told why.
void end_early(Collectives& all, CollectiveRun& run, const char* name, Status interrupt, uint64_t limit_ns) {
  const Engine::Guard guard(all.engine());
  if (run.over()) return;  // by another thread's progress, since it was looked at
  if (is_error(interrupt)) return all.fail_interrupted(interrupt, name);
  uint32_t rank = kNoRank;
  const std::string missing = run.missing(&rank);
  all.fail(TW_ERR_TIMED_OUT, rank,
           std::string(name) + ": nothing came from " + missing + " within " + std::to_string(limit_ns / kMillisecond) + " ms");
}

Status wait_for(Collectives& all, CollectiveRun& run, const char* name, uint64_t limit_ns) {
  tw_worker& worker = all.group().worker;
  const auto over = [&] { return run.over(); };
  Status interrupt = TW_OK;
  worker.wait_until([&] { return run.over() || all.failed() || is_error(interrupt = interrupted()); }, limit_ns);
  if (!run.over() && !all.failed()) end_early(all, run, name, interrupt, limit_ns);
  if (!run.over() && is_error(worker.wait_until(over, kGrace))) {
    const Engine::Guard guard(all.engine());
    if (!run.over()) run.close_peers("it did not give back what a collective, which has failed, was sending to it");
  }
  worker.wait_until(over, TW_FOREVER);
  // This rank may not progress for a while after a failure: others' operations must end, too.
  if (is_error(run.status())) worker.wait_until([&] { return all.settled(); }, kGrace);
  const Engine::Guard guard(all.engine());
  return run.take_result();
}

/// Past the schedules, over memory that all ranks map.
Status run_directly(Collectives& all, const Call& call, const tw_collective_options& options, CollectiveTask& task,
                    uint64_t limit_ns) {
  DirectArea& area = *all.direct();
  if (Status s = area.begin(task.called, call.name, limit_ns); is_error(s)) return s;
  const Status status = DirectRun(area, call.what, task, all.schedules().costs(), all.group().worker.context.copier).run();
  if (!is_error(status)) remember_call(all, call, options, task);
  return end_directly(all, status);
}

Status run_blocking(Collectives& all, const Call& call, const tw_collective_options& options, CollectiveTask& task,
                    uint64_t limit_ns) {
  CollectiveRun* run = nullptr;
  Status refused = TW_OK;
  {
    const Engine::Guard guard(all.engine());
    if (Status s = all.check(); is_error(s)) return s;  // a progress may have heard of a failure since
    refused = choose_way(all, call, options, &task);
    if (!is_error(refused) && task.schedule != nullptr) {
      run = &all.take_run();
      run->start(std::exchange(task, CollectiveTask{}), nullptr);
    }
  }
  if (is_error(refused)) return all.failed() ? settle(all, refused) : refused;
  if (run == nullptr) return run_directly(all, call, options, task, limit_ns);
  all.group().worker.posted();
  return wait_for(all, *run, call.name, limit_ns);
}

Status run_with(Collectives& all, const Call& call, const tw_collective_options& options, CollectiveTask& task,
                const Completion& completion) {
  Engine& engine = all.engine();
  const Engine::Guard guard(engine);
  if (Status s = all.check(); is_error(s)) return s;  // a progress thread may have heard of a failure since
  if (Status s = choose_way(all, call, options, &task); is_error(s)) return s;
  OpDesc op;
  op.verb = Verb::collective;
  op.length = task.bound.output.length;
  OpRun* const handle = engine.acquire(op, completion);
  if (handle == nullptr) {
    task.bound.scratch = ScratchBlock{};  // under the lock, as it was taken
    return TW_ERR_LIMIT;
  }
  engine.hand_out(*handle, completion);
  all.take_run().start(std::move(task), handle);
  all.group().worker.posted();
  return TW_IN_PROGRESS;
}

}  // namespace

Status end_directly(Collectives& all, Status status) {
  all.direct()->end();
  if (!is_error(status)) return TW_OK;
  if (all.failed()) return settle(all, status);
  return settle(all, all.direct()->fail(status, all.group().rank, last_error()));  // a copy from or to a device
}

Status run_call(tw_group& group, Call& call, const tw_collective_options& options, tw_request* request) {
  if (request != nullptr) *request = TW_REQUEST_NONE;
  const SinkOptions sinks = sinks_of(options);
  const bool blocks = request == nullptr && sinks.named() == 0;
  bool repeated = false;
  if (Status s = blocks ? repeat_call(group, call, options, &repeated) : Status{TW_OK}; repeated) return s;
  if (Status s = check_call(group, call, options); is_error(s)) return s;
  if (options.after_count != 0)
    return fail(TW_ERR_INVALID, "%s: after_steps is for collectives in plans: call this one when the others are over",
                call.name);
  if (blocks && !group.worker.engine->may_progress())
    return fail(TW_ERR_BUSY, "%s: callbacks and handlers run inside progress: pass a request or a callback", call.name);
  trace::LateSpan span(trace::What::collective);
  if (blocks) span.begin();
  const uint64_t limit_ns = options.timeout_ns != 0 ? options.timeout_ns : group.timeout_ns;
  const bool maybe_direct = blocks && (options.algorithm == nullptr || std::strcmp(options.algorithm, "direct") == 0);
  bool finds = false;
  Collectives* all = nullptr;
  CollectiveTask task;
  {
    const Engine::Guard guard(*group.worker.engine);
    if (Status s = Collectives::of(group, &all); is_error(s)) return s;
    if (Status s = all->check(); is_error(s)) return s;
    if (Status s = prepare_task(*all, call, options, &task); is_error(s)) return s;
    if (Status s = check_combined(call, task); is_error(s)) return s;
    span.bytes = task.bound.output.length;
    if (Status s = maybe_direct ? all->begin_direct(call.name, &finds) : Status{TW_OK}; is_error(s)) return s;
    if (finds) task.number = group.started++;  // before what a callback posts in the set-up, on every rank
  }
  if (!blocks) {
    return post_with_sink(group.worker, sinks, request,
                          [&](const Completion& completion) { return run_with(*all, call, options, task, completion); });
  }
  const Occupied here(group);
  if (maybe_direct) {
    if (Status s = finds ? all->find_direct(limit_ns) : Status{TW_OK}; is_error(s)) return settle(*all, s);
    call.what.direct = all->direct() != nullptr;
    if (!call.what.direct && options.algorithm != nullptr)
      return fail(TW_ERR_UNSUPPORTED, "%s: direct: %s", call.name, all->why_not_direct().c_str());
  }
  return run_blocking(*all, call, options, task, limit_ns);
}

}  // namespace thalweg::impl
