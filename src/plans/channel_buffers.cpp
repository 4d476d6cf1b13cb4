// SPDX-License-Identifier: Apache-2.0
// The receiver's buffers: offered, sent, reached by the sender, withdrawn.
#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/clock.hpp"
#include "core/c_checks.hpp"
#include "memory/placement.hpp"
#include "memory/registry_state.hpp"
#include "plans/channel.hpp"

namespace thalweg::impl {
namespace {

constexpr uint64_t kLossShowsNs = 200'000'000;  // a lost peer's memory is revoked first, then its endpoint has why

/// By operations of queues, and nothing else. The receiver's of other buffers go on when it has released one: it names the buffer of each
/// message, and one that is forgotten takes none.
bool used_by_queues(const ChannelUsers& users, uint32_t epoch) {
  const std::vector<ChannelUser*> those = users.of(epoch);
  return !users.alone() && !those.empty() &&
         std::all_of(those.begin(), those.end(), [](const ChannelUser* one) { return one->stays(); });
}

}  // namespace

// ------------------------------------------------------------------------------------------------ at the receiver

Status Channel::offer(uint64_t address, const Layout* layout, uint64_t length, uint16_t* index) {
  take_abandoned();
  const auto used = [this](size_t i) {
    return i < recv_buffers_.size() && recv_buffers_[i].state != LocalRecvBuffer::State::unused;
  };
  size_t tried = 0, at = next_number_;
  for (; tried < kRecvBuffers && used(at); ++tried) at = (at + 1) % kRecvBuffers;
  if (tried == kRecvBuffers) {
    return fail(TW_ERR_LIMIT,
                "%u buffers wait for the messages of one channel: destroy plans that are not used, or use more channels",
                kRecvBuffers);
  }
  LocalRecvBuffer made;
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
    std::byte key[kKeySize];
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
    made.untold = made.layout.empty();
  }
  made.state = LocalRecvBuffer::State::new_;
  if (at >= recv_buffers_.size()) recv_buffers_.resize(at + 1);
  recv_buffers_[at] = std::move(made);
  next_number_ = (at + 1) % kRecvBuffers;
  *index = static_cast<uint16_t>(at);
  return TW_OK;
}

/// Those that are withdrawn are no user's any more.
bool Channel::has_untold() const {
  return std::any_of(recv_buffers_.begin(), recv_buffers_.end(),
                     [](const LocalRecvBuffer& one) { return one.untold && one.state == LocalRecvBuffer::State::new_; });
}

/// Once, however often it is waited for.
void Channel::withdraw(uint16_t index) {
  LocalRecvBuffer& recv_buffer = recv_buffers_[index];
  if (recv_buffer.state == LocalRecvBuffer::State::dropping || recv_buffer.state == LocalRecvBuffer::State::dropped) return;
  recv_buffer.state =
      recv_buffer.held && !is_error(peer.lost) ? LocalRecvBuffer::State::dropping : LocalRecvBuffer::State::dropped;
  if (recv_buffer.state == LocalRecvBuffer::State::dropping) say(Control::drop, index);
}

bool Channel::withdrawn(uint16_t index) {
  LocalRecvBuffer& recv_buffer = recv_buffers_[index];
  if (recv_buffer.state != LocalRecvBuffer::State::dropped && !is_error(peer.lost)) return false;
  // Busy: a peer is in the middle of a copy and may still store there. Its end is not awaited here: all peers need the proxy.
  if (recv_buffer.memory != nullptr && proxy_.context.registry->try_release(recv_buffer.memory) == TW_ERR_BUSY) return false;
  recv_buffer = LocalRecvBuffer();
  return true;
}

/// Those that could not be taken back when they were abandoned.
void Channel::take_abandoned() {
  const auto abandoned = [](const LocalRecvBuffer& one) { return one.abandoned; };
  if (std::none_of(recv_buffers_.begin(), recv_buffers_.end(), abandoned) || !abandoned_again_.passed()) return;
  abandoned_again_ = Deadline(kMillisecond);  // each try stops the registry's readers
  for (size_t i = 0; i < recv_buffers_.size(); ++i) {
    if (recv_buffers_[i].abandoned) withdrawn(static_cast<uint16_t>(i));
  }
}

bool Channel::idle() {
  if (!users_.empty()) return false;
  take_abandoned();
  return std::all_of(recv_buffers_.begin(), recv_buffers_.end(),
                     [](const LocalRecvBuffer& one) { return one.state == LocalRecvBuffer::State::unused; });
}

void Channel::abandon(uint16_t index) {
  recv_buffers_[index].abandoned = true;
  if (recv_buffers_[index].state == LocalRecvBuffer::State::dropped) withdrawn(index);
}

std::weak_ptr<const int> Channel::life_of(uint16_t index) {
  std::shared_ptr<const int>& life = recv_buffers_[index].life;
  if (life == nullptr) life = std::make_shared<const int>(0);
  return life;
}

unsigned Channel::tell_recv_buffers() {
  unsigned events = 0;
  for (size_t i = 0; i < recv_buffers_.size(); ++i) {
    LocalRecvBuffer& recv_buffer = recv_buffers_[i];
    if (recv_buffer.state != LocalRecvBuffer::State::new_ || recv_buffer.untold) continue;
    ControlMessage message;
    message.type = Control::recv_buffer;
    message.name = name;
    message.epoch = epoch_;
    message.partner = theirs_.epoch;
    message.index = static_cast<uint16_t>(i);
    message.key = recv_buffer.key;
    message.offset = static_cast<uint64_t>(recv_buffer.offset);
    message.capacity = recv_buffer.capacity;
    message.layout = recv_buffer.layout;
    recv_buffer.state = LocalRecvBuffer::State::told;
    recv_buffer.held = true;
    proxy_.send(peer, message);
    ++events;
  }
  return events;
}

void Channel::recv_buffer_answered(const ControlMessage& message) {
  LocalRecvBuffer& recv_buffer = recv_buffers_[message.index];
  if (recv_buffer.state != LocalRecvBuffer::State::told) return;
  recv_buffer.state = is_error(message.status) ? LocalRecvBuffer::State::refused : LocalRecvBuffer::State::known;
  // Busy would ask the user to wait for a run of ours.
  recv_buffer.status = message.status == TW_ERR_BUSY ? Status{TW_ERR_PROTOCOL} : Status{message.status};
  recv_buffer.text = message.text;
  // Of a plan that came to an open channel: carried by the host it would do.
  const bool refused = recv_buffer.state == LocalRecvBuffer::State::refused;
  if (refused && state_ == State::mapped && !relied_on() && there_ && !bound_) ask(Asks::another, waits_);
}

void Channel::recv_buffer_dropped(uint16_t index) {
  if (index >= recv_buffers_.size() || recv_buffers_[index].state != LocalRecvBuffer::State::dropping) return;
  recv_buffers_[index].state = LocalRecvBuffer::State::dropped;
  if (recv_buffers_[index].abandoned) withdrawn(index);
}

// ------------------------------------------------------------------------------------------------ at the sender

/// Once in a pair, until the receiver has it back: runs may be reading the entry.
void Channel::recv_buffer_told(ControlMessage&& message) {
  const uint16_t index = message.index;
  if (remote_.size() <= index) remote_.resize(index + 1u);
  if (remote_[index].used) {
    const std::string why = "the receiver described buffer " + std::to_string(index) + ", which is in use, again";
    return fail_end(epoch_, TW_ERR_PROTOCOL, why);
  }
  if (retired_.full())
    return refuse_end(epoch_, TW_ERR_LIMIT, "the receiver took too many buffers back while runs were under way here");
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

Status Channel::reach_recv_buffer(uint16_t index, RemoteRecvBuffer& recv_buffer) {
  if (!entry_is_free(index)) return TW_IN_PROGRESS;
  device::RecvBuffer made{};
  made.capacity = recv_buffer.told.capacity;
  Layout layout;
  if (recv_buffer.told.key.empty()) {
    if (Status s = check_told(recv_buffer.told, 0, &layout); is_error(s)) return s;
  } else {
    if (recv_buffer.region == nullptr) {
      const std::vector<std::byte>& key = recv_buffer.told.key;
      if (Status s = tw_memory_import(peer.endpoint, key.data(), key.size(), &recv_buffer.region); is_error(s)) return s;
    }
    const Status status = reach(proxy_.worker(), *region_of(recv_buffer.region), *executor_, false, &recv_buffer.reached);
    if (status != TW_OK) return status;
    if (Status s = check_told(recv_buffer.told, region_of(recv_buffer.region)->key.length, &layout); is_error(s)) return s;
    const Layout* use = recv_buffer.told.layout.empty() ? nullptr : &layout;
    const uint64_t address = recv_buffer.reached.address() + recv_buffer.told.offset;
    if (Status s = make_side(*executor_, address, use, made.capacity, &made.to, &recv_buffer.table, &recv_buffer.table_length);
        is_error(s))
      return s;
  }
  // A run may be reading the entry, which has had no room until now: the room comes last.
  const uint64_t entry = recv_buffer_table_ + index * sizeof made;
  if (Status s = executor_->store(entry + offsetof(device::RecvBuffer, to), &made.to, sizeof made.to); is_error(s)) return s;
  return executor_->store(entry + offsetof(device::RecvBuffer, capacity), &made.capacity, sizeof made.capacity);
}

void Channel::answer(uint16_t index, RemoteRecvBuffer& recv_buffer, Status status) {
  recv_buffer.answered = true;
  say(Control::recv_buffer_known, index, status, is_error(status) ? last_error() : "");
  if (!is_error(status) || result_here_) return;
  give_result(status, std::string("the receiver's buffer: ") + last_error());
}

unsigned Channel::advance_recv_buffers() {
  unsigned events = 0;
  bool all = true;
  for (size_t i = 0; i < remote_.size(); ++i) {
    RemoteRecvBuffer& recv_buffer = remote_[i];
    const auto index = static_cast<uint16_t>(i);
    if (recv_buffer.used && !recv_buffer.answered) {
      const Status status = reach_recv_buffer(index, recv_buffer);
      all = all && status != TW_IN_PROGRESS;
      if (status == TW_IN_PROGRESS) {
        if (recv_buffer.reached.how.route() == PreparedRoute::pinned)
          proxy_.hurry();  // nothing wakes the proxy when it is pinned
        continue;
      }
      answer(index, recv_buffer, status);
      ++events;
    }
    // The owner wants its memory back: no later run may touch it.
    if (recv_buffer.reached.revoked() && state_ == State::mapped) {
      if (recv_buffer.revoked == 0) recv_buffer.revoked = monotonic_ns();
      if (monotonic_ns() - recv_buffer.revoked < kLossShowsNs) continue;
      if (!used_by_queues(users_, epoch_)) fail_end(epoch_, TW_ERR_STALE, "the receiver has released a buffer of the channel");
      if (!users_.alone()) forget(index);
      ++events;
    }
  }
  // The receiver's result comes after its first receive buffers.
  if (state_ == State::opening && !result_here_ && result_there_ && their_words_.address() != 0 && all) give_result(TW_OK, "");
  return events;
}

/// The receiver wants a buffer back. A message that was under way when the channel failed may still be stored there.
void Channel::give_back(uint16_t index) {
  if (past_runs()) return retired_.hold(index);
  forget(index);
  say(Control::dropped, index);
}

void Channel::release(RemoteRecvBuffer& recv_buffer) {
  retire({std::move(recv_buffer.reached), recv_buffer.region});
  retired_.keep_table(executor_->own(), recv_buffer.table, recv_buffer.table_length, users_.have_runs());
  recv_buffer = RemoteRecvBuffer();
}

/// A number that names no buffer is one of no bytes. Its address stays: a run may be reading the entry.
void Channel::forget(uint16_t index) {
  if (index >= remote_.size() || !remote_[index].used) return;
  const uint64_t none = 0, entry = recv_buffer_table_ + index * sizeof(device::RecvBuffer);
  executor_->store(entry + offsetof(device::RecvBuffer, capacity), &none, sizeof none);
  if (remote_[index].answered) keep_entry(index);
  release(remote_[index]);
}

uint64_t Channel::sends() const {
  uint64_t count = 0;
  if (is_error(executor_->load(&count, end_ + offsetof(device::SendEnd, count), sizeof count))) return 0;
  return count;
}

void Channel::keep_entry(uint16_t index) {
  TakenBack then;
  if (users_.alone()) {
    then.sends = sends() + device::kSlots;
  } else {
    then.runs = users_.runs_now(epoch_);
  }
  if (then.sends != 0 || !then.runs.empty()) taken_back_[index] = std::move(then);
}

bool Channel::entry_is_free(uint16_t index) {
  const auto found = taken_back_.find(index);
  if (found == taken_back_.end()) return true;
  const TakenBack& then = found->second;
  if (!users_.over(then.runs) || (then.sends != 0 && users_.alone() && sends() < then.sends)) return false;
  taken_back_.erase(found);
  return true;
}

void Channel::forget_recv_buffers() {
  for (size_t i = 0; i < remote_.size(); ++i) forget(static_cast<uint16_t>(i));
}

// ------------------------------------------------------------------------------------------------ runs that are under way

/// Runs that may use what is retired. A peer that takes a buffer back from a mapped channel says that no message is under way to it. Of
/// host memory that is not believed, because it costs the peer nothing; device memory that stays imported could not be released there.
bool Channel::runs_under_way() const {
  if (executor_->device() != nullptr) return past_runs();
  return users_.have_runs();
}

unsigned Channel::settle() {
  if (retired_.keeps() && !runs_under_way()) retired_.free_memory();
  if (retired_.keeps_tables() && !users_.have_runs()) retired_.free_tables();
  if (!retired_.holds() || past_runs()) return 0;
  const std::vector<uint16_t> held = retired_.take_held();
  for (const uint16_t index : held) give_back(index);
  return static_cast<unsigned>(held.size());
}

}  // namespace thalweg::impl
