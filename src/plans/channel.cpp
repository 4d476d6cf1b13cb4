// SPDX-License-Identifier: Apache-2.0
// Epochs, pairs of them, users and rounds.
#include "plans/channel.hpp"

#include <utility>

#include "memory/registry_state.hpp"

namespace thalweg::impl {
namespace {

constexpr size_t kTableBytes = Channel::kRecvBuffers * sizeof(device::RecvBuffer);
constexpr uint32_t kMostInVain = 1024;  // of a peer that prepares its end again and again, every few ms
constexpr const char* kWhyUntold = "a receive's layout has more than 4,096 pieces, and its sender cannot be told so many";
static_assert(kMaxWirePieces == 4096);

}  // namespace

Channel::Channel(Proxy& proxy, const ChannelName& of, bool is_sender, Executor& by, std::shared_ptr<ProxyPeer> to)
    : name(of),
      sender(is_sender),
      peer(*to),
      proxy_(proxy),
      peer_(std::move(to)),
      executor_(&by),
      wanted_(&by),
      epoch_(proxy.last_epoch()) {}

Channel::~Channel() {
  users_ = {};
  for (RemoteRecvBuffer& recv_buffer : remote_) release(recv_buffer);
  forget_words();
  retired_.free_memory();
  retire_words();
  retired_.free_words();
  if (!words_known_ || agreed_) executor_->shared().free(words_, kWordsBytes);  // else a late store may still come
  for (LocalRecvBuffer& recv_buffer : recv_buffers_) {
    if (recv_buffer.memory != nullptr) proxy_.context.registry->release_or_leave(recv_buffer.memory);
  }
}

// ------------------------------------------------------------------------------------------------ epochs

Status Channel::start(const ChannelUser* user, Status reachable, const std::string& why_not, bool waits, bool packs) {
  const bool untold = !is_error(reachable) && has_untold();
  return untold ? start_as(user, TW_ERR_UNSUPPORTED, kWhyUntold, waits, packs)
                : start_as(user, reachable, why_not, waits, packs);
}

Status Channel::start_as(const ChannelUser* user, Status reachable, const std::string& why_not, bool waits, bool packs) {
  users_.start(user);
  waits_ = waits;
  in_vain_ = 0;
  const bool worse = is_error(reachable) && !is_error(reachable_);
  if (open()) return join_open(reachable, why_not, waits, packs);
  if (state_ == State::opening && !worse) return TW_OK;
  if (is_error(peer.lost)) return fail(peer.lost, "the peer of this channel is lost");
  reachable_ = reachable;
  unreachable_ = why_not;
  packs_ = packs;
  if (state_ == State::opening)  // a user that waits begins another one
    fail_end(epoch_, TW_ERR_STALE, "another buffer is used");
  else if (Status s = begin_epoch(); is_error(s))
    return s;
  return TW_OK;
}

bool Channel::run_by(Executor& by) {
  if (wanted_ != &by && !users_.empty()) return false;
  wanted_ = &by;
  return true;
}

/// The peer may still store to the end's old words; they are not used again.
void Channel::change_executor() {
  forget_words();
  forget_recv_buffers();
  retire_words();
  retired_.free_words();
  taken_back_.clear();
  recv_buffer_table_ = words_ = end_ = 0;
  words_known_ = false;
  executor_ = wanted_;
}

// ------------------------------------------------------------------------------------------------ an epoch

Status Channel::begin_epoch() {
  if (executor_ != wanted_) change_executor();
  if (Status s = make_words(); is_error(s)) return s;
  if (sender) {  // messages of an earlier epoch that the host carried may still be about
    if (Status s = random_identifier(&number_); is_error(s)) return s;
  }
  ++epoch_;
  state_ = State::opening;
  status_ = TW_OK;
  owner = nullptr;
  used_ = was_mapped_ = every_round_ = agreed_ = false;
  begin_pair();
  say_open();
  return TW_OK;
}

/// Words that the peer may know of are not used again: a late store may still come. Nor is what runs find them by: a run of a plan that
/// has failed may still begin, and find a credit of then.
Status Channel::make_words() {
  if (words_ != 0 && !words_known_) return TW_OK;
  if (words_ != 0 && !used_) return renew_words();
  Arena& own = executor_->own();
  uint64_t end = 0, table = 0, words = 0;
  Status status = own.allocate(kEndBytes, &end);
  if (!is_error(status) && sender) status = own.allocate(kTableBytes, &table);
  if (!is_error(status)) status = executor_->shared().allocate(kWordsBytes, &words);
  if (is_error(status)) {
    own.free(end, kEndBytes);
    own.free(table, kTableBytes);
    return status;
  }
  forget_recv_buffers();  // of the table that goes
  taken_back_.clear();
  retire_words();
  end_ = end;
  recv_buffer_table_ = table;
  words_ = words;
  words_known_ = false;
  return TW_OK;
}

/// No run has ever found the end: what it was found by serves the next epoch, too.
Status Channel::renew_words() {
  uint64_t words = 0;
  if (Status s = executor_->shared().allocate(kWordsBytes, &words); is_error(s)) return s;
  words_ = words;
  words_known_ = false;
  return TW_OK;
}

void Channel::retire_words() {
  retired_.keep_words(executor_->own(), end_, kEndBytes);
  retired_.keep_words(executor_->own(), recv_buffer_table_, kTableBytes);
}

/// The receiver sends its buffers again. No end has stored to anything yet: one that is not open has received no result, or
/// has sent none.
void Channel::begin_pair() {
  using State = LocalRecvBuffer::State;
  forget_words();
  forget_recv_buffers();
  result_here_ = result_there_ = false;
  both_reach_ = true;
  asked_here_ = asked_there_ = Asks::nothing;
  hopeless_ = false;
  bound_ = false;
  carried_ = carried_there_ = 0;
  plans_ = 0;
  why_.clear();
  told_rounds_ = {};
  rounds_ = {};
  for (LocalRecvBuffer& recv_buffer : recv_buffers_) {
    if (recv_buffer.state == State::told || recv_buffer.state == State::known || recv_buffer.state == State::refused)
      recv_buffer.state = State::new_;
  }
  if (!sender && there_) number_ = theirs_.number;
}

/// If a user waits, another one begins.
void Channel::end_epoch(Control how, Status status, const std::string& why) {
  state_ = State::failed;
  status_ = status;
  why_ = why;
  say(how, 0, status, why.c_str());
  for (ChannelUser* const user : users_.of(epoch_)) user->on_channel_failed(*this, status, why);
  if (sender || users_.empty())
    forget_recv_buffers();             // a run that begins now finds no room there: the buffers are the receiver's
  if (users_.empty()) forget_words();  // else when the last user leaves
  if (how == Control::failed && users_.wait() && !is_error(peer.lost)) {
    if (Status s = begin_epoch(); is_error(s)) {
      status_ = s;
      why_ = last_error();
    }
  }
  proxy_.changed.notify_all();
}

/// A peer that opens its end and leaves it makes another epoch of each user that waits here: not for ever.
void Channel::fail_end(uint32_t epoch, Status status, const std::string& why) {
  if (epoch != epoch_ || !alive()) return;
  if (used_ || !users_.wait() || ++in_vain_ < kMostInVain) return end_epoch(Control::failed, status, why);
  end_epoch(Control::refused, TW_ERR_PROTOCOL, "the peer opened its end and left it, again and again; the last time: " + why);
}

void Channel::refuse_end(uint32_t epoch, Status status, const std::string& why) {
  if (epoch == epoch_ && alive()) end_epoch(Control::refused, status, why);
}

Status Channel::settled(int index) const {
  if (state_ == State::failed) return fail(status_, "the channel failed: %s", why_.c_str());
  if (!open() || asked_here_ != Asks::nothing) return TW_IN_PROGRESS;
  if (executor_ != wanted_) {
    return fail(TW_ERR_UNSUPPORTED, "this end of the channel is run by %s, and the peer's plans use it so: use another channel",
                executor_->name().c_str());
  }
  if (state_ == State::proxied) return TW_OK;
  if (index < 0) return TW_OK;
  const LocalRecvBuffer& recv_buffer = recv_buffers_[static_cast<size_t>(index)];
  if (recv_buffer.untold)
    return fail(TW_ERR_UNSUPPORTED, "the channel is mapped, but %s; use another channel for this buffer", kWhyUntold);
  if (recv_buffer.state == LocalRecvBuffer::State::refused) {
    return fail(recv_buffer.status,
                "the channel is mapped, but the peer does not reach this buffer: %s; use another channel for it",
                recv_buffer.text.c_str());
  }
  return recv_buffer.state == LocalRecvBuffer::State::known ? TW_OK : TW_IN_PROGRESS;
}

// ------------------------------------------------------------------------------------------------ messages sent

void Channel::say(Control type, uint16_t index, Status status, const char* text) {
  if (is_error(peer.lost)) return;
  ControlMessage message;
  message.type = type;
  message.name = name;
  message.from_sender = sender;
  message.epoch = epoch_;
  message.partner = there_ ? theirs_.epoch : 0;
  message.index = index;
  message.status = status;
  message.text = text;
  proxy_.send(peer, message);
}

// ------------------------------------------------------------------------------------------------ rounds

void Channel::say_rounds() {
  ControlMessage message;
  message.type = Control::prepared;
  message.name = name;
  message.epoch = epoch_;
  message.partner = theirs_.epoch;
  message.capacity = users_.alone() || every_round_ ? ToldRounds::kEvery : told_rounds_.told();
  proxy_.send(peer, message);
}

void Channel::tell_round() {
  if (told_rounds_.add()) say_rounds();
}

void Channel::untell_round(uint32_t epoch) {
  if (epoch == epoch_ && alive()) told_rounds_.add_in_vain();
}

void Channel::tell_every_round() {
  every_round_ = every_round_ || !users_.alone();
  say_rounds();
}

void Channel::return_round(uint32_t epoch) {
  if (epoch == epoch_ && alive()) rounds_.give_back();
}

// ------------------------------------------------------------------------------------------------ users

Status Channel::add(ChannelUser* user, bool alone) {
  if (Status s = users_.add(user, alone, name.tag); is_error(s)) return s;
  ended_ = false;
  return TW_OK;
}

void Channel::rely(ChannelUser* user) {
  used_ = true;
  bound_ = bound_ || users_.alone();
  users_.rely(user, epoch_);
  plans_ += !user->stays();
}

void Channel::relied_in_vain(uint32_t epoch) {
  if (epoch == epoch_ && plans_ > 0) --plans_;
}

void Channel::remove(ChannelUser* user) {
  const bool was_alone = users_.remove(user);
  if (alive() && !used_ && !users_.wait())
    end_epoch(Control::failed, TW_ERR_TIMED_OUT, "nobody waits at the peer's end any more: both sides begin again");
  if (open() && asked_there_ == Asks::another && !relied_on()) agree();
  if (was_alone) end_alone();
  if (users_.empty() && state_ == State::failed) {  // nobody stores there any more
    forget_recv_buffers();
    forget_words();
  }
  settle();
  if (users_.empty()) retired_.free_words();
  if (ended_) leave_for_good();
}

/// A kernel had the end.
void Channel::end_alone() {
  for (size_t i = 0; i < remote_.size(); ++i) {
    if (remote_[i].reached.revoked()) forget(static_cast<uint16_t>(i));
  }
  if (sender) {
    rounds_.take_all();
  } else if (state_ == State::mapped) {
    say_rounds();
  }
}

// ------------------------------------------------------------------------------------------------ messages received

void Channel::take(ControlMessage&& message) {
  switch (message.type) {
    case Control::open:
      opened_there(std::move(message));
      break;
    case Control::failed:
    case Control::refused:
      ended_there(message);
      break;
    case Control::drop:  // of a buffer, whatever became of the epoch
      if (sender && message.index < kRecvBuffers) give_back(message.index);
      break;
    case Control::dropped:
      if (!sender) recv_buffer_dropped(message.index);
      break;
    default:
      if (alive() && there_ && message.epoch == theirs_.epoch && message.partner == epoch_) take_of_pair(std::move(message));
  }
  proxy_.changed.notify_all();
}

void Channel::opened_there(ControlMessage&& message) {
  if (message.epoch <= theirs_.epoch) return;
  epoch_over_there();
  theirs_ = std::move(message);
  there_ = true;
  if (state_ == State::opening) return begin_pair();
  fail_end(epoch_, TW_ERR_STALE, "the peer has opened the channel again: prepare the plan again");
}

void Channel::ended_there(const ControlMessage& message) {
  const bool turned_away = message.type == Control::refused && message.epoch == 0;  // before there was an end of the peer's
  if (!turned_away && (!there_ || message.epoch != theirs_.epoch)) return;
  if (!turned_away) {
    there_ = false;
    epoch_over_there();
  }
  agreed_ = agreed_ || (ended_ && asked_here_ == Asks::another && message.status == TW_ERR_STALE);
  // Busy is a run that was refused here: it ends no channel (PlanFailure::now).
  const bool says_why = is_error(message.status) && message.status != TW_ERR_BUSY;
  const Status status = says_why ? Status{message.status} : Status{TW_ERR_PROTOCOL};
  if (message.type == Control::refused && message.partner == epoch_) {
    refuse_end(epoch_, status, message.text);
  } else if (state_ != State::opening) {
    fail_end(epoch_, status, message.text);
  }
}

/// Its messages that the host carried, and that no receive here took, are no later epoch's: a long one's sender waits until it is dropped.
/// They came before the word that the epoch is over, but for those of runs that were beginning then (advance).
void Channel::epoch_over_there() {
  if (sender || theirs_.number == 0) return;
  number_over_ = theirs_.number;
  dropping_ = Deadline(10 * kSecond);
  proxy_.drop_messages(peer, number_over_);
}

void Channel::take_of_pair(ControlMessage&& message) {
  switch (message.type) {
    case Control::result:
      result_there_ = true;
      if (is_error(message.status)) {
        both_reach_ = false;
        if (why_.empty()) why_ = "at the peer: " + message.text;
      }
      decide();
      break;
    case Control::recv_buffer:
      if (sender && message.index < kRecvBuffers) recv_buffer_told(std::move(message));
      break;
    case Control::recv_buffer_known:
      if (!sender && message.index < recv_buffers_.size()) recv_buffer_answered(message);
      break;
    case Control::prepared:
      rounds_.set(message.capacity);
      break;
    case Control::again:
      if (open()) asked_there(message);
      break;
    case Control::same:
      if (open()) asked_same_there(message);
      break;
    case Control::stay:
      stays(message);
      break;
    default:
      break;
  }
}

}  // namespace thalweg::impl
