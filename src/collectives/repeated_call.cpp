// SPDX-License-Identifier: Apache-2.0
#include "collectives/repeated_call.hpp"

#include <memory>
#include <new>
#include <utility>

#include "collectives/collectives.hpp"
#include "collectives/direct_run.hpp"
#include "core/c_checks.hpp"
#include "trace/trace.hpp"

namespace thalweg::impl {
namespace {

bool plain(const tw_collective_options& options) {
  return options.flags == 0 && options.algorithm == nullptr && options.scale == 0 && options.reduce == nullptr &&
         options.after_count == 0 && options.commutative == 1;
}

CallShape shape_of(const Call& call) {
  return {
      call.what.count, call.what.root, call.type, call.op, call.send.address == TW_IN_PLACE, call.recv.address == TW_IN_PLACE};
}

/// The one before it of its kind, if that was like it. Under the engine's lock.
RepeatedCall* find(const tw_group& group, const Call& call, const CallShape& shape) {
  if (group.collectives == nullptr || is_error(group.collectives->check())) return nullptr;
  RepeatedCall* const last = group.collectives->repeated(call.what.kind).get();
  return last != nullptr && last->shape == shape ? last : nullptr;
}

/// In the area's collective, which has begun. TW_ERR_NO_MATCH: it is another's by now, or a buffer is a device's.
Status bind(const tw_group& group, Call& call, const CallShape& shape, RepeatedCall& last) {
  if (last.shape != shape) return TW_ERR_NO_MATCH;
  call.bytes = last.bytes;
  if (Status s = bind_sides(group, call, &last.task.bound); is_error(s)) return s;
  return last.task.bound.input.on_device || last.task.bound.output.on_device ? TW_ERR_NO_MATCH : TW_OK;
}

}  // namespace

Status repeat_call(tw_group& group, Call& call, const tw_collective_options& options, bool* repeated) {
  if (!plain(options) || call.has_counts() || !group.worker.engine->may_progress()) return TW_OK;
  const CallShape shape = shape_of(call);
  RepeatedCall* last = nullptr;
  uint64_t called = 0;
  {
    const Engine::Guard guard(*group.worker.engine);
    last = find(group, call, shape);
    if (last == nullptr) return TW_OK;
    called = last->task.called;
  }
  Collectives& all = *group.collectives;
  DirectArea& area = *all.direct();
  const Occupied here(group);
  *repeated = true;
  if (Status s = area.begin(called, call.name, options.timeout_ns != 0 ? options.timeout_ns : group.timeout_ns); is_error(s))
    return s;
  if (Status s = bind(group, call, shape, *last); is_error(s)) {
    area.end();
    *repeated = s != TW_ERR_NO_MATCH;
    return s;
  }
  trace::Span span(trace::What::collective);
  span.bytes = last->task.bound.output.length;
  return end_directly(all, DirectRun(area, last->what, last->task, all.schedules().costs(), group.worker.context.copier).run());
}

void remember_call(Collectives& all, const Call& call, const tw_collective_options& options, CollectiveTask& task) {
  const Bound& bound = task.bound;
  if (!plain(options) || call.has_counts() || bound.input.on_device || bound.output.on_device) return;
  const Engine::Guard guard(all.engine());
  std::unique_ptr<RepeatedCall>& kept = all.repeated(call.what.kind);
  if (kept == nullptr) kept.reset(new (std::nothrow) RepeatedCall);
  if (kept == nullptr) return;
  kept->shape = shape_of(call);
  kept->what = call.what;
  kept->bytes = call.bytes;
  kept->task = std::move(task);
}

}  // namespace thalweg::impl
