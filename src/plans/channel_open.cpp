// SPDX-License-Identifier: Apache-2.0
// How the two ends of a channel find out whether they reach each other. On the proxy's thread.
#include <utility>

#include "base/clock.hpp"
#include "core/c_checks.hpp"
#include "memory/registry_state.hpp"
#include "plans/channel.hpp"
#include "routes/prepared.hpp"

namespace thalweg::impl {

void Channel::say_open() {
  ControlMessage open;
  open.type = Control::open;
  open.name = name;
  open.from_sender = sender;
  open.epoch = epoch_;
  open.on_device = executor_->device() != nullptr ? 1 : 0;
  if (executor_->device() != nullptr) open.uuid = executor_->device()->uuid();
  open.number = number_;
  open.index = users_.alone() ? 1 : 0;
  tw_memory* block = executor_->shared().holder(words_);
  std::byte key[kKeySize];
  size_t length = sizeof key;
  if (tw_memory_export(block, key, &length) == TW_OK) open.key.assign(key, key + length);
  open.offset = words_ - reinterpret_cast<uint64_t>(block->address);
  proxy_.send(peer, open);
}

unsigned Channel::advance() {
  if (asked_there_ == Asks::another && carried_ > carried_there_) let_stay();  // a plan goes on here where the peer's had ended
  if (number_over_ != 0) {
    proxy_.drop_messages(peer, number_over_);
    if (dropping_.passed()) number_over_ = 0;
  }
  take_abandoned();
  unsigned events = settle();
  if (!there_ || (state_ != State::opening && state_ != State::mapped)) return events;
  events += sender ? 0 : tell_recv_buffers();
  if (state_ == State::opening) events += advance_words();
  if (sender) events += advance_recv_buffers();
  return events;
}

/// The other end's words; for the receiver that is the result.
unsigned Channel::advance_words() {
  if (result_here_) return 0;
  if (of_no_use(reachable_)) {
    if (theirs_.epoch == paired_there_) return 0;  // who waits there begins the next one, and is to be told
    refuse_end(epoch_, reachable_, unreachable_);
    return 1;
  }
  Status status = reachable_;
  std::string why = unreachable_;
  if (!is_error(status) && their_words_.address() == 0) {
    if (their_words_region_ == nullptr)
      status = tw_memory_import(peer.endpoint, theirs_.key.data(), theirs_.key.size(), &their_words_region_);
    const char* const apart = why_not_paired(executor_->device() != nullptr, theirs_.on_device != 0);
    if (!is_error(status) && apart != nullptr) status = fail(TW_ERR_UNREACHABLE, "%s", apart);
    if (!is_error(status)) status = reach(proxy_.worker(), *region_of(their_words_region_), *executor_, false, &their_words_);
    if (status == TW_IN_PROGRESS) return 0;
    if (!is_error(status)) {
      status = check_words(region_of(their_words_region_)->key.length, their_words_.address(), theirs_.offset);
    }
    if (is_error(status)) why = std::string("the other end's words: ") + last_error();
    hopeless_ = is_error(status) && apart == nullptr;
  }
  const char* const packed = sender ? nullptr : why_not_mapped_channel(packs_, theirs_.index != 0);
  if (is_error(status)) {
    give_result(status, why);
  } else if (packed != nullptr) {
    give_result(TW_ERR_UNSUPPORTED, packed);
  } else if (!sender) {
    give_result(TW_OK, "");
  }
  return result_here_ ? 1 : 0;
}

void Channel::give_result(Status status, const std::string& why) {
  result_here_ = true;
  if (is_error(status)) {
    both_reach_ = false;
    why_ = why;
  } else {
    words_known_ = true;
  }
  say(Control::result, 0, status, why.c_str());
  decide();
}

void Channel::decide() {
  if (state_ != State::opening || !result_here_ || !result_there_) return;
  state_ = both_reach_ ? State::mapped : State::proxied;
  was_mapped_ = both_reach_;
  paired_there_ = theirs_.epoch;
  if (state_ == State::mapped) {
    if (const Status status = finish_mapped(); is_error(status)) refuse_end(epoch_, status, last_error());
  }
  proxy_.changed.notify_all();
}

/// Both ends know where the other's words are: the executor's part is written.
Status Channel::finish_mapped() {
  auto* const mine = reinterpret_cast<device::u64*>(words_);
  auto* const other = reinterpret_cast<device::u64*>(their_words_.address() + theirs_.offset);
  if (sender) {
    device::SendEnd end{};
    end.credits = mine;
    end.flags = other;
    end.recv_buffers = reinterpret_cast<const device::RecvBuffer*>(recv_buffer_table_);
    return executor_->store(end_, &end, sizeof end);
  }
  device::RecvEnd end{};
  end.flags = mine;
  end.credits = other;
  return executor_->store(end_, &end, sizeof end);
}

void Channel::forget_words() { retire({std::move(their_words_), std::exchange(their_words_region_, nullptr)}); }

}  // namespace thalweg::impl
