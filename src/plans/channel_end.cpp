// SPDX-License-Identifier: Apache-2.0
#include "plans/channel_end.hpp"

#include "base/log.hpp"
#include "core/c_checks.hpp"
#include "devices/registry.hpp"
#include "plans/plan_list.hpp"

using namespace thalweg::impl;
namespace device = thalweg::device;

namespace {

/// Of the pinned block: a Failure, and on a line of its own, which its waiters poll, the abort word.
constexpr size_t kAbortAt = 128, kPinnedBytes = 192;
static_assert(sizeof(device::Failure) <= kAbortAt);

constexpr uint64_t kMessageBytes = uint64_t{1} << 20;  // unless the options say another number

unsigned long long number(uint64_t value) { return value; }

Status missing(uint64_t tag, bool asks = false) {
  return fail(TW_ERR_TIMED_OUT, "channel %llu: %s", number(tag),
              asks ? "plans of the peer use it in another way: destroy them there, or use another channel"
                   : "the peer has neither bound nor prepared its end, or does not progress its worker");
}

/// The code's failure; what a flag says is the peer's word (PlanFailure::code_of), and a take expects nothing.
Status code_of(const device::Failure& failure, bool sender) {
  const auto code = static_cast<Status>(failure.code);
  const bool of_flag = !sender && failure.expected == 0 && failure.found == static_cast<uint64_t>(-failure.code);
  return of_flag && code != TW_ERR_TRUNCATED ? Status{TW_ERR_PROTOCOL} : code;
}

}  // namespace

// ------------------------------------------------------------------------------------------------ binding

Status tw_channel_end::bind(uint64_t tag, bool sends, std::span<const tw_channel_buffer> given,
                            const tw_channel_options& options) {
  const uint64_t limit = options.timeout_ns != 0 ? options.timeout_ns : 30 * kSecond;
  message_bytes_ = options.message_bytes != 0 ? options.message_bytes : kMessageBytes;
  if (Status s = take_buffers(given); is_error(s)) return s;
  if (Status s = choose_executor(options.place); is_error(s)) return s;
  if (executor_->device() != nullptr) kernels_wait_.emplace();
  Status status = make_guard(limit);
  if (!is_error(status)) status = open(tag, sends, Deadline(limit));
  if (!is_error(status)) return TW_OK;
  const std::string why = last_error();
  let_go();
  set_last_error(why);
  return status;
}

Status tw_channel_end::take_buffers(std::span<const tw_channel_buffer> given) {
  if (given.size() > Channel::kRecvBuffers)
    return fail(TW_ERR_LIMIT, "%zu buffers: an end of a channel has at most %u", given.size(), Channel::kRecvBuffers);
  for (const tw_channel_buffer& one : given) {
    Buffer made{reinterpret_cast<uint64_t>(one.address), one.length, one.layout};
    if (Status s = check_layout(made.layout, &made.length); is_error(s)) return s;
    if (Status s = check_length(made.length); is_error(s)) return s;
    if (Status s = check_receive(made.layout); is_error(s)) return s;
    if (made.address == 0 && made.length != 0) return fail(TW_ERR_INVALID, "buffer %zu is NULL", buffers_.size());
    if (made.layout != nullptr && made.layout->contiguous()) {
      made.address += static_cast<uint64_t>(made.layout->start);
      made.layout = nullptr;
    }
    buffers_.push_back(made);
  }
  return TW_OK;
}

Status tw_channel_end::choose_executor(const char* place) {
  if (place != nullptr) return proxy_.executor_at(place, &executor_);
  Device* device = nullptr;
  for (const Buffer& one : buffers_) {
    BufferInfo info;
    const uint64_t first = one.layout != nullptr ? static_cast<uint64_t>(one.layout->first) : 0;
    if (device == nullptr && one.length != 0 && find_device(one.address + first, &info) == TW_OK &&
        wants_device(place_of(info)))
      device = info.device;
  }
  return proxy_.executor(device, &executor_);
}

Status tw_channel_end::make_guard(uint64_t timeout_ns) {
  if (Status s = executor_->own().allocate(sizeof(uint64_t), &abort_flag_); is_error(s)) return s;
  if (Status s = executor_->pinned().allocate(kPinnedBytes, &pinned_); is_error(s)) return s;
  guard = {reinterpret_cast<uint64_t*>(abort_flag_), reinterpret_cast<void*>(pinned_),
           reinterpret_cast<const uint64_t*>(pinned_ + kAbortAt), timeout_ns};
  return TW_OK;
}

/// Buffers that the code does not reach are of no use to it; the peer is told, so its bind fails at once, too (Channel::advance_words).
/// Pinning takes its time, so nobody else waits for it: not under Proxy::mutex().
Status tw_channel_end::admit_buffers(std::string* why) {
  for (const Buffer& one : buffers_) {
    const int64_t first = one.layout != nullptr ? one.layout->first : 0;
    const int64_t last = one.layout != nullptr ? one.layout->last : static_cast<int64_t>(one.length);
    if (last == first) continue;
    const Status status = executor_->admit(one.address + static_cast<uint64_t>(first), static_cast<uint64_t>(last - first));
    if (!is_error(status)) continue;
    *why = last_error();
    return status;
  }
  return TW_OK;
}

Status tw_channel_end::offer() {
  for (const Buffer& one : buffers_) {
    uint16_t index = 0;
    if (Status s = channel_->offer(one.address, one.layout, one.length, &index); is_error(s)) return s;
    recv_buffers.push_back(index);
  }
  return TW_OK;
}

Status tw_channel_end::open(uint64_t tag, bool sends, const Deadline& deadline) {
  Proxy::Route route;
  const Status found = proxy_.await_route(endpoint_, deadline, &route);
  if (is_error(found)) return found;
  if (found != TW_OK) return missing(tag);
  std::string why;
  const Status reachable = admit_buffers(&why);
  {
    const std::lock_guard lock(proxy_.mutex());
    Channel* channel = nullptr;
    if (Status s = proxy_.channel(route, sends, tag, 0, *executor_, &channel); is_error(s)) return s;
    if (Status s = channel->add(this, true); is_error(s)) return s;
    channel_ = channel;
    if (!is_error(reachable)) {
      if (Status s = offer(); is_error(s)) return s;
    }
    if (Status s = channel->start(this, reachable, why, true); is_error(s)) return s;
  }
  proxy_.hurry();
  if (Status s = await_open(deadline, reachable, why); is_error(s)) return s;
  return why_carried_.empty() ? Status{TW_OK} : carry();
}

/// As Channel::settled(), of all buffers.
Status tw_channel_end::settled() const {
  Status status = channel_->settled(-1);
  for (const uint16_t recv_buffer : recv_buffers) {
    if (status == TW_OK) status = channel_->settled(recv_buffer);
  }
  return status;
}

/// An open channel that stays as it is would be of no use to code that does not reach its own buffers.
Status tw_channel_end::await_open(const Deadline& deadline, Status reachable, const std::string& why) {
  std::unique_lock lock(proxy_.mutex());
  Status status;
  while ((status = settled()) == TW_IN_PROGRESS) {
    if (is_error(status = Proxy::check_peer(endpoint_))) break;
    if (deadline.passed()) {
      status = missing(channel_->name.tag, channel_->asks());
      break;
    }
    if (is_error(status = proxy_.await_change(lock, [this] { tw_worker_progress(endpoint_.worker); }))) break;
  }
  if (is_error(status)) return status;
  if (is_error(reachable)) {
    channel_->refuse_end(channel_->epoch(), reachable, why);  // the peer's bind fails, or its end
    return fail(reachable, "%s", why.c_str());
  }
  channel_->rely(this);
  epoch_ = channel_->epoch();
  if (!channel_->sender) channel_->tell_every_round();
  address = channel_->words();
  if (channel_->state() == Channel::State::proxied) why_carried_ = channel_->why();
  return TW_OK;
}

/// The host's half of the end, instead of the peer's words.
Status tw_channel_end::carry() {
  if (channel_->sender) {
    carried_ = std::make_unique<CarriedSend>(proxy_, *channel_, *executor_, message_bytes_);
  } else {
    auto made = std::make_unique<CarriedRecv>(proxy_, *channel_, *executor_);
    for (size_t i = 0; i < buffers_.size(); ++i) made->add(recv_buffers[i], buffers_[i]);
    carried_ = std::move(made);
  }
  if (const Status status = carried_->open(); is_error(status)) {
    const std::string text = last_error();
    const std::lock_guard lock(proxy_.mutex());
    channel_->refuse_end(epoch_, status, text);  // the peer's bind fails, or its end
    set_last_error(text);
    return status;
  }
  address = carried_->address();
  proxy_.watch(carried_.get());
  warn_once(("channel-carried-" + why_carried_).c_str(),
            "the host carries a channel that a kernel is bound to: " + why_carried_);
  return TW_OK;
}

std::string tw_channel_end::explain() const {
  const std::string head = "channel " + std::to_string(channel_->name.tag) + ", the " +
                           (channel_->sender ? "sending" : "receiving") + " end, of " + executor_->name() + ": ";
  if (carried_ == nullptr) return head + "mapped";
  return head + "by the host, as " + why_carried_ + carried_->describe();
}

// ------------------------------------------------------------------------------------------------ bound

void tw_channel_end::on_channel_failed(const Channel&, Status status, const std::string&) {
  __atomic_store_n(reinterpret_cast<uint64_t*>(pinned_ + kAbortAt), static_cast<uint64_t>(int64_t{status}), __ATOMIC_RELEASE);
}

std::string tw_channel_end::text_of(const device::Failure& failure, Status code) const {
  if (code == TW_ERR_TRUNCATED) {
    const auto* const sends = dynamic_cast<const CarriedSend*>(carried_.get());
    return sends != nullptr ? sends->why_truncated() : "a message was longer than the buffer that was posted for it";
  }
  char text[200];
  std::snprintf(text, sizeof text, "the code that was bound to it gave up (%s): its operation %llu waited for %llu, found %llu",
                status_name(code), failure.what, failure.expected, failure.found);
  return text;
}

Status tw_channel_end::check() {
  const auto& failure = *static_cast<const device::Failure*>(guard.failure);
  // acquire: the record was filled in before its code
  const bool failed = __atomic_load_n(&failure.code, __ATOMIC_ACQUIRE) < 0;
  const std::lock_guard lock(proxy_.mutex());
  if (failed) {
    const Status code = code_of(failure, channel_->sender);
    channel_->fail_end(epoch_, code, text_of(failure, code));
  }
  if (channel_->state() != Channel::State::failed) return TW_OK;
  const std::string why = channel_->why();
  return fail(channel_->status(), "channel %llu has failed: %s; both sides release it and bind or prepare it again",
              number(channel_->name.tag), why.c_str());
}

/// Posted receives that were not taken: messages may be in flight to buffers that are released.
Status tw_channel_end::end_receives() {
  device::RecvEnd end{};
  if (Status s = executor_->load(&end, address, sizeof end); is_error(s)) return s;
  if (end.posted == end.taken) return TW_OK;
  const std::lock_guard lock(proxy_.mutex());
  channel_->fail_end(epoch_, TW_ERR_CANCELED, "the receiver has ended with receives that it did not take");
  return fail(TW_ERR_CANCELED, "%llu receives of channel %llu were posted and not taken: the channel has failed",
              end.posted - end.taken, number(channel_->name.tag));
}

Status tw_channel_end::release() {
  if (carried_ != nullptr) carried_->end();
  const bool failed = is_error(check());
  const Status status = failed || channel_->sender ? Status{TW_OK} : end_receives();
  const std::string why = is_error(status) ? last_error() : "";
  let_go();
  if (is_error(status)) set_last_error(why);
  return status;
}

/// What it sent goes to the peer, whenever that takes it. A receive ends: it was taken, or the channel has failed.
void tw_channel_end::end_carried() {
  const auto failed = [this] {
    const std::lock_guard lock(proxy_.mutex());
    return channel_->state() == Channel::State::failed;
  };
  bool over = carried_->over();
  if (!over && (!channel_->sender || failed())) {
    carried_->cancel();
    over = carried_->await_over(static_cast<uint64_t>(std::chrono::nanoseconds(proxy_.patience).count()));
  }
  if (!over) proxy_.leave(std::move(carried_));
  carried_.reset();
}

void tw_channel_end::let_go() {
  if (carried_ != nullptr) end_carried();
  if (channel_ != nullptr) {
    Proxy::Offered offered;
    for (const uint16_t index : recv_buffers) offered.emplace_back(channel_, index);
    {
      const std::lock_guard lock(proxy_.mutex());
      channel_->remove(this);
    }
    proxy_.take_back(offered);
    proxy_.abandon(offered);
  }
  if (executor_ == nullptr) return;
  executor_->own().free(abort_flag_, sizeof(uint64_t));
  executor_->pinned().free(pinned_, kPinnedBytes);
}
