// SPDX-License-Identifier: Apache-2.0
// Steps that the proxy's worker runs for the executor: the ordinary operations, host-triggered.
#include "plans/plan_proxied.hpp"

#include "base/log.hpp"
#include "core/c_checks.hpp"
#include "protocols/bounce.hpp"

using namespace thalweg::impl;

namespace {

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

/// One run of a proxied step: its record, with this run's buffer and value, between the proxies' workers.
Status CarriedSteps::post(size_t index, const Proxied& self, const Completion& completion) {
  const Resolved& how = resolved_[index];
  tw_endpoint* const endpoint = how.peer->endpoint;
  OpDesc op = list_[index].op;
  op.peer = endpoint->peer ? &*endpoint->peer : nullptr;
  op.address = reinterpret_cast<std::byte*>(*self.address);  // stored before the ring, and again only after `done`
  (op.verb == Verb::atomic ? op.operand : op.signal_value) = *self.value;
  op.remote = region_of(how.proxy_remote);
  op.signal = region_of(how.proxy_signal);
  if (how.channel != nullptr) {
    op.tag = how.number;
    op.mask = ~uint64_t{0};
    how.channel->carry();
  }
  if (op.verb == Verb::put || op.verb == Verb::signal || op.verb == Verb::atomic) op.flags = TW_OP_REMOTE;
  return start_prepared(*endpoint, op, completion);
}

Status CarriedSteps::make_step(const Executor& executor, size_t index) {
  const PlanStep& step = list_[index];
  Resolved& out = resolved_[index];
  if (out.peer == nullptr) {
    Proxy::Route route;
    const Status found = proxy_.await_route(*step.endpoint, Deadline(10 * kSecond), &route);
    if (is_error(found)) return found;
    if (found != TW_OK) {
      return fail(TW_ERR_TIMED_OUT,
                  "the host carries this step (%s), and the peer's proxy is not known: it must prepare a plan too",
                  out.why.c_str());
    }
    out.peer = route.peer;
  }
  prepare_pieces(step.op, *out.peer->endpoint);
  if (step.op.remote != nullptr) {
    if (Status s = import_for_proxy(*step.op.remote, *out.peer, false, reinterpret_cast<void**>(&out.proxy_remote));
        is_error(s))
      return s;
  }
  if (step.op.signal != nullptr) {
    if (Status s = import_for_proxy(*step.op.signal, *out.peer, true, reinterpret_cast<void**>(&out.proxy_signal)); is_error(s))
      return s;
  }
  out.step = std::make_unique<Proxied>();
  out.step->ring = failure_.proxied_words(index);
  out.step->done = out.step->ring + 1;
  out.step->value = out.step->ring + 2;
  out.step->address = out.step->ring + 3;
  out.step->failed = [this, index](Status status, const char* why) {
    // A lost peer's memory is stale, too; its loss is the better error.
    const std::string text = why;  // may be last_error()
    const Status state = tw_endpoint_state(resolved_[index].peer->endpoint);
    failure_.fail_step(static_cast<uint32_t>(index), is_error(state) ? state : status, text.c_str());
  };
  out.step->post = [this, index](const Proxied& self, const Completion& completion) { return post(index, self, completion); };
  proxy_.watch(out.step.get());
  if (carried_ == nullptr) carried_ = std::make_shared<Carried>(proxy_);
  carried_->steps.push_back(out.step.get());
  if (executor.device() == nullptr) return TW_OK;  // the thread that runs the plan progresses it
  warn_once(("plan-proxied-" + out.why).c_str(),
            "a step of a plan (" + std::string(name_of(step.op.verb)) + ") is carried by the host: " + out.why);
  return TW_OK;
}

Status CarriedSteps::make(const Executor& executor) {
  for (size_t i = 0; i < list_.size(); ++i) {
    if (!resolved_[i].proxied) continue;
    carry_along(resolved_[i]);
    if (Status s = make_step(executor, i); is_error(s)) return at_step(i, list_[i], s);
  }
  return TW_OK;
}

Status CarriedSteps::unwatch() {
  for (Resolved& one : resolved_) {
    if (one.step == nullptr) continue;
    if (Status s = proxy_.unwatch(one.step.get()); is_error(s)) return s;
    one.step.reset();
  }
  return TW_OK;
}
