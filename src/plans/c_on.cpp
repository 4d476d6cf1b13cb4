// SPDX-License-Identifier: Apache-2.0
// C interface: single operations on a queue.
#include "plans/c_steps.hpp"
#include "plans/queue.hpp"

using namespace thalweg::impl;

namespace {

template <class Make>
Status run_on(tw_queue* queue, const char* call, uint32_t fields, const tw_op_options* given, Make make) {
  if (Status s = check(queue); is_error(s)) return s;
  const Options<tw_op_options> options(given, kOpDefaults);
  if (Status s = options.status(); is_error(s)) return s;
  if (Status s = check_options(*options, {call, fields, 0, true}); is_error(s)) return s;
  PlanStep step;
  if (Status s = make(step); is_error(s)) return s;
  return queue->kept(std::move(step), *options, [queue](tw_plan& plan) { return plan.trigger(queue); });
}

}  // namespace

extern "C" {

tw_status tw_send_on(tw_queue* queue, tw_endpoint* endpoint, const void* buffer, size_t length, uint64_t channel,
                     const tw_op_options* options) {
  return run_on(queue, "tw_send_on", steps::message, options,
                [&](PlanStep& made) { return send_step(endpoint, buffer, length, channel, &made); });
}

tw_status tw_recv_on(tw_queue* queue, tw_endpoint* endpoint, void* buffer, size_t length, uint64_t channel,
                     const tw_op_options* options) {
  return run_on(queue, "tw_recv_on", steps::message, options,
                [&](PlanStep& made) { return recv_step(endpoint, buffer, length, channel, &made); });
}

tw_status tw_put_on(tw_queue* queue, tw_endpoint* endpoint, const void* buffer, size_t length, tw_remote_memory* remote,
                    uint64_t offset, const tw_op_options* options) {
  return run_on(queue, "tw_put_on", steps::put, options,
                [&](PlanStep& made) { return put_step(endpoint, buffer, length, remote, offset, &made); });
}

tw_status tw_get_on(tw_queue* queue, tw_endpoint* endpoint, void* buffer, size_t length, tw_remote_memory* remote,
                    uint64_t offset, const tw_op_options* options) {
  return run_on(queue, "tw_get_on", steps::transfer, options,
                [&](PlanStep& made) { return get_step(endpoint, buffer, length, remote, offset, &made); });
}

tw_status tw_signal_on(tw_queue* queue, tw_remote_signal* signal, uint64_t value, const tw_op_options* options) {
  return run_on(queue, "tw_signal_on", 0, options, [&](PlanStep& made) { return signal_step(signal, value, &made); });
}

tw_status tw_wait_on(tw_queue* queue, tw_signal* signal, uint64_t value, uint32_t compare, const tw_op_options* options) {
  return run_on(queue, "tw_wait_on", 0, options, [&](PlanStep& made) { return wait_step(signal, compare, value, &made); });
}

tw_status tw_copy_on(tw_queue* queue, void* to, const void* from, size_t length, const tw_op_options* options) {
  return run_on(queue, "tw_copy_on", steps::transfer, options,
                [&](PlanStep& made) { return copy_step(to, from, length, &made); });
}

tw_status tw_reduce_on(tw_queue* queue, void* to, const tw_source* sources, size_t source_count, size_t count, uint32_t type,
                       uint32_t op, const tw_op_options* options) {
  return run_on(queue, "tw_reduce_on", 0, options,
                [&](PlanStep& made) { return reduce_step(to, {sources, source_count}, count, type, op, &made); });
}

}  // extern "C"
