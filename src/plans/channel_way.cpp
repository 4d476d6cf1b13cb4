// SPDX-License-Identifier: Apache-2.0
// An open pair of epochs that no plan here uses is decided again with the peer's end, which a new plan asks:
// docs/decisions/0019-a-channel-finds-its-way-anew.md.
#include <algorithm>
#include <utility>

#include "plans/channel.hpp"
#include "routes/prepared.hpp"

namespace thalweg::impl {
namespace {

constexpr uint16_t kForGood = 2;  // `again`: nor will another plan come

}  // namespace

/// Joins an open pair. If it has no user here, it may end if it has none at the peer either: then both plans decide its way.
Status Channel::join_open(Status reachable, const std::string& why_not, bool waits, bool packs) {
  const bool other = executor_ != wanted_, mapped = state_ == State::mapped;
  const bool useless = of_no_use(reachable);
  const bool needed = other || useless || (mapped && is_error(reachable));
  const bool packed = why_not_mapped_channel(packs, theirs_.index != 0) != nullptr;
  const bool better = needed || (mapped ? packed : !is_error(reachable) && !packed && !hopeless_);
  if (asked_there_ == Asks::another && relied_on()) {  // another plan comes while the peer waits for those to go
    let_stay();
  }
  const bool may_end = !relied_on() && there_ && !(mapped && bound_);
  if (useless && !may_end) {
    refuse_end(epoch_, reachable, why_not);
    return fail(reachable, "%s", why_not.c_str());
  }
  const bool owed = asked_there_ == Asks::same;  // the peer's plan waits for what its partner says
  if (owed && (!may_end || !better)) let_stay();
  if (needed && !may_end && mapped) {
    return fail(
        is_error(reachable) ? reachable : Status{TW_ERR_UNSUPPORTED},
        "%s; the channel is mapped already, and is used: destroy the plans that use it, at both ends, or use another channel",
        other ? "another device runs this plan" : why_not.c_str());
  }
  if (!may_end) return TW_OK;
  reachable_ = reachable;
  unreachable_ = why_not;
  packs_ = packs;
  if (better) {
    ask(Asks::another, waits && !useless);
  } else if (waits && !bound_ && !hopeless_ && !owed) {
    ask(Asks::same, waits);
  }
  return TW_OK;
}

void Channel::ask(Asks what, bool waits) {
  if (asked_here_ >= what) return;
  asked_here_ = what;
  ControlMessage message;
  message.type = what == Asks::same ? Control::same : Control::again;
  message.name = name;
  message.from_sender = sender;
  message.epoch = epoch_;
  message.partner = theirs_.epoch;
  message.index = ended_ ? kForGood : waits ? 0 : 1;
  message.capacity = carried_;
  message.number = plans_;
  proxy_.send(peer, message);
}

void Channel::say_stay(Asks to) { say(Control::stay, to == Asks::another ? 1 : 0); }

/// Answers what the peer asked.
void Channel::let_stay() { say_stay(std::exchange(asked_there_, Asks::nothing)); }

void Channel::asked_there(const ControlMessage& message) {
  carried_there_ = message.capacity;
  if (message.index == kForGood) return ended_ && users_.empty() ? agree() : say_stay(Asks::another);  // asked again from here
  if (!relied_on()) return agree();
  const std::vector<ChannelUser*> those = users_.of(epoch_);
  const bool kept = std::any_of(those.begin(), those.end(), [](const ChannelUser* one) { return one->stays(); });
  const bool partner_waits = plans_ > message.number;  // a plan that is prepared here is the partner of the one that asks
  asked_there_ = Asks::another;                        // what it may have asked before, `same`, is answered with it
  if (kept || partner_waits || message.index != 0 || carried_ > carried_there_) let_stay();
}

/// The asking plan accepts the pair. Its partner, which may not exist yet, or may ask for another way, decides, unless a message
/// is on it that was sent and not taken: that one's partner has gone.
void Channel::asked_same_there(const ControlMessage& message) {
  carried_there_ = message.capacity;
  const bool partner_is_content = users_.wait() && asked_here_ != Asks::another;
  if (relied_on() || bound_ || hopeless_ || partner_is_content || carried_ != carried_there_) return say_stay(Asks::same);
  asked_there_ = Asks::same;
}

void Channel::stays(const ControlMessage& message) {
  if (asked_here_ == Asks::another && message.index == 0) return;  // to `same`, which was asked before it
  asked_here_ = Asks::nothing;
  if (asked_there_ == Asks::same && users_.wait()) let_stay();
}

/// It has no user here either. Messages that were sent and not taken belong to the next user.
void Channel::agree() {
  asked_there_ = Asks::nothing;
  if (!ended_ && (bound_ || carried_ != carried_there_)) return say_stay(Asks::another);
  agreed_ = ended_;
  end_epoch(Control::failed, TW_ERR_STALE, "no plan used the channel any more: it is opened anew");
}

void Channel::end_for_good() {
  ended_ = true;
  leave_for_good();
}

/// The end that learns it last asks the one that knows it already.
void Channel::leave_for_good() {
  if (users_.empty() && open()) ask(Asks::another, false);
}

bool Channel::gone() {
  return ended_ && !there_ && (state_ == State::closed || state_ == State::failed) && !retired_.holds() && idle();
}

}  // namespace thalweg::impl
