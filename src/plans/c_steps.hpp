// SPDX-License-Identifier: Apache-2.0
// From the arguments of C functions to steps: the same for plans and for single operations on a queue.
#pragma once
#include <span>

#include "core/c_checks.hpp"
#include "plans/plan_list.hpp"

namespace thalweg::impl {

/// What steps of each kind take; those of plans also have an order among each other.
namespace steps {
inline constexpr uint32_t message = fields::layout, transfer = fields::layout | fields::remote_layout,
                          put = transfer | fields::signal, counted = fields::increment, ordered = fields::after_steps;
}  // namespace steps

inline Status remote_of(tw_remote_memory* remote, PlanStep* out) {
  if (Status s = check(out->endpoint); is_error(s)) return s;
  out->op.remote = region_of(remote);
  return check_region(out->endpoint, out->op.remote);
}

inline void local_of(Verb verb, tw_endpoint* endpoint, const void* buffer, size_t length, PlanStep* out) {
  out->op.verb = verb;
  out->endpoint = endpoint;
  out->op.address = static_cast<std::byte*>(const_cast<void*>(buffer));
  out->op.length = length;
}

inline Status send_step(tw_endpoint* endpoint, const void* buffer, size_t length, uint64_t channel, PlanStep* out) {
  if (Status s = check(endpoint); is_error(s)) return s;
  local_of(Verb::send, endpoint, buffer, length, out);
  out->op.tag = channel;
  return TW_OK;
}

inline Status recv_step(tw_endpoint* endpoint, void* buffer, size_t length, uint64_t channel, PlanStep* out) {
  if (Status s = check(endpoint); is_error(s)) return s;
  local_of(Verb::recv, endpoint, buffer, length, out);
  out->op.tag = channel;
  return TW_OK;
}

inline Status put_step(tw_endpoint* endpoint, const void* buffer, size_t length, tw_remote_memory* remote, uint64_t offset,
                       PlanStep* out) {
  local_of(Verb::put, endpoint, buffer, length, out);
  out->op.remote_offset = offset;
  return remote_of(remote, out);
}

inline Status get_step(tw_endpoint* endpoint, void* buffer, size_t length, tw_remote_memory* remote, uint64_t offset,
                       PlanStep* out) {
  local_of(Verb::get, endpoint, buffer, length, out);
  out->op.remote_offset = offset;
  return remote_of(remote, out);
}

inline Status signal_step(tw_remote_signal* signal, uint64_t value, PlanStep* out) {
  RemoteRegion* region = region_of(signal);
  if (region == nullptr) return fail(TW_ERR_INVALID, "the signal is NULL");
  if (region->peer == nullptr) return fail(TW_ERR_STALE, "the signal was imported through an endpoint that is closed");
  out->op.verb = Verb::signal;
  out->endpoint = region->peer->endpoint;
  out->op.signal = region;
  out->op.signal_op = static_cast<uint8_t>(region->key.device);  // its kind
  out->op.signal_value = value;
  return TW_OK;
}

inline Status wait_step(tw_signal* signal, uint32_t compare, uint64_t value, PlanStep* out) {
  if (Status s = check(signal); is_error(s)) return s;
  if (compare > TW_COMPARE_NE) return fail(TW_ERR_INVALID, "comparison %u is not one of TW_COMPARE_GE, _EQ, _NE", compare);
  out->op.verb = Verb::wait;
  out->waited = signal;
  out->op.atomic_op = static_cast<uint8_t>(compare);
  out->op.signal_value = value;
  return TW_OK;
}

inline Status copy_step(void* to, const void* from, size_t length, PlanStep* out) {
  local_of(Verb::copy, nullptr, from, length, out);
  out->op.remote_offset = reinterpret_cast<uint64_t>(to);
  return TW_OK;
}

/// A collective by kernels; of: its name.
inline PlanStep exchange_step(const char* of, std::shared_ptr<const ExchangeStep> exchange) {
  PlanStep step;
  step.op.verb = Verb::collective;
  step.op.length = exchange->what.bytes;
  step.of = of;
  step.exchange = std::move(exchange);
  return step;
}

/// (c_reduce.cpp)
Status reduce_step(void* to, std::span<const tw_source> sources, size_t count, uint32_t type, uint32_t op, PlanStep* out);

}  // namespace thalweg::impl
