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

}  // namespace

Status tw_plan::find_channel(PlanStep& step, Resolved& out, const Deadline& deadline) {
  if (Status s = thalweg::impl::check(step.endpoint); is_error(s)) return s;
  Agent::Route route;
  const Status found = agent.await_route(*step.endpoint, deadline, &route);
  if (is_error(found)) return found;
  if (found != TW_OK) return missing(step, "the peer has not prepared its end, or does not progress its worker");
  const bool sends = step.verb == StepVerb::send;
  const std::lock_guard lock(agent.mutex());
  out.peer = route.peer;
  Channel* channel = nullptr;
  if (Status s = agent.channel(route, sends, step.tag, *executor, &channel); is_error(s)) return s;
  if (Status s = channel->add(this, false); is_error(s)) return s;
  out.channel = channel;
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
    if (Status s = Agent::check_peer(*steps[i].endpoint); is_error(s)) return s;
    if (deadline.passed()) return missing(steps[i], "the peer has not prepared the plan that goes with this one");
    agent.await_change(lock, [this] { progress_workers(); });
  }
  return TW_OK;
}

Status tw_plan::await_channels(const Deadline& deadline) {
  std::unique_lock lock(agent.mutex());
  for (size_t i = 0; i < steps.size();) {
    Resolved& one = resolved[i];
    const Status status = one.channel != nullptr ? one.channel->settled(one.landing) : Status{TW_OK};
    if (is_error(status)) return status;
    if (status == TW_OK) {
      const bool mapped = one.channel != nullptr && one.channel->state() == Channel::State::mapped;
      if (mapped && one.proxied) {
        return fail(TW_ERR_UNSUPPORTED, "the channel is mapped, but %s; use another tag for this buffer", one.why.c_str());
      }
      if (one.channel != nullptr && !mapped && !one.proxied) {
        one.proxied = true;
        one.why = one.channel->why();
      }
      ++i;
      continue;
    }
    if (Status s = Agent::check_peer(*steps[i].endpoint); is_error(s)) return s;
    if (deadline.passed()) return missing(steps[i], "the peer has not prepared its end");
    agent.await_change(lock, [this] { progress_workers(); });
  }
  return TW_OK;
}
