// SPDX-License-Identifier: Apache-2.0
// The channels of a plan: found, opened, with a landing for every receive.
#include <map>

#include "base/clock.hpp"
#include "core/c_checks.hpp"
#include "plans/plan.hpp"

using namespace thalweg::impl;

namespace {

bool uses_channel(const PlanStep& step) { return step.verb == StepVerb::send || step.verb == StepVerb::recv; }

Status missing(const PlanStep& step, const char* what) {
  return fail(TW_ERR_TIMED_OUT, "the channel with tag %llu (%s): %s", static_cast<unsigned long long>(step.tag),
              step.verb == StepVerb::send ? "to the peer" : "from the peer", what);
}

Status lost(tw_endpoint& endpoint) {
  const Status state = tw_endpoint_state(&endpoint);
  return is_error(state) ? fail(state, "the peer of a step is lost") : Status{TW_OK};
}

}  // namespace

/// Progresses the endpoint's worker until its peer's agent is known. TW_IN_PROGRESS: not by the deadline.
Status tw_plan::await_route(tw_endpoint& endpoint, const Deadline& deadline, Agent::Route* out) {
  const Deadline patience(kSecond);  // an agent that is not there: soon the endpoint says that its process is gone
  for (;;) {
    const Status status = agent.route(endpoint, out);
    if (Status s = lost(endpoint); is_error(s)) return s;
    if (status == TW_OK || (is_error(status) ? patience : deadline).passed()) return status;
    if (tw_progress(endpoint.worker) == 0) std::this_thread::yield();
  }
}

Status tw_plan::find_channel(PlanStep& step, Resolved& out, const Deadline& deadline) {
  if (Status s = thalweg::impl::check(step.endpoint); is_error(s)) return s;
  Agent::Route route;
  const Status found = await_route(*step.endpoint, deadline, &route);
  if (is_error(found)) return found;
  if (found != TW_OK) return missing(step, "the peer has not prepared its end, or does not progress its worker");
  const bool sends = step.verb == StepVerb::send;
  ChannelName name;
  name.sender = sends ? route.mine : route.theirs;
  name.receiver = sends ? route.theirs : route.mine;
  name.tag = step.tag;
  const std::lock_guard lock(agent.mutex());
  out.peer = route.peer;
  if (Status s = agent.channel(name, sends, *executor, *route.peer, &out.channel); is_error(s)) {
    out.channel = nullptr;
    return s;
  }
  out.channel->add(this);
  if (sends || out.proxied) return TW_OK;
  uint16_t index = 0;
  const Status status = out.channel->offer(step.address, step.layout, step.length, &index);
  if (!is_error(status)) out.landing = index;
  return status;
}

Status tw_plan::open_channels(const Deadline& deadline) {
  // Every peer is greeted before any is waited for: in a ring each one waits for the next.
  for (const PlanStep& step : steps) {
    if (!uses_channel(step)) continue;
    Agent::Route route;
    if (Status s = thalweg::impl::check(step.endpoint); is_error(s)) return s;
    static_cast<void>(agent.route(*step.endpoint, &route));  // whatever it says, find_channel() is told, too
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    if (!uses_channel(steps[i])) continue;
    if (Status s = find_channel(steps[i], resolved[i], deadline); is_error(s)) return s;
  }
  {
    const std::lock_guard lock(agent.mutex());
    for (size_t i = 0; i < steps.size(); ++i) {
      Resolved& one = resolved[i];
      if (one.channel == nullptr) continue;
      // A buffer that the executor does not reach makes the whole channel go by the host.
      Status reachable = one.proxied ? Status{TW_ERR_UNREACHABLE} : Status{TW_OK};
      std::string why = one.why;
      for (size_t j = 0; j < steps.size() && !is_error(reachable); ++j) {
        if (resolved[j].channel != one.channel || !resolved[j].proxied) continue;
        reachable = TW_ERR_UNREACHABLE;
        why = resolved[j].why;
      }
      if (Status s = one.channel->start(reachable, why); is_error(s)) return s;
      for (size_t j = 0; j < i; ++j) {
        if (resolved[j].channel == one.channel) one.round = resolved[j].round;
      }
      if (one.round == 0 && !kept) one.round = one.channel->next_round();
    }
  }
  agent.hurry();
  if (Status s = await_channels(deadline); is_error(s)) return s;
  {
    const std::lock_guard lock(agent.mutex());
    for (size_t i = 0; i < steps.size(); ++i) {
      if (resolved[i].round != 0 && steps[i].verb == StepVerb::recv) resolved[i].channel->tell_round();
    }
  }
  return await_rounds(deadline);
}

/// The receivers' plans that go with this one are prepared, too.
Status tw_plan::await_rounds(const Deadline& deadline) {
  std::unique_lock lock(agent.mutex());
  for (size_t i = 0; i < steps.size();) {
    const Resolved& one = resolved[i];
    const Channel* channel = steps[i].verb == StepVerb::send ? one.channel : nullptr;
    if (channel == nullptr || channel->state() == Channel::State::proxied || channel->rounds_there() >= one.round) {
      ++i;
      continue;
    }
    if (channel->state() == Channel::State::failed)
      return fail(channel->status(), "the channel failed: %s", channel->why().c_str());
    if (Status s = lost(*steps[i].endpoint); is_error(s)) return s;
    if (deadline.passed()) return missing(steps[i], "the peer has not prepared the plan that goes with this one");
    agent.changed.wait_for(lock, std::chrono::microseconds(200));
    lock.unlock();
    progress_workers();
    lock.lock();
  }
  return TW_OK;
}

Status tw_plan::await_channels(const Deadline& deadline) {
  using State = Channel::State;
  std::unique_lock lock(agent.mutex());
  for (size_t i = 0; i < steps.size();) {
    Resolved& one = resolved[i];
    const State state = one.channel != nullptr ? one.channel->state() : State::proxied;
    if (state == State::failed) return fail(one.channel->status(), "the channel failed: %s", one.channel->why().c_str());
    if (state == State::mapped && one.proxied) {
      return fail(TW_ERR_UNSUPPORTED, "the channel is mapped, but %s; use another tag for this buffer", one.why.c_str());
    }
    if (state == State::mapped && one.landing >= 0) {
      const LocalLanding& landing = one.channel->landing(static_cast<uint16_t>(one.landing));
      if (landing.state == LocalLanding::State::refused) {
        return fail(landing.status,
                    "the channel is mapped, but the peer does not reach this buffer: %s; use another tag for it",
                    landing.text.c_str());
      }
      if (landing.state == LocalLanding::State::known) {
        ++i;
        continue;
      }
    } else if (state == State::mapped || state == State::proxied) {
      if (state == State::proxied && one.channel != nullptr && !one.proxied) {
        one.proxied = true;
        one.why = one.channel->why();
      }
      ++i;
      continue;
    }
    if (Status s = lost(*steps[i].endpoint); is_error(s)) return s;
    if (deadline.passed()) return missing(steps[i], "the peer has not prepared its end");
    agent.changed.wait_for(lock, std::chrono::microseconds(200));
    lock.unlock();
    progress_workers();  // what the peer's side of an import or a greeting needs
    lock.lock();
  }
  return TW_OK;
}
