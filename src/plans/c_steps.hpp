// SPDX-License-Identifier: Apache-2.0
// From the arguments of C functions to steps: the same for plans and for single operations on a queue.
#pragma once
#include "core/c_checks.hpp"
#include "plans/plan.hpp"

namespace thalweg::impl {

/// What steps of each kind take; those of plans also have an order among each other.
namespace steps {
inline constexpr uint32_t message = fields::layout, transfer = fields::layout | fields::remote_layout,
                          put = transfer | fields::signal, counted = fields::increment, ordered = fields::after_steps;
}  // namespace steps

inline Status remote_of(tw_remote_memory* remote, PlanStep* out) {
  out->remote = region_of(remote);
  if (out->remote == nullptr) return fail(TW_ERR_INVALID, "the remote memory is NULL");
  if (out->remote->peer == nullptr) return fail(TW_ERR_STALE, "the memory was imported through an endpoint that is closed");
  if (out->endpoint != out->remote->peer->endpoint) {
    return fail(TW_ERR_INVALID, "the memory was imported through another endpoint");
  }
  return TW_OK;
}

inline void local_of(StepVerb verb, tw_endpoint* endpoint, const void* buffer, size_t length, PlanStep* out) {
  out->verb = verb;
  out->endpoint = endpoint;
  out->address = reinterpret_cast<uint64_t>(buffer);
  out->length = length;
}

inline Status send_step(tw_endpoint* endpoint, const void* buffer, size_t length, uint64_t channel, PlanStep* out) {
  if (Status s = check(endpoint); is_error(s)) return s;
  local_of(StepVerb::send, endpoint, buffer, length, out);
  out->tag = channel;
  return TW_OK;
}

inline Status recv_step(tw_endpoint* endpoint, void* buffer, size_t length, uint64_t channel, PlanStep* out) {
  if (Status s = check(endpoint); is_error(s)) return s;
  local_of(StepVerb::recv, endpoint, buffer, length, out);
  out->tag = channel;
  return TW_OK;
}

inline Status put_step(tw_endpoint* endpoint, const void* buffer, size_t length, tw_remote_memory* remote, uint64_t offset,
                       PlanStep* out) {
  local_of(StepVerb::put, endpoint, buffer, length, out);
  out->offset = offset;
  return remote_of(remote, out);
}

inline Status get_step(tw_endpoint* endpoint, void* buffer, size_t length, tw_remote_memory* remote, uint64_t offset,
                       PlanStep* out) {
  local_of(StepVerb::get, endpoint, buffer, length, out);
  out->offset = offset;
  return remote_of(remote, out);
}

inline Status signal_step(tw_remote_signal* signal, uint64_t value, PlanStep* out) {
  RemoteRegion* region = region_of(signal);
  if (region == nullptr) return fail(TW_ERR_INVALID, "the signal is NULL");
  if (region->peer == nullptr) return fail(TW_ERR_STALE, "the signal was imported through an endpoint that is closed");
  out->verb = StepVerb::signal;
  out->endpoint = region->peer->endpoint;
  out->signal = region;
  out->signal_op = region->key.device;  // its kind
  out->value = value;
  return TW_OK;
}

inline Status wait_step(tw_signal* signal, uint32_t compare, uint64_t value, PlanStep* out) {
  if (Status s = check(signal); is_error(s)) return s;
  if (compare > TW_COMPARE_NE) return fail(TW_ERR_INVALID, "comparison %u is not one of TW_COMPARE_GE, _EQ, _NE", compare);
  out->verb = StepVerb::wait;
  out->waited = signal;
  out->compare = compare;
  out->value = value;
  return TW_OK;
}

}  // namespace thalweg::impl
