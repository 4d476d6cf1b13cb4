// SPDX-License-Identifier: Apache-2.0
// The receiver's buffers: offered, told, reached by the sender, taken back.
#include "base/clock.hpp"
#include "core/c_checks.hpp"
#include "memory/placement.hpp"
#include "memory/registry_state.hpp"
#include "plans/channel.hpp"

namespace thalweg::impl {
namespace {

constexpr uint64_t kLossShowsNs = 200'000'000;  // a lost peer's memory is revoked first, then its endpoint says why

}  // namespace

// ------------------------------------------------------------------------------------------------ at the receiver

Status Channel::offer(uint64_t address, const Layout* layout, uint64_t length, uint16_t* index) {
  take_abandoned();
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
  Registry& registry = *proxy_.context.registry;
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

/// Once, however often it is waited for.
void Channel::withdraw(uint16_t index) {
  LocalLanding& landing = landings_[index];
  if (landing.state == LocalLanding::State::dropping || landing.state == LocalLanding::State::dropped) return;
  landing.state = landing.held && !is_error(peer.lost) ? LocalLanding::State::dropping : LocalLanding::State::dropped;
  if (landing.state == LocalLanding::State::dropping) say(Control::drop, index);
}

bool Channel::withdrawn(uint16_t index) {
  LocalLanding& landing = landings_[index];
  if (landing.state != LocalLanding::State::dropped && !is_error(peer.lost)) return false;
  // Busy: a stopped peer is in the middle of a copy and may still store there.
  if (landing.memory != nullptr && tw_memory_release(landing.memory) == TW_ERR_BUSY) return false;
  landing = LocalLanding();
  return true;
}

/// Those that could not be taken back when they were abandoned.
void Channel::take_abandoned() {
  for (size_t i = 0; i < landings_.size(); ++i) {
    if (landings_[i].abandoned) withdrawn(static_cast<uint16_t>(i));
  }
}

void Channel::abandon(uint16_t index) {
  landings_[index].abandoned = true;
  if (landings_[index].state == LocalLanding::State::dropped) withdrawn(index);
}

unsigned Channel::tell_landings() {
  unsigned events = 0;
  for (size_t i = 0; i < landings_.size(); ++i) {
    LocalLanding& landing = landings_[i];
    if (landing.state != LocalLanding::State::new_) continue;
    ControlMessage message;
    message.type = Control::landing;
    message.name = name;
    message.epoch = epoch_;
    message.partner = theirs_.epoch;
    message.index = static_cast<uint16_t>(i);
    message.key = landing.key;
    message.offset = static_cast<uint64_t>(landing.offset);
    message.capacity = landing.capacity;
    message.layout = landing.layout;
    landing.state = LocalLanding::State::told;
    landing.held = true;
    proxy_.send(peer, message);
    ++events;
  }
  return events;
}

void Channel::landing_answered(const ControlMessage& message) {
  LocalLanding& landing = landings_[message.index];
  if (landing.state != LocalLanding::State::told) return;
  landing.state = is_error(message.status) ? LocalLanding::State::refused : LocalLanding::State::known;
  landing.status = message.status;
  landing.text = message.text;
  // Of a plan that came to an open channel: carried by the host it would do.
  const bool refused = landing.state == LocalLanding::State::refused;
  if (refused && state_ == State::mapped && !relied_on() && there_ && !bound_) ask(Asks::another, waits_);
}

void Channel::landing_dropped(uint16_t index) {
  if (index >= landings_.size() || landings_[index].state != LocalLanding::State::dropping) return;
  landings_[index].state = LocalLanding::State::dropped;
  if (landings_[index].abandoned) withdrawn(index);
}

// ------------------------------------------------------------------------------------------------ at the sender

void Channel::landing_told(ControlMessage&& message) {
  const uint16_t index = message.index;
  if (remote_.size() <= index) remote_.resize(index + 1u);
  forget(index);
  remote_[index].used = true;
  remote_[index].told = std::move(message);
}

Status check_told(const ControlMessage& told, uint64_t memory, Layout* layout) {
  if (told.key.empty() && told.capacity != 0) {
    return fail(TW_ERR_PROTOCOL, "the peer described a buffer of %llu bytes without a key to it",
                static_cast<unsigned long long>(told.capacity));
  }
  uint64_t first = 0, span = told.capacity, bytes = told.capacity;
  if (!told.layout.empty()) {
    PeerBytes wire(told.layout.data(), told.layout.size());
    if (Status s = decode_into(wire, *layout); is_error(s)) return s;
    if (wire.left() != 0) return fail(TW_ERR_PROTOCOL, "the peer described a buffer by more than a layout");
    first = static_cast<uint64_t>(layout->first);
    span = static_cast<uint64_t>(layout->last) - first;
    bytes = layout->bytes;
  }
  // The key's range begins with the buffer's first byte.
  if (told.offset + first != 0 || span > memory || bytes != told.capacity) {
    return fail(TW_ERR_PROTOCOL, "the peer described a buffer that is not in its memory");
  }
  return TW_OK;
}

Status check_words(uint64_t memory, uint64_t address, uint64_t offset) {
  if (memory < kWordsBytes || offset > memory - kWordsBytes)
    return fail(TW_ERR_OUT_OF_BOUNDS, "they are described as outside of their memory");
  if ((address + offset) % sizeof(device::u64) != 0) return fail(TW_ERR_MISALIGNED, "they are described as not aligned");
  return TW_OK;
}

Status Channel::reach_landing(uint16_t index, RemoteLanding& landing) {
  device::Landing made{};
  made.capacity = landing.told.capacity;
  Layout layout;
  if (landing.told.key.empty()) {
    if (Status s = check_told(landing.told, 0, &layout); is_error(s)) return s;
  } else {
    if (landing.region == nullptr) {
      const std::vector<std::byte>& key = landing.told.key;
      if (Status s = tw_memory_import(peer.endpoint, key.data(), key.size(), &landing.region); is_error(s)) return s;
    }
    const Status status = reach(proxy_.worker(), *region_of(landing.region), *executor_, false, &landing.reached);
    if (status != TW_OK) return status;
    if (Status s = check_told(landing.told, region_of(landing.region)->key.length, &layout); is_error(s)) return s;
    const Layout* use = landing.told.layout.empty() ? nullptr : &layout;
    const uint64_t address = landing.reached.address() + landing.told.offset;
    if (Status s = make_side(*executor_, address, use, made.capacity, &made.to, &landing.table, &landing.table_length);
        is_error(s))
      return s;
  }
  return executor_->store(landing_table_ + index * sizeof made, &made, sizeof made);
}

void Channel::answer(uint16_t index, RemoteLanding& landing, Status status) {
  landing.answered = true;
  say(Control::landing_known, index, status, is_error(status) ? last_error() : "");
  if (!is_error(status) || result_here_) return;
  give_result(status, std::string("the receiver's buffer: ") + last_error());
}

unsigned Channel::advance_landings() {
  unsigned events = 0;
  bool all = true;
  for (size_t i = 0; i < remote_.size(); ++i) {
    RemoteLanding& landing = remote_[i];
    const auto index = static_cast<uint16_t>(i);
    if (landing.used && !landing.answered) {
      const Status status = reach_landing(index, landing);
      all = all && status != TW_IN_PROGRESS;
      if (status == TW_IN_PROGRESS) {
        if (landing.reached.how.route() == PreparedRoute::pinned) proxy_.hurry();  // nothing wakes the proxy when it is pinned
        continue;
      }
      answer(index, landing, status);
      ++events;
    }
    // The owner wants its memory back: no later run may touch it.
    if (landing.reached.revoked() && state_ == State::mapped) {
      if (landing.revoked == 0) landing.revoked = monotonic_ns();
      if (monotonic_ns() - landing.revoked < kLossShowsNs) continue;
      fail_end(epoch_, TW_ERR_STALE, "the receiver has released a buffer of the channel");
      if (!alone_) forget(index);
      ++events;
    }
  }
  // The receiver's result stands behind its first landings.
  if (state_ == State::opening && !result_here_ && result_there_ && their_words_.address() != 0 && all) give_result(TW_OK, "");
  return events;
}

/// The receiver wants a buffer back. A message that was under way when the channel failed may still be stored there by a kernel.
void Channel::give_back(uint16_t index) {
  if (alone_ && state_ == State::failed) {
    if (std::find(held_.begin(), held_.end(), index) == held_.end()) held_.push_back(index);
    return;
  }
  forget(index);
  say(Control::dropped, index);
}

void Channel::release(RemoteLanding& landing) {
  landing.reached.reset();
  if (landing.region != nullptr) tw_remote_memory_release(landing.region);
  executor_->own().free(landing.table, landing.table_length);
  landing = RemoteLanding();
}

/// A number that names no buffer is one of no bytes.
void Channel::forget(uint16_t index) {
  if (index >= remote_.size() || !remote_[index].used) return;
  const device::Landing none{};
  executor_->store(landing_table_ + index * sizeof none, &none, sizeof none);
  release(remote_[index]);
}

void Channel::forget_landings() {
  for (size_t i = 0; i < remote_.size(); ++i) forget(static_cast<uint16_t>(i));
}

}  // namespace thalweg::impl
