// SPDX-License-Identifier: Apache-2.0
// The channels of a plan: found, opened, with a receive buffer for every receive.
#include <algorithm>

#include "base/clock.hpp"
#include "base/interrupt.hpp"
#include "core/c_checks.hpp"
#include "plans/plan.hpp"

using namespace thalweg::impl;

namespace {

bool uses_channel(const PlanStep& step) { return step.op.verb == Verb::send || step.op.verb == Verb::recv; }

Status missing(const PlanStep& step, const char* what) {
  return fail(TW_ERR_TIMED_OUT, "channel %llu (%s): %s", static_cast<unsigned long long>(step.op.tag),
              step.op.verb == Verb::send ? "to the peer" : "from the peer", what);
}

}  // namespace

Status tw_plan::find_channel(size_t index, const Deadline& deadline) {
  const PlanStep& step = steps[index];
  Resolved& out = resolved[index];
  if (Status s = thalweg::impl::check(step.endpoint); is_error(s)) return s;
  Proxy::Route route;
  const Status found = proxy.await_route(*step.endpoint, deadline, &route);
  if (is_error(found)) return found;
  if (found != TW_OK) return missing(step, "the peer has not prepared its end, or does not progress its worker");
  const bool sends = step.op.verb == Verb::send;
  const std::lock_guard lock(proxy.mutex());
  out.peer = route.peer;
  Channel* channel = nullptr;
  if (Status s = proxy.channel(route, sends, step.op.tag, *executor, &channel); is_error(s)) return s;
  const bool known =
      std::any_of(channels.begin(), channels.end(), [=](const ChannelUse& use) { return use.channel == channel; });
  if (!known) {
    if (Status s = channel->add(this, false); is_error(s)) return s;
    channels.push_back({channel, index});
  }
  out.channel = channel;
  if (sends || out.proxied) return TW_OK;
  uint16_t made = 0;
  const Status status = channel->offer(step.address(), step.op.layout, step.op.length, &made);
  if (!is_error(status)) out.recv_buffer = made;
  return status;
}

/// A buffer that the executor does not reach makes the whole channel go by the host.
Status tw_plan::start_channels() {
  const std::lock_guard lock(proxy.mutex());
  for (ChannelUse& use : channels) {
    const auto bad = std::find_if(resolved.begin(), resolved.end(),
                                  [&](const Resolved& one) { return one.channel == use.channel && one.proxied; });
    const bool reachable = bad == resolved.end();
    const bool packs = std::any_of(resolved.begin(), resolved.end(), [&](const Resolved& one) {
      return one.channel == use.channel && one.local.facts.prefers_packing();
    });
    if (use.channel->state() == Channel::State::proxied) use.found = use.channel->epoch();
    const Status status =
        use.channel->start(this, reachable ? TW_OK : TW_ERR_UNREACHABLE, reachable ? std::string() : bad->why, !kept, packs);
    if (is_error(status)) return status;
  }
  return TW_OK;
}

Status tw_plan::open_channels(const Deadline& deadline) {
  // Every peer is greeted before any is waited for: in a ring each one waits for the next.
  for (const PlanStep& step : steps) {
    if (!uses_channel(step)) continue;
    Proxy::Route route;
    if (Status s = thalweg::impl::check(step.endpoint); is_error(s)) return s;
    static_cast<void>(proxy.route(*step.endpoint, &route));  // find_channel() gets the same status
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    if (!uses_channel(steps[i])) continue;
    if (Status s = find_channel(i, deadline); is_error(s)) return s;
  }
  if (Status s = start_channels(); is_error(s)) return s;
  proxy.hurry();
  return await_channels(deadline);
}

Status tw_plan::settled(size_t index) const {
  const Resolved& one = resolved[index];
  if (one.channel == nullptr) return TW_OK;
  if (Status s = one.channel->settled(one.recv_buffer); s != TW_OK) return s;
  if (one.channel->state() == Channel::State::mapped && one.proxied)
    return fail(TW_ERR_UNSUPPORTED, "the channel is mapped, but %s; use another channel for this buffer", one.why.c_str());
  return TW_OK;
}

/// Of a channel whose buffers here are reached.
std::string tw_plan::why_carried(const Channel& channel) const {
  const auto earlier = std::find_if(channels.begin(), channels.end(), [&](const ChannelUse& use) {
    return use.channel == &channel && use.found == channel.epoch();
  });
  if (earlier == channels.end() || channel.hopeless()) return channel.why();
  return "the channel was opened so for an earlier plan, and is used: destroy the plans of both sides that use it, or use "
         "another channel (then: " +
         channel.why() + ")";
}

/// All channels are open at the same time, and so are the plans at their other ends: then, and not before, the plan relies on
/// them. Until then it waits again for one that is opened again, and sends its round again.
Status tw_plan::join_channels(size_t* waits_for, const char** what) {
  for (size_t i = 0; i < steps.size(); ++i) {
    const Status status = settled(i);
    const bool asks = resolved[i].channel != nullptr && resolved[i].channel->asks();
    *waits_for = i;
    *what = asks ? "plans of the peer use it in another way: destroy them there, or use another channel"
                 : "the peer has not prepared its end";
    if (status != TW_OK) return status;
  }
  for (ChannelUse& use : channels) {
    if (use.channel->sender || use.told == use.channel->epoch()) continue;
    use.told = use.channel->epoch();
    kept ? use.channel->tell_every_round() : use.channel->tell_round();
  }
  const auto counts = [this](const ChannelUse& use) {
    return !kept && use.channel->sender && use.channel->state() == Channel::State::mapped;
  };
  for (const ChannelUse& use : channels) {
    *waits_for = use.step;
    *what = "the peer has not prepared the plan that goes with this one";
    if (counts(use) && !use.channel->round_ready()) return TW_IN_PROGRESS;
  }
  for (ChannelUse& use : channels) {
    use.epoch = use.channel->epoch();
    use.taken = counts(use);
    if (use.taken) use.channel->take_round();
    use.channel->rely(this);
  }
  for (Resolved& one : resolved) {
    if (one.channel == nullptr || one.channel->state() == Channel::State::mapped) continue;
    if (!one.proxied) one.why = why_carried(*one.channel);
    one.local.facts.mapped = false;
    one.proxied = true;
    one.number = one.channel->number();
  }
  return TW_OK;
}

Status tw_plan::await_channels(const Deadline& deadline) {
  std::unique_lock lock(proxy.mutex());
  for (;;) {
    size_t waits_for = 0;
    const char* what = nullptr;
    const Status status = join_channels(&waits_for, &what);
    if (status != TW_IN_PROGRESS) return status;
    if (Status s = Proxy::check_peer(*steps[waits_for].endpoint); is_error(s)) return s;
    if (deadline.passed()) return missing(steps[waits_for], what);
    if (Status s = interrupted(); is_error(s)) return s;
    proxy.await_change(lock, [this] { progress_workers(); });
  }
}

Status tw_plan::await_recv_buffer(size_t index, const Deadline& deadline) {
  std::unique_lock lock(proxy.mutex());
  Status status;
  while ((status = settled(index)) == TW_IN_PROGRESS) {
    if (Status s = Proxy::check_peer(*steps[index].endpoint); is_error(s)) return s;
    if (deadline.passed()) return missing(steps[index], "the peer has not answered to the new buffer");
    if (Status s = interrupted(); is_error(s)) return s;
    proxy.await_change(lock, [this] { progress_workers(); });
  }
  return status;
}

/// Prepared again, or not at all: returns the rounds that were sent and taken, for the next plan of the channel.
void tw_plan::leave_channels() {
  const std::lock_guard lock(proxy.mutex());
  owner_words_ = {};
  for (const ChannelUse& use : channels) {
    if (!prepared && use.told != 0 && !kept) use.channel->untell_round(use.told);
    if (!prepared && use.taken) use.channel->return_round(use.epoch);
    if (!prepared && use.epoch != 0 && !kept) use.channel->relied_in_vain(use.epoch);
    use.channel->remove(this);
  }
  channels.clear();
}
