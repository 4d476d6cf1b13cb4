// SPDX-License-Identifier: Apache-2.0
// How the two ends of a channel find out whether they reach each other. On the agent's thread.
#include "base/clock.hpp"
#include "core/c_checks.hpp"
#include "plans/channel.hpp"

namespace thalweg::impl {
namespace {

constexpr uint64_t kLossShowsNs = 200'000'000;  // a lost peer's memory is revoked first, then its endpoint says why

device::u64* slots_of(uint64_t words) { return reinterpret_cast<device::u64*>(words + kSlotsAt); }

}  // namespace

unsigned Channel::advance() {
  if (state_ != State::opening && state_ != State::mapped) return 0;
  unsigned events = 0;
  if (!sender && opened_there_) {
    for (size_t i = 0; i < landings_.size(); ++i) {
      LocalLanding& landing = landings_[i];
      if (landing.state != LocalLanding::State::new_) continue;
      ControlMessage message;
      message.type = Control::landing;
      message.name = name;
      message.incarnation = incarnation_;
      message.index = static_cast<uint16_t>(i);
      message.key = landing.key;
      message.offset = static_cast<uint64_t>(landing.offset);
      message.capacity = landing.capacity;
      message.layout = landing.layout;
      landing.state = LocalLanding::State::told;
      agent_.send(peer, message);
      ++events;
    }
  }
  if (state_ == State::opening && opened_there_) events += advance_words();
  if (sender && opened_there_) events += advance_landings();
  return events;
}

/// The other end's words; for the receiver that is the verdict.
unsigned Channel::advance_words() {
  if (verdict_here_) return 0;
  Status status = reachable_;
  std::string why = unreachable_;
  if (!is_error(status) && their_words_.address() == 0) {
    if (their_words_region_ == nullptr)
      status = tw_memory_import(peer.endpoint, theirs_.key.data(), theirs_.key.size(), &their_words_region_);
    if (!is_error(status) && theirs_.on_device != (executor.device() != nullptr ? 1 : 0)) {
      status = fail(TW_ERR_UNREACHABLE, "one end is run by a device, the other by the host");
    }
    if (!is_error(status)) status = reach(agent_.worker(), *region_of(their_words_region_), executor, &their_words_);
    if (status == TW_IN_PROGRESS) return 0;
    if (!is_error(status)) {
      const uint64_t length = region_of(their_words_region_)->key.length;
      if (length < kWordsBytes || theirs_.offset > length - kWordsBytes)
        status = fail(TW_ERR_OUT_OF_BOUNDS, "they are described as outside of their memory");
    }
    if (is_error(status)) why = std::string("the other end's words: ") + last_error();
  }
  if (is_error(status)) {
    give_verdict(status, why);
  } else if (!sender) {
    give_verdict(TW_OK, "");
  }
  return verdict_here_ ? 1 : 0;
}

Status Channel::reach_landing(uint16_t index, RemoteLanding& landing) {
  device::Landing made{};
  made.capacity = landing.told.capacity;
  if (!landing.told.key.empty()) {
    if (landing.region == nullptr) {
      const std::vector<std::byte>& key = landing.told.key;
      if (Status s = tw_memory_import(peer.endpoint, key.data(), key.size(), &landing.region); is_error(s)) return s;
    }
    const Status status = reach(agent_.worker(), *region_of(landing.region), executor, &landing.reached);
    if (status != TW_OK) return status;
    Layout layout;
    const Layout* use = nullptr;
    const auto offset = static_cast<int64_t>(landing.told.offset);
    int64_t first = 0, last = static_cast<int64_t>(landing.told.capacity);
    if (!landing.told.layout.empty()) {
      if (Status s = decode_into(landing.told.layout.data(), landing.told.layout.size(), layout); is_error(s)) return s;
      use = &layout;
      first = layout.first;
      last = layout.last;
    }
    const uint64_t length = region_of(landing.region)->key.length;
    if (first + offset != 0 || static_cast<uint64_t>(last - first) > length ||
        (use != nullptr && use->bytes != made.capacity)) {
      return fail(TW_ERR_PROTOCOL, "the peer described a buffer that is not in its memory");
    }
    const uint64_t address = landing.reached.address() + static_cast<uint64_t>(offset);
    if (Status s = make_side(executor, address, use, made.capacity, &made.to, &landing.table, &landing.table_length);
        is_error(s))
      return s;
  }
  return executor.store(landing_table_ + index * sizeof made, &made, sizeof made);
}

void Channel::answer(uint16_t index, RemoteLanding& landing, Status status) {
  landing.answered = true;
  say(Control::landing_known, index, status, is_error(status) ? last_error() : "");
  if (!is_error(status) || verdict_here_) return;
  give_verdict(status, std::string("the receiver's buffer: ") + last_error());
}

unsigned Channel::advance_landings() {
  unsigned events = 0;
  uint64_t answered = 0;
  for (size_t i = 0; i < remote_.size(); ++i) {
    RemoteLanding& landing = remote_[i];
    if (landing.used && !landing.answered) {
      const Status status = reach_landing(static_cast<uint16_t>(i), landing);
      if (status == TW_IN_PROGRESS) continue;
      answer(static_cast<uint16_t>(i), landing, status);
      ++events;
    }
    answered += landing.answered;
    // The owner wants its memory back: no later run may touch it.
    if (landing.reached.revoked() && state_ == State::mapped) {
      if (landing.revoked == 0) landing.revoked = monotonic_ns();
      if (monotonic_ns() - landing.revoked < kLossShowsNs) continue;
      fail_end(TW_ERR_STALE, "the receiver has released a buffer of the channel", true);
      if (!alone_) forget(landing);
      ++events;
    }
  }
  if (state_ == State::opening && !verdict_here_ && their_words_.address() != 0 && answered >= theirs_.capacity)
    give_verdict(TW_OK, "");
  return events;
}

void Channel::give_verdict(Status status, const std::string& why) {
  verdict_here_ = true;
  if (is_error(status)) {
    both_reach_ = false;
    why_ = why;
  }
  say(Control::verdict, 0, status, why.c_str());
  decide();
}

void Channel::decide() {
  if (state_ != State::opening || !verdict_here_ || !verdict_there_) return;
  state_ = both_reach_ ? State::mapped : State::proxied;
  if (state_ == State::mapped) {
    if (const Status status = finish_mapped(); is_error(status)) fail_end(status, last_error(), true);
  }
  agent_.changed.notify_all();
}

/// Both ends know where the other's words are: the executor's part is written.
Status Channel::finish_mapped() {
  device::u64* const mine = slots_of(words_);
  device::u64* const other = slots_of(their_words_.address() + theirs_.offset);
  if (sender) {
    device::SendEnd end{};
    end.credits = mine;
    end.flags = other;
    end.landings = reinterpret_cast<const device::Landing*>(landing_table_);
    return executor.store(words_, &end, sizeof end);
  }
  device::RecvEnd end{};
  end.flags = mine;
  end.credits = other;
  return executor.store(words_, &end, sizeof end);
}

/// The receiver wants a buffer back. A message that was under way when the channel failed may still be stored there by a kernel.
void Channel::give_back(uint16_t index) {
  if (alone_ && state_ == State::failed) {
    held_.push_back(index);
    return;
  }
  if (index < remote_.size() && remote_[index].used) {
    forget(remote_[index]);
    const device::Landing none{};
    executor.store(landing_table_ + index * sizeof none, &none, sizeof none);
  }
  say(Control::dropped, index);
}

void Channel::forget(RemoteLanding& landing) {
  landing.reached.reset();
  if (landing.region != nullptr) tw_remote_memory_release(landing.region);
  executor.own().free(landing.table, landing.table_length);
  landing = RemoteLanding();
}

void Channel::forget_words() {
  their_words_.reset();
  if (their_words_region_ != nullptr) tw_remote_memory_release(their_words_region_);
  their_words_region_ = nullptr;
}

}  // namespace thalweg::impl
