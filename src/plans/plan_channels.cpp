// SPDX-License-Identifier: Apache-2.0
// The channels of a plan: found, opened, with a receive buffer for every receive.
#include "plans/plan_channels.hpp"

#include <algorithm>

#include "base/clock.hpp"
#include "core/c_checks.hpp"

using namespace thalweg::impl;

namespace {

bool uses_channel(const PlanStep& step) { return step.op.verb == Verb::send || step.op.verb == Verb::recv; }

Status missing(const PlanStep& step, const char* what) {
  return fail(TW_ERR_TIMED_OUT, "%s (%s): %s", name_of_channel(step).c_str(),
              step.op.verb == Verb::send ? "to the peer" : "from the peer", what);
}

}  // namespace

Status PlanChannels::find(size_t index, const Deadline& deadline) {
  const PlanStep& step = list_[index];
  Resolved& out = resolved_[index];
  if (Status s = thalweg::impl::check(step.endpoint); is_error(s)) return s;
  Proxy::Route route;
  const Status found = proxy_.await_route(*step.endpoint, deadline, &route);
  if (is_error(found)) return found;
  if (found != TW_OK) return missing(step, "the peer has not prepared its end, or does not progress its worker");
  const bool sends = step.op.verb == Verb::send;
  const std::lock_guard lock(proxy_.mutex());
  out.peer = route.peer;
  Channel* channel = nullptr;
  if (Status s = proxy_.channel(route, sends, step.op.tag, step.group, *executor_, &channel); is_error(s)) return s;
  const bool known = std::any_of(uses_.begin(), uses_.end(), [=](const ChannelUse& use) { return use.channel == channel; });
  if (!known) {
    if (Status s = channel->add(&user_, false); is_error(s)) return s;
    uses_.push_back({channel, index});
  }
  out.channel = channel;
  if (sends || out.proxied) return TW_OK;
  uint16_t made = 0;
  const Status status = channel->offer(step.address(), step.op.layout, step.op.length, &made);
  if (!is_error(status)) out.recv_buffer = made;
  return status;
}

/// Do messages take less than stores into the channel's buffers here? So it is where rows are short, and where all is short that
/// comes: of a longer buffer, messages copy all bytes twice.
bool PlanChannels::packs(const Channel& channel) const {
  bool rows = false, receives = false, all_short = true;
  for (size_t i = 0; i < list_.size(); ++i) {
    if (resolved_[i].channel != &channel || list_[i].op.verb != Verb::recv) continue;
    const bool is_short = resolved_[i].local.facts.prefers_packing();
    rows |= is_short && list_[i].op.layout != nullptr && !list_[i].op.layout->contiguous();
    receives = true;
    all_short &= is_short;
  }
  return rows || (receives && all_short);
}

/// A buffer that the executor does not reach makes the whole channel go by the host.
Status PlanChannels::start() {
  const std::lock_guard lock(proxy_.mutex());
  for (ChannelUse& use : uses_) {
    const auto bad = std::find_if(resolved_.begin(), resolved_.end(),
                                  [&](const Resolved& one) { return one.channel == use.channel && one.proxied; });
    const bool reachable = bad == resolved_.end();
    if (use.channel->state() == Channel::State::proxied) use.found = use.channel->epoch();
    const Status status = use.channel->start(&user_, reachable ? TW_OK : TW_ERR_UNREACHABLE,
                                             reachable ? std::string() : bad->why, !kept_, packs(*use.channel));
    if (is_error(status)) return status;
  }
  return TW_OK;
}

Status PlanChannels::open(Executor& executor, const Deadline& deadline) {
  executor_ = &executor;
  // Every peer is greeted before any is waited for: in a ring each one waits for the next.
  for (const PlanStep& step : list_) {
    if (!uses_channel(step)) continue;
    Proxy::Route route;
    if (Status s = thalweg::impl::check(step.endpoint); is_error(s)) return s;
    static_cast<void>(proxy_.route(*step.endpoint, &route));  // find() gets the same status
  }
  for (size_t i = 0; i < list_.size(); ++i) {
    if (!uses_channel(list_[i])) continue;
    if (Status s = find(i, deadline); is_error(s)) return s;
  }
  if (Status s = start(); is_error(s)) return s;
  proxy_.hurry();
  return await_open(deadline);
}

Status PlanChannels::settled(size_t index) const {
  const Resolved& one = resolved_[index];
  if (one.channel == nullptr) return TW_OK;
  if (Status s = one.channel->settled(one.recv_buffer); s != TW_OK) return s;
  if (one.channel->state() == Channel::State::mapped && one.proxied)
    return fail(TW_ERR_UNSUPPORTED, "the channel is mapped, but %s; use another channel for this buffer", one.why.c_str());
  return TW_OK;
}

/// Of a channel whose buffers here are reached.
std::string PlanChannels::why_carried(const Channel& channel) const {
  const auto earlier = std::find_if(uses_.begin(), uses_.end(), [&](const ChannelUse& use) {
    return use.channel == &channel && use.found == channel.epoch();
  });
  if (earlier == uses_.end() || channel.hopeless() || channel.has_untold()) return channel.why();
  return "the channel was opened so for an earlier plan, and is used: destroy the plans of both sides that use it, or use "
         "another channel (then: " +
         channel.why() + ")";
}

/// All channels are open at the same time, and so are the plans at their other ends: then, and not before, the plan relies on
/// them. Until then it waits again for one that is opened again, and sends its round again.
Status PlanChannels::join(size_t* waits_for, const char** what) {
  for (size_t i = 0; i < list_.size(); ++i) {
    const Status status = settled(i);
    const bool asks = resolved_[i].channel != nullptr && resolved_[i].channel->asks();
    *waits_for = i;
    *what = asks ? "plans of the peer use it in another way: destroy them there, or use another channel"
                 : "the peer has not prepared its end";
    if (status != TW_OK) return status;
  }
  for (ChannelUse& use : uses_) {
    if (use.channel->sender || use.told == use.channel->epoch()) continue;
    use.told = use.channel->epoch();
    kept_ ? use.channel->tell_every_round() : use.channel->tell_round();
  }
  const auto counts = [this](const ChannelUse& use) {
    return !kept_ && use.channel->sender && use.channel->state() == Channel::State::mapped;
  };
  for (const ChannelUse& use : uses_) {
    *waits_for = use.step;
    *what = "the peer has not prepared the plan that goes with this one";
    if (counts(use) && !use.channel->round_ready()) return TW_IN_PROGRESS;
  }
  for (ChannelUse& use : uses_) {
    use.epoch = use.channel->epoch();
    use.taken = counts(use);
    if (use.taken) use.channel->take_round();
    use.channel->rely(&user_);
  }
  for (Resolved& one : resolved_) {
    if (one.channel == nullptr || one.channel->state() == Channel::State::mapped) continue;
    if (!one.proxied) one.why = why_carried(*one.channel);
    one.local.facts.mapped = false;
    one.proxied = true;
    one.number = one.channel->number();
  }
  return TW_OK;
}

void PlanChannels::progress_workers() {
  tw_worker* last = nullptr;
  for (const PlanStep& step : list_) {
    if (step.endpoint == nullptr || step.endpoint->worker == last) continue;
    last = step.endpoint->worker;
    tw_worker_progress(last);
  }
}

Status PlanChannels::await_open(const Deadline& deadline) {
  std::unique_lock lock(proxy_.mutex());
  for (;;) {
    size_t waits_for = 0;
    const char* what = nullptr;
    const Status status = join(&waits_for, &what);
    if (status != TW_IN_PROGRESS) return status;
    if (Status s = Proxy::check_peer(*list_[waits_for].endpoint); is_error(s)) return s;
    if (deadline.passed()) return missing(list_[waits_for], what);
    if (Status s = proxy_.await_change(lock, [this] { progress_workers(); }); is_error(s)) return s;
  }
}

Status PlanChannels::await_recv_buffer(size_t index, const Deadline& deadline) {
  std::unique_lock lock(proxy_.mutex());
  Status status;
  while ((status = settled(index)) == TW_IN_PROGRESS) {
    if (Status s = Proxy::check_peer(*list_[index].endpoint); is_error(s)) return s;
    if (deadline.passed())
      return missing(list_[index],
                     "the peer has not answered to the new buffer: it does not progress, or runs there have been "
                     "under way since 256 updates ago, and have to end first");
    if (Status s = proxy_.await_change(lock, [this] { progress_workers(); }); is_error(s)) return s;
  }
  return status;
}

/// Prepared again, or not at all: returns the rounds that were sent and taken, for the next plan of the channel.
void PlanChannels::leave(bool prepared) {
  const std::lock_guard lock(proxy_.mutex());
  for (const ChannelUse& use : uses_) {
    if (!prepared && use.told != 0 && !kept_) use.channel->untell_round(use.told);
    if (!prepared && use.taken) use.channel->return_round(use.epoch);
    if (!prepared && use.epoch != 0 && !kept_) use.channel->relied_in_vain(use.epoch);
    use.channel->remove(&user_);
  }
  uses_.clear();
}

void PlanChannels::end_for_good() {
  if (kept_) return;
  const std::lock_guard lock(proxy_.mutex());
  for (const ChannelUse& use : uses_) {
    if (use.channel->name.group != 0) use.channel->end_for_good();
  }
}

void PlanChannels::fail_ends(Status status, const std::string& why) {
  const std::lock_guard lock(proxy_.mutex());
  for (const ChannelUse& use : uses_) use.channel->fail_end(use.epoch, status, why);
}

/// A channel is an ordered pipe: another owner takes it over only when the plans that use it have nothing more to do. They are
/// asked, not the owner: it may be a stream that is not there any more. Who has it is written first, see PlanRuns::claim.
Status PlanChannels::take_over(const void* by) {
  for (ChannelUse& use : uses_) {
    Channel& channel = *use.channel;
    use.left = channel.owner.exchange(by);
    const Status status = use.left == by ? Status{TW_OK} : channel.users().runs_over(channel.epoch());
    if (status == TW_OK) continue;
    for (ChannelUse* back = &use; back >= uses_.data(); --back) back->channel->owner = back->left;
    if (is_error(status)) return status;
    return fail(TW_ERR_BUSY, "%s is in use by another queue, or by a run by the host: order the runs, or use another channel",
                text_of(channel.name).c_str());
  }
  return TW_OK;
}
