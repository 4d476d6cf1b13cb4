// SPDX-License-Identifier: Apache-2.0
// Steps that the proxy's worker runs for the executor: the ordinary operations, host-triggered.
#include "plans/plan_proxied.hpp"

#include <algorithm>

#include "base/log.hpp"
#include "core/c_checks.hpp"
#include "protocols/bounce.hpp"
#include "protocols/operation_routes.hpp"

using namespace thalweg::impl;

namespace {

constexpr uint32_t kStepsOfBounced = 3;  // of the program: a copy, the doorbell, and the wait for its end

/// What is done with the other memories of what is carried.
void carry_along(Resolved& one) {
  for (Reaching* const other : {&one.local, &one.remote.how, &one.signal.how}) {
    if (other->asked && other->route() < PreparedRoute::carried) other->facts.along = other->facts.carriable;
  }
}

/// Runs may name pieces of device memory to the peer, but must not make what these lie in: to pin it may wait for their own kernel.
void prepare_pieces(const OpDesc& op, tw_endpoint& endpoint) {
  if ((op.verb != Verb::send && op.verb != Verb::put) || op.length == 0) return;
  Engine& engine = *endpoint.worker->engine;
  const int64_t first = op.layout != nullptr ? op.layout->first : 0;
  BufferInfo info;
  if (op.length < engine.options().bounces.from || !on_device(op.address + first, &info)) return;
  const Engine::Guard guard(engine);
  if (endpoint.peer) make_bounce(engine, *endpoint.peer, info.device, false);
}

}  // namespace

/// The region's key once more, for the connection between the proxies.
Status CarriedSteps::import_for_proxy(RemoteRegion& region, ProxyPeer& peer, bool signal, void** out) {
  std::byte key[kKeySize];
  size_t length = sizeof key;
  if (Status s = write_key(region.key, key, &length); is_error(s)) return s;
  RemoteRegion* made = nullptr;
  const Status status = import_key(peer.endpoint, key, length, signal, &made);
  *out = made;
  return status;
}

/// One run of a proxied step, or of a piece of it: its record, with this run's buffer and value, between the proxies' workers. The last
/// piece, which the program rings for behind all others, has the signal.
Status CarriedSteps::post(size_t index, uint32_t piece, const OpDesc& prepared, const Completion& completion) {
  const Resolved& how = resolved_[index];
  const Proxied& self = *how.steps[piece];
  const PlanPieces::Range range = pieces_.range(index, piece);
  tw_endpoint* const endpoint = how.peer->endpoint;
  if (how.channel != nullptr) how.channel->carry();
  const bool packed = prepared.layout == nullptr || (how.bounce != 0 && *self.address == how.bounce);
  if (prepared.verb == Verb::send && packed) {
    const Status status = send_prepared(*endpoint, reinterpret_cast<void*>(*self.address), range.length, how.number);
    if (status != TW_AGAIN) return status;
  }
  OpDesc op = prepared;
  op.peer = endpoint->peer ? &*endpoint->peer : nullptr;
  op.address = reinterpret_cast<std::byte*>(*self.address);  // stored before the ring, and again only after `done`
  (op.verb == Verb::atomic ? op.operand : op.signal_value) = *self.value;
  if (packed) op.layout = nullptr;
  op.length = range.length;
  op.remote_offset += range.offset;
  op.remote = region_of(how.proxy_remote);
  op.signal = piece + 1 == how.steps.size() ? region_of(how.proxy_signal) : nullptr;
  if (how.channel != nullptr) {
    op.tag = how.number;
    op.mask = ~uint64_t{0};
  }
  if (op.verb == Verb::put || op.verb == Verb::signal || op.verb == Verb::atomic) op.flags = TW_OP_REMOTE;
  return start_prepared(*endpoint, op, completion);
}

Status CarriedSteps::make_step(size_t index, const Deadline& deadline) {
  const PlanStep& step = list_[index];
  Resolved& out = resolved_[index];
  if (out.peer == nullptr) {
    Proxy::Route route;
    const Status found = proxy_.await_route(*step.endpoint, deadline, &route);
    if (is_error(found)) return found;
    if (found != TW_OK) {
      return fail(TW_ERR_TIMED_OUT,
                  "the host carries this step (%s), and the peer's proxy is not known: it must prepare a plan too",
                  out.why.c_str());
    }
    out.peer = route.peer;
  }
  make_bounce(index);
  if (!out.bounced) prepare_pieces(step.op, *out.peer->endpoint);
  if (step.op.remote != nullptr) {
    if (Status s = import_for_proxy(*step.op.remote, *out.peer, false, reinterpret_cast<void**>(&out.proxy_remote));
        is_error(s))
      return s;
  }
  if (step.op.signal != nullptr) {
    if (Status s = import_for_proxy(*step.op.signal, *out.peer, true, reinterpret_cast<void**>(&out.proxy_signal)); is_error(s))
      return s;
  }
  if (executor_->device() == nullptr) return TW_OK;  // the thread that runs the plan progresses it
  warn_once(("plan-proxied-" + out.why).c_str(),
            "a step of a plan (" + std::string(name_of(step.op.verb)) + ") is carried by the host: " + out.why);
  return TW_OK;
}

/// Would kernels copy the step's bytes? By what is known of the device and of the link.
bool CarriedSteps::is_short(size_t index) const {
  const DeviceCosts costs = proxy_.context.device_costs.of(*executor_->device());
  tw_endpoint* const endpoint = resolved_[index].peer->endpoint;
  double link_byte = 0;
  {
    const Engine::Guard guard(*endpoint->worker->engine);
    if (endpoint->peer && endpoint->peer->link != nullptr) link_byte = costs_of(*endpoint->peer).copy;
  }
  return bounced(list_[index].op.length, list_[index].moves_here() ? costs.in : costs.out, link_byte);
}

/// Without memory for it the host moves the bytes from where they are.
void CarriedSteps::make_bounce(size_t index) {
  const PlanStep& step = list_[index];
  Resolved& out = resolved_[index];
  const bool moves = step.op.length != 0 && (step.moves_to_peer() || step.moves_here());
  if (!moves || executor_->device() == nullptr || pieces_.count(index) != 1) return;
  if (list_.size() * kStepsOfBounced > kMostSteps || !is_short(index) || !resolved_.may_bounce(index)) return;
  uint64_t address = 0;
  if (!proxy_.take_bounces(*out.peer, step.op.length, &address)) return;
  if (!is_error(resolved_.bounce(index, address))) return;
  out.peer->bounces->free(address, step.op.length);
}

void CarriedSteps::make_piece(size_t index, uint32_t piece, uint64_t* words) {
  auto made = std::make_unique<Proxied>();
  made->ring = words;
  made->done = words + 1;
  made->received = words + 2;
  made->value = words + 3;
  made->address = words + 4;
  made->failed = [this, index](Status status, const char* why) {
    // A lost peer's memory is stale, too; its loss is the better error.
    const std::string text = why;  // may be last_error()
    const Status state = tw_endpoint_state(resolved_[index].peer->endpoint);
    failure_.fail_step(static_cast<uint32_t>(index), is_error(state) ? state : status, text.c_str());
  };
  if (list_[index].op.verb == Verb::recv && list_[index].exact()) made->expected = list_[index].op.length;
  // The list's own record may get the next run's value while this one is carried.
  made->post = [this, index, piece, op = list_[index].op](const Completion& completion) {
    return post(index, piece, op, completion);
  };
  resolved_[index].steps.push_back(std::move(made));
  if (carried_ == nullptr) carried_ = std::make_shared<Carried>(proxy_);
  carried_->steps.push_back(resolved_[index].steps.back().get());
}

Status CarriedSteps::make(Executor& executor, const Deadline& deadline) {
  executor_ = &executor;
  size_t pieces = 0;
  for (size_t i = 0; i < list_.size(); ++i) pieces += resolved_[i].proxied ? pieces_.count(i) : 0;
  if (pieces == 0) return TW_OK;
  words_length_ = pieces * kProxiedWords * sizeof(uint64_t);
  if (Status s = executor.pinned().allocate(words_length_, &words_); is_error(s)) return s;
  auto* words = reinterpret_cast<uint64_t*>(words_);
  for (size_t i = 0; i < list_.size(); ++i) {
    if (!resolved_[i].proxied) continue;
    carry_along(resolved_[i]);
    if (Status s = make_step(i, deadline); is_error(s)) return at_step(i, list_[i], s);
    for (uint32_t k = 0; k < pieces_.count(i); ++k, words += kProxiedWords) make_piece(i, k, words);
    for (const auto& step : resolved_[i].steps) proxy_.watch(step.get());
  }
  return TW_OK;
}

void CarriedSteps::release() {
  carried_.reset();
  if (executor_ != nullptr) executor_->pinned().free(words_, words_length_);
  words_ = 0;
}

bool CarriedSteps::under_way() const {
  const auto runs = [](const auto& step) { return step->running.load(std::memory_order_acquire); };
  return std::any_of(resolved_.begin(), resolved_.end(),
                     [&](const Resolved& one) { return std::any_of(one.steps.begin(), one.steps.end(), runs); });
}

Status CarriedSteps::unwatch() {
  for (Resolved& one : resolved_) {
    while (!one.steps.empty()) {
      if (Status s = proxy_.unwatch(one.steps.back().get()); is_error(s)) return s;
      one.steps.pop_back();
    }
  }
  return TW_OK;
}
