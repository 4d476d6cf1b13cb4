// SPDX-License-Identifier: Apache-2.0
#include "plans/channel.hpp"

#include <algorithm>
#include <utility>

#include "memory/placement.hpp"
#include "memory/registry_state.hpp"

namespace thalweg::impl {
namespace {

constexpr size_t kTableBytes = Channel::kLandings * sizeof(device::Landing);

}  // namespace

Channel::Channel(Agent& agent, const ChannelName& of, bool is_sender, Executor& by, AgentPeer& to)
    : name(of), sender(is_sender), executor(by), peer(to), agent_(agent) {}

Channel::~Channel() {
  for (RemoteLanding& landing : remote_) forget(landing);
  forget_words();
  for (LocalLanding& landing : landings_) {
    if (landing.memory != nullptr) tw_memory_release(landing.memory);
  }
}

/// Words of an earlier incarnation are not used again: a late store of the peer may still come.
Status Channel::make_words() {
  if (Status s = executor.shared().allocate(kWordsBytes, &words_); is_error(s)) return s;
  if (sender && landing_table_ == 0) return executor.own().allocate(kTableBytes, &landing_table_);
  return TW_OK;
}

Status Channel::start(Status reachable, const std::string& why_not) {
  if (state_ == State::opening || state_ == State::proxied) return TW_OK;
  if (state_ == State::mapped) {
    return is_error(reachable) ? fail(reachable, "%s; the channel is mapped already: use another tag", why_not.c_str())
                               : Status{TW_OK};
  }
  if (is_error(peer.lost)) return fail(peer.lost, "the peer of this channel is lost");
  forget_words();
  for (RemoteLanding& landing : remote_) forget(landing);
  if (Status s = make_words(); is_error(s)) return s;
  if (number_ == 0 && sender) {
    if (Status s = random_identifier(&number_); is_error(s)) return s;
  }
  ControlMessage early;
  const bool known = agent_.take_early(peer, name, !sender, &early);
  incarnation_ = std::max(incarnation_ + 1, known ? early.incarnation : 0);
  opened_there_ = verdict_here_ = verdict_there_ = false;
  both_reach_ = true;
  prepared_here_ = prepared_there_ = 0;
  reachable_ = reachable;
  unreachable_ = why_not;
  state_ = State::opening;
  queue = nullptr;
  messages = 0;
  counted = !alone_;
  why_.clear();
  open_again();
  if (known) take(std::move(early));
  return TW_OK;
}

/// What the sender knew of buffers, it is told again.
void Channel::open_again() {
  using State = LocalLanding::State;
  for (LocalLanding& landing : landings_) {
    if (landing.state == State::told || landing.state == State::known || landing.state == State::refused)
      landing.state = State::new_;
  }
  say_open();
}

void Channel::say_open() {
  ControlMessage open;
  open.type = Control::open;
  open.name = name;
  open.from_sender = sender;
  open.incarnation = incarnation_;
  open.on_device = executor.device() != nullptr ? 1 : 0;
  if (executor.device() != nullptr) open.uuid = executor.device()->uuid();
  open.number = number_;
  tw_memory* block = executor.shared().holder(words_);
  std::byte key[TW_KEY_MAX];
  size_t length = sizeof key;
  if (tw_memory_export(block, key, &length) == TW_OK) open.key.assign(key, key + length);
  open.offset = words_ - reinterpret_cast<uint64_t>(block->address);
  for (const LocalLanding& landing : landings_) open.capacity += landing.state == LocalLanding::State::new_;
  agent_.send(peer, open);
}

void Channel::say(Control type, uint16_t index, Status status, const char* text) {
  ControlMessage message;
  message.type = type;
  message.name = name;
  message.from_sender = sender;
  message.incarnation = incarnation_;
  message.index = index;
  message.status = status;
  message.text = text;
  agent_.send(peer, message);
}

// ------------------------------------------------------------------------------------------------ landings of the receiver

Status Channel::offer(uint64_t address, const Layout* layout, uint64_t length, uint16_t* index) {
  size_t at = 0;
  while (at < landings_.size() && landings_[at].state != LocalLanding::State::unused) ++at;
  if (at == kLandings) {
    return fail(TW_ERR_LIMIT,
                "%u buffers wait for the messages of one channel: destroy plans that are not used, or use more tags",
                kLandings);
  }
  LocalLanding made;
  const int64_t first = layout != nullptr ? layout->first : 0;
  const int64_t last = layout != nullptr ? layout->last : static_cast<int64_t>(length);
  void* const begin = reinterpret_cast<void*>(address + static_cast<uint64_t>(first));
  Registry& registry = *agent_.context.registry;
  const auto span = static_cast<size_t>(last - first);
  uint64_t segment = 0, offset = 0;
  if (span != 0) {
    if (Status s = register_anywhere(registry, begin, span, TW_MEMORY_ALL, &made.memory); is_error(s)) return s;
    // A part of library-allocated memory is reached by its segment.
    if (made.memory->segment_id == 0 && registry.find_segment(begin, span, &segment, &offset)) {
      made.memory->segment_id = segment;
      made.memory->segment_offset = offset;
    }
    std::byte key[TW_KEY_MAX];
    size_t key_length = sizeof key;
    if (Status s = tw_memory_export(made.memory, key, &key_length); is_error(s)) {
      registry.release(made.memory);
      return s;
    }
    made.key.assign(key, key + key_length);
  }
  made.offset = -first;
  made.capacity = length;
  if (layout != nullptr) {
    made.layout.resize(encode(*layout, nullptr, 0));
    encode(*layout, made.layout.data(), made.layout.size());
  }
  made.state = LocalLanding::State::new_;
  if (at == landings_.size()) landings_.emplace_back();
  landings_[at] = std::move(made);
  *index = static_cast<uint16_t>(at);
  return TW_OK;
}

void Channel::tell_round() {
  ControlMessage message;
  message.type = Control::prepared;
  message.name = name;
  message.incarnation = incarnation_;
  message.capacity = alone_ ? kEveryRound : prepared_here_;
  agent_.send(peer, message);
}

void Channel::withdraw(uint16_t index) {
  LocalLanding& landing = landings_[index];
  const bool seen = landing.state == LocalLanding::State::told || landing.state == LocalLanding::State::known;
  landing.state = seen && !is_error(peer.lost) ? LocalLanding::State::dropping : LocalLanding::State::dropped;
  if (landing.state == LocalLanding::State::dropping) say(Control::drop, index);
}

bool Channel::withdrawn(uint16_t index) {
  LocalLanding& landing = landings_[index];
  if (landing.state != LocalLanding::State::dropped && !is_error(peer.lost)) return false;
  if (landing.memory != nullptr) tw_memory_release(landing.memory);
  landing = LocalLanding();
  return true;
}

Status Channel::settled(int index) const {
  if (state_ == State::failed) return fail(status_, "the channel failed: %s", why_.c_str());
  if (state_ == State::proxied) return TW_OK;
  if (state_ != State::mapped) return TW_IN_PROGRESS;
  if (index < 0) return TW_OK;
  const LocalLanding& landing = landings_[static_cast<size_t>(index)];
  if (landing.state == LocalLanding::State::refused) {
    return fail(landing.status, "the channel is mapped, but the peer does not reach this buffer: %s; use another tag for it",
                landing.text.c_str());
  }
  return landing.state == LocalLanding::State::known ? TW_OK : TW_IN_PROGRESS;
}

// ------------------------------------------------------------------------------------------------ users

Status Channel::add(User* user, bool alone) {
  if (alone_) {
    return fail(TW_ERR_BUSY,
                "this end of the channel with tag %llu is bound to a kernel: release it (tw_channel_end_release), or use "
                "another tag",
                static_cast<unsigned long long>(name.tag));
  }
  if (alone && !users_.empty()) {
    return fail(TW_ERR_BUSY,
                "this end of the channel with tag %llu is used by a plan, or by operations on a queue: destroy that first, or "
                "use another tag",
                static_cast<unsigned long long>(name.tag));
  }
  alone_ = alone;
  if (alone) counted = false;
  users_.push_back(user);
  return TW_OK;
}

void Channel::remove(User* user) {
  std::erase(users_, user);
  if (!std::exchange(alone_, false)) return;
  for (const uint16_t index : std::exchange(held_, {})) give_back(index);
  for (RemoteLanding& landing : remote_) {
    if (landing.reached.revoked()) forget(landing);
  }
  if (sender) {
    if (prepared_there_ != kEveryRound) prepared_here_ = prepared_there_;
  } else if (state_ == State::mapped) {
    tell_round();
  }
}

// ------------------------------------------------------------------------------------------------ messages

void Channel::take(ControlMessage&& message) {
  const bool returns = message.type == Control::drop || message.type == Control::dropped;  // whatever became of the end
  if (message.incarnation < incarnation_ && !returns) return;  // of an end that was opened again meanwhile
  if (message.incarnation > incarnation_ && !returns) {
    if (message.type != Control::open) return;
    if (state_ != State::opening) {
      fail_end(TW_ERR_STALE, "the peer has opened the channel again after a failure: prepare the plan again", false);
      agent_.keep_early(peer, std::move(message));
      return;
    }
    incarnation_ = message.incarnation;
    open_again();
  }
  switch (message.type) {
    case Control::open:
      theirs_ = std::move(message);
      opened_there_ = true;
      if (sender) {
        remote_.clear();
      } else {
        number_ = theirs_.number;
      }
      break;
    case Control::verdict:
      verdict_there_ = true;
      if (is_error(message.status)) {
        both_reach_ = false;
        if (why_.empty()) why_ = "at the peer: " + message.text;
      }
      decide();
      break;
    case Control::landing:
      if (!sender || message.index >= kLandings) break;
      if (remote_.size() <= message.index) remote_.resize(message.index + 1u);
      forget(remote_[message.index]);
      remote_[message.index].used = true;
      remote_[message.index].told = std::move(message);
      break;
    case Control::landing_known:
      if (sender || message.index >= landings_.size()) break;
      if (landings_[message.index].state == LocalLanding::State::told) {
        landings_[message.index].state = is_error(message.status) ? LocalLanding::State::refused : LocalLanding::State::known;
        landings_[message.index].status = message.status;
        landings_[message.index].text = message.text;
      }
      break;
    case Control::drop:
      if (sender) give_back(message.index);
      break;
    case Control::dropped:
      if (sender || message.index >= landings_.size() || landings_[message.index].state != LocalLanding::State::dropping) break;
      landings_[message.index].state = LocalLanding::State::dropped;
      if (landings_[message.index].abandoned) withdrawn(message.index);
      break;
    case Control::prepared:
      if (prepared_there_ == kEveryRound && message.capacity != kEveryRound) prepared_here_ = message.capacity;
      prepared_there_ = message.capacity;
      break;
    default:
      fail_end(message.status, message.text, false);
  }
  agent_.changed.notify_all();
}

void Channel::fail_end(Status status, const std::string& why, bool tell) {
  if (state_ == State::failed || state_ == State::closed) return;
  state_ = State::failed;
  status_ = status;
  why_ = why;
  if (tell && !is_error(peer.lost)) say(Control::failed, 0, status, why.c_str());
  for (User* user : users_) user->on_channel_failed(status);
  agent_.changed.notify_all();
}

}  // namespace thalweg::impl
