// SPDX-License-Identifier: Apache-2.0
// C interface: plans.
#include <chrono>
#include <new>
#include <optional>
#include <thread>

#include "base/interrupt.hpp"
#include "base/waiting.hpp"
#include "core/c_checks.hpp"
#include "plans/c_steps.hpp"
#include "plans/queue.hpp"

using namespace thalweg::impl;

namespace {

Status check(const tw_plan* plan) {
  if (plan == nullptr) return fail(TW_ERR_INVALID, "the plan is NULL");
  return plan->born.check("plan");
}

/// A step that `make` filled in goes into the plan.
template <class Make>
Status add(tw_plan* plan, const char* call, uint32_t fields, const tw_op_options* given, uint32_t* number, Make make) {
  if (Status s = check(plan); is_error(s)) return s;
  const Options<tw_op_options> options(given, kOpDefaults);
  if (Status s = options.status(); is_error(s)) return s;
  if (Status s = check_options(*options, {call, fields | steps::ordered, 0, true}); is_error(s)) return s;
  PlanStep step;
  if (Status s = make(step); is_error(s)) return s;
  return plan->add(std::move(step), *options, number);
}

}  // namespace

extern "C" {

tw_status tw_plan_create(tw_context* context, const tw_plan_options* given, tw_plan** plan) {
  if (Status s = check(context); is_error(s)) return s;
  if (plan == nullptr) return fail(TW_ERR_INVALID, "the place for the plan is NULL");
  const tw_plan_options defaults = TW_PLAN_OPTIONS_INIT;
  const Options<tw_plan_options> options(given, defaults);
  if (Status s = options.status(); is_error(s)) return s;
  Proxy* proxy = nullptr;
  if (Status s = Proxy::of(*context, &proxy); is_error(s)) return s;
  PlanOptions asked;
  if (options->place != nullptr) asked.place = options->place;
  if (options->timeout_ns != 0) asked.timeout_ns = options->timeout_ns;
  asked.blocks = options->blocks;
  asked.chunk_bytes = options->chunk_bytes;
  *plan = new tw_plan(*proxy, asked);
  return TW_OK;
}

tw_status tw_plan_destroy(tw_plan* plan) {
  if (plan == nullptr || plan->born.forked()) return TW_OK;
  if (plan->prepared()) {
    if (Status s = plan->at_rest(); is_error(s)) return s;
  }
  plan->end_for_good();
  tw_queue::forget(*plan);  // other threads may ask queues how their plans are
  if (Status s = plan->release(); is_error(s)) return s;
  if (!plan->owed().empty()) {
    return fail(TW_ERR_BUSY,
                "the peer has not given back %zu buffers, and may still store there: it ends what it has at %s, then "
                "this plan is destroyed by another call; until then keep the buffers",
                plan->owed().size(), text_of(plan->owed().front().first->name).c_str());
  }
  delete plan;
  return TW_OK;
}

tw_status tw_plan_send(tw_plan* plan, tw_endpoint* endpoint, const void* buffer, size_t length, uint64_t channel,
                       const tw_op_options* options, uint32_t* step) {
  return add(plan, "tw_plan_send", steps::message, options, step,
             [&](PlanStep& made) { return send_step(endpoint, buffer, length, channel, &made); });
}

tw_status tw_plan_recv(tw_plan* plan, tw_endpoint* endpoint, void* buffer, size_t length, uint64_t channel,
                       const tw_op_options* options, uint32_t* step) {
  return add(plan, "tw_plan_recv", steps::message, options, step,
             [&](PlanStep& made) { return recv_step(endpoint, buffer, length, channel, &made); });
}

tw_status tw_plan_put(tw_plan* plan, tw_endpoint* endpoint, const void* buffer, size_t length, tw_remote_memory* remote,
                      uint64_t offset, const tw_op_options* options, uint32_t* step) {
  return add(plan, "tw_plan_put", steps::put | steps::counted, options, step,
             [&](PlanStep& made) { return put_step(endpoint, buffer, length, remote, offset, &made); });
}

tw_status tw_plan_get(tw_plan* plan, tw_endpoint* endpoint, void* buffer, size_t length, tw_remote_memory* remote,
                      uint64_t offset, const tw_op_options* options, uint32_t* step) {
  return add(plan, "tw_plan_get", steps::transfer, options, step,
             [&](PlanStep& made) { return get_step(endpoint, buffer, length, remote, offset, &made); });
}

tw_status tw_plan_signal(tw_plan* plan, tw_remote_signal* signal, uint64_t value, const tw_op_options* options,
                         uint32_t* step) {
  return add(plan, "tw_plan_signal", steps::counted, options, step,
             [&](PlanStep& made) { return signal_step(signal, value, &made); });
}

tw_status tw_plan_wait(tw_plan* plan, tw_signal* signal, uint64_t value, uint32_t compare, const tw_op_options* options,
                       uint32_t* step) {
  return add(plan, "tw_plan_wait", steps::counted, options, step,
             [&](PlanStep& made) { return wait_step(signal, compare, value, &made); });
}

tw_status tw_plan_atomic(tw_plan* plan, tw_endpoint* endpoint, uint32_t op, tw_remote_memory* remote, uint64_t offset,
                         size_t size, uint64_t operand, uint64_t compare, void* result, const tw_op_options* options,
                         uint32_t* step) {
  return add(plan, "tw_plan_atomic", 0, options, step, [&](PlanStep& made) {
    made.op.verb = Verb::atomic;
    made.endpoint = endpoint;
    if (Status s = remote_of(remote, &made); is_error(s)) return s;
    if (Status s = check_atomic(op, size, *made.op.remote, offset, operand, compare); is_error(s)) return s;
    if (reinterpret_cast<uintptr_t>(result) % size != 0)
      return fail(TW_ERR_MISALIGNED, "the place for the old value is not aligned to the word's %zu bytes", size);
    made.op.length = size;
    made.op.atomic_op = static_cast<uint8_t>(op);
    made.op.word = static_cast<uint8_t>(size);
    made.op.operand = operand;
    made.op.compare = compare;
    made.op.result = result;
    made.op.remote_offset = offset;
    return Status{TW_OK};
  });
}

tw_status tw_plan_copy(tw_plan* plan, void* to, const void* from, size_t length, const tw_op_options* options, uint32_t* step) {
  return add(plan, "tw_plan_copy", steps::transfer, options, step,
             [&](PlanStep& made) { return copy_step(to, from, length, &made); });
}

tw_status tw_plan_reduce(tw_plan* plan, void* to, const tw_source* sources, size_t source_count, size_t count, uint32_t type,
                         uint32_t op, const tw_op_options* options, uint32_t* step) {
  return add(plan, "tw_plan_reduce", 0, options, step,
             [&](PlanStep& made) { return reduce_step(to, {sources, source_count}, count, type, op, &made); });
}

tw_status tw_plan_prepare(tw_plan* plan, uint64_t timeout_ns) {
  if (Status s = check(plan); is_error(s)) return s;
  return plan->prepare(timeout_ns);
}

tw_status tw_plan_trigger(tw_plan* plan, tw_queue* queue) {
  if (Status s = check(plan); is_error(s)) return s;
  if (queue != nullptr) {
    if (Status s = check(queue); is_error(s)) return s;
  }
  return plan->trigger(queue);
}

tw_status tw_plan_trigger_stream(tw_plan* plan, void* stream) {
  if (Status s = check(plan); is_error(s)) return s;
  if (!plan->prepared()) return fail(TW_ERR_INVALID, "the plan is not prepared: call tw_plan_prepare");
  tw_queue* queue = nullptr;
  if (Status s = queue_of_stream(*plan, stream, &queue); is_error(s)) return s;
  return plan->trigger(queue);
}

tw_status tw_plan_test(tw_plan* plan) {
  if (Status s = check(plan); is_error(s)) return s;
  return plan->test();
}

tw_status tw_plan_finish(tw_plan* plan, uint64_t timeout_ns) {
  if (Status s = check(plan); is_error(s)) return s;
  // From the end of the spins on: most runs end before, and reading the clock takes longer than a poll.
  std::optional<Deadline> deadline;
  Waiting waiting;
  for (;;) {
    if (const Status status = plan->test(); status != TW_IN_PROGRESS) return status;
    const Waiting::Next next = waiting.idle();
    if (waiting.spinning()) continue;
    if (!deadline) deadline.emplace(timeout_ns);
    if (deadline->passed()) return fail(TW_ERR_TIMED_OUT, "the plan is still running");
    if (Status s = interrupted(); is_error(s)) return s;
    if (next == Waiting::Next::sleep) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

tw_status tw_plan_run(tw_plan* plan, uint64_t timeout_ns) {
  if (Status s = tw_plan_trigger(plan, nullptr); is_error(s)) return s;
  return tw_plan_finish(plan, timeout_ns);
}

tw_status tw_plan_update(tw_plan* plan, uint32_t step, const void* address, const uint64_t* value) {
  if (Status s = check(plan); is_error(s)) return s;
  return plan->update(step, address, value);
}

tw_status tw_plan_explain(tw_plan* plan, char* buffer, size_t* size) {
  if (Status s = check(plan); is_error(s)) return s;
  const std::string text = plan->explain();
  return copy_out(text.c_str(), text.size() + 1, buffer, size);
}

}  // extern "C"
