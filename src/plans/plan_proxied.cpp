// SPDX-License-Identifier: Apache-2.0
// Steps that the proxy's worker runs for the executor: the ordinary operations, host-triggered.
#include "base/log.hpp"
#include "core/c_checks.hpp"
#include "plans/plan.hpp"

using namespace thalweg::impl;

/// The region's key once more, for the connection between the proxies.
Status tw_plan::import_for_proxy(RemoteRegion& region, ProxyPeer& peer, bool signal, void** out) {
  std::byte key[kKeySize];
  size_t length = sizeof key;
  if (Status s = write_key(region.key, key, &length); is_error(s)) return s;
  RemoteRegion* made = nullptr;
  const Status status = import_key(peer.endpoint, key, length, signal, &made);
  *out = made;
  return status;
}

Status tw_plan::make_proxied(size_t index) {
  PlanStep& step = steps[index];
  Resolved& out = resolved[index];
  if (out.peer == nullptr) {
    Proxy::Route route;
    const Status found = proxy.await_route(*step.endpoint, Deadline(10 * kSecond), &route);
    if (is_error(found)) return found;
    if (found != TW_OK) {
      return fail(TW_ERR_TIMED_OUT,
                  "the host carries this step (%s), and the peer's proxy is not known: it must prepare a plan too",
                  out.why.c_str());
    }
    out.peer = route.peer;
  }
  if (step.remote != nullptr) {
    if (Status s = import_for_proxy(*step.remote, *out.peer, false, reinterpret_cast<void**>(&out.proxy_remote)); is_error(s))
      return s;
  }
  if (step.signal != nullptr) {
    if (Status s = import_for_proxy(*step.signal, *out.peer, true, reinterpret_cast<void**>(&out.proxy_signal)); is_error(s))
      return s;
  }
  out.step = std::make_unique<Proxied>();
  out.step->ring = abort_word + 1 + kProxiedWords * index;
  out.step->done = out.step->ring + 1;
  out.step->value = out.step->ring + 2;
  out.step->address = out.step->ring + 3;
  out.step->failed = [this, index](Status status, const char* why) {
    // What a lost peer leaves behind is stale, too; that it is lost says more.
    const std::string text = why;  // may be last_error()
    const Status state = tw_endpoint_state(resolved[index].peer->endpoint);
    fail_run(static_cast<uint32_t>(index), is_error(state) ? state : status, text.c_str());
  };
  out.step->post = [this, index](Proxied& self, tw_op_options& options) {
    const PlanStep& what = steps[index];
    const Resolved& how = resolved[index];
    tw_endpoint* endpoint = how.peer->endpoint;
    options.layout = what.layout;
    options.remote_layout = what.remote_layout;
    void* const buffer = reinterpret_cast<void*>(*self.address);  // stored before the ring, and again only behind `done`
    const uint64_t value = *self.value;
    if (how.channel != nullptr) how.channel->carry();
    switch (what.verb) {
      case StepVerb::send:
        return tw_send(endpoint, buffer, what.length, how.number, &options, &self.request);
      case StepVerb::recv:
        options.source = endpoint;
        return tw_recv(&proxy.worker(), buffer, what.length, how.number, ~uint64_t{0}, &options, &self.request);
      case StepVerb::put:
        options.flags |= TW_OP_REMOTE;
        options.signal = how.proxy_signal;
        options.signal_op = what.signal_op;
        options.signal_value = value;
        return tw_put(endpoint, buffer, what.length, how.proxy_remote, what.offset, &options, &self.request);
      case StepVerb::get:
        return tw_get(endpoint, buffer, what.length, how.proxy_remote, what.offset, &options, &self.request);
      case StepVerb::signal:
        options.flags |= TW_OP_REMOTE;
        return tw_signal_post(how.proxy_signal, value, &options, &self.request);
      default:
        options.flags |= TW_OP_REMOTE;
        return tw_atomic(endpoint, what.atomic_op, how.proxy_remote, what.offset, what.length, value, what.operand2,
                         reinterpret_cast<void*>(what.result), &options, &self.request);
    }
  };
  proxy.watch(out.step.get());
  if (carried == nullptr) carried = std::make_shared<Carried>(proxy);
  carried->steps.push_back(out.step.get());
  if (executor->device() == nullptr) return TW_OK;  // the thread that runs the plan progresses it
  warn_once(("plan-proxied-" + out.why).c_str(),
            "a step of a plan (" + std::string(name_of(step.verb)) + ") is carried by the host: " + out.why);
  return TW_OK;
}
