// SPDX-License-Identifier: Apache-2.0
#include "plans/carried_end.hpp"

#include <algorithm>
#include <thread>

#include "core/c_checks.hpp"

namespace thalweg::impl {
namespace {

using Machine = device::DirectMachine;

constexpr size_t kSlotBytes = device::kSlots * sizeof(device::u64);
constexpr size_t kTableBytes = Channel::kRecvBuffers * sizeof(device::RecvBuffer);
constexpr uint64_t kRing = uint64_t{4} << 20;  // bytes of the bounce buffers of short messages, together
constexpr uint64_t kBounceAlign = 64;

/// More than kMostBounced, which open() refuses, where the longest message has more: whatever its length.
uint64_t stride_of(uint64_t message_bytes) {
  const uint64_t bytes = std::clamp<uint64_t>(message_bytes, 1, kMostBounced + 1);
  return (bytes + kBounceAlign - 1) / kBounceAlign * kBounceAlign;
}

device::u64* words_at(uint64_t address) { return reinterpret_cast<device::u64*>(address); }

}  // namespace

// ------------------------------------------------------------------------------------------------ both

CarriedEnd::CarriedEnd(Proxy& proxy, Channel& channel, Executor& executor)
    : proxy_(proxy),
      channel_(channel),
      executor_(executor),
      peer_(channel.peer.shared_from_this()),
      epoch_(channel.epoch()),
      number_(channel.number()) {
  for (Operation& one : operations_) one.end = this;
}

CarriedEnd::~CarriedEnd() {
  executor_.own().free(end_, end_length_);
  executor_.pinned().free(words_, words_length_);
}

Status CarriedEnd::allocate_words(size_t end_length, size_t words) {
  if (Status s = executor_.own().allocate(end_length, &end_); is_error(s)) return s;
  end_length_ = end_length;
  if (Status s = executor_.pinned().allocate(words, &words_); is_error(s)) return s;
  words_length_ = words;
  return TW_OK;
}

bool CarriedEnd::alive() const { return channel_.state() == Channel::State::proxied && channel_.epoch() == epoch_; }

void CarriedEnd::start(uint64_t n, OpDesc& op) {
  Operation& one = operation(n);
  one.n = n;
  one.request = TW_REQUEST_NONE;
  one.running.store(true, std::memory_order_relaxed);
  op.tag = number_;
  op.mask = ~uint64_t{0};
  op.peer = endpoint().peer ? &*endpoint().peer : nullptr;
  Completion completion = calls(on_complete, &one);
  completion.request = &one.request;
  if (const Status status = start_prepared(endpoint(), op, completion); status != TW_IN_PROGRESS)
    finish(one, status, last_error());
}

void CarriedEnd::on_complete(void* arg, tw_request request, tw_status status, const tw_recv_info*) {
  auto& one = *static_cast<Operation*>(arg);
  one.end->finish(one, status, is_error(status) ? tw_request_message(request) : "");
}

/// Nothing of this object may be used behind the last store: over() is true then.
void CarriedEnd::finish(Operation& one, Status status, const char* why) {
  one.status = status;
  if (is_error(status)) {
    one.why = why;
    failed_.store(true, std::memory_order_relaxed);
  } else {
    completed(one.n);
  }
  one.running.store(false, std::memory_order_release);
}

void CarriedEnd::report_failures() {
  if (!failed_.load(std::memory_order_relaxed)) return;
  for (const Operation& one : operations_) {
    if (one.running.load(std::memory_order_acquire) || !is_error(one.status)) continue;
    return channel_.fail_end(epoch_, one.status, "message " + std::to_string(one.n) + ", which the host carries: " + one.why);
  }
}

void CarriedEnd::end() {
  const std::lock_guard lock(proxy_.mutex());
  proxy_.forget(this);
  look();
}

void CarriedEnd::cancel() {
  for (const Operation& one : operations_) {
    if (one.running.load(std::memory_order_acquire) && one.request != TW_REQUEST_NONE) (void)tw_request_cancel(one.request);
  }
  (void)tw_worker_wake(&proxy_.worker());
}

bool CarriedEnd::over() const {
  return std::none_of(operations_.begin(), operations_.end(),
                      [](const Operation& one) { return one.running.load(std::memory_order_acquire); });
}

bool CarriedEnd::await_over(uint64_t ns) const {
  const Deadline deadline(ns);
  while (!over()) {
    if (deadline.passed()) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return true;
}

// ------------------------------------------------------------------------------------------------ the code sends

CarriedSend::CarriedSend(Proxy& proxy, Channel& channel, Executor& executor, uint64_t message_bytes)
    : CarriedEnd(proxy, channel, executor),
      message_bytes_(message_bytes),
      stride_(stride_of(message_bytes)),
      depth_(std::clamp<uint64_t>(kRing / stride_, 2, device::kSlots)) {}

CarriedSend::~CarriedSend() {
  executor_.own().free(table_, kTableBytes);
  if (bounces_ != 0) peer_->bounces->free(bounces_, depth_ * stride_);
}

Status CarriedSend::open() {
  if (stride_ > kMostBounced || !proxy_.take_bounces(*peer_, depth_ * stride_, &bounces_)) {
    return fail(TW_ERR_LIMIT,
                "no room for %llu bounce buffers of %llu bytes: those of one peer have at most %llu; give the longest message "
                "of this end in tw_channel_options.message_bytes, or bind fewer ends",
                static_cast<unsigned long long>(depth_), static_cast<unsigned long long>(message_bytes_),
                static_cast<unsigned long long>(kMostBounced));
  }
  if (Status s = executor_.admit(bounces_, depth_ * stride_); is_error(s)) return s;
  if (Status s = allocate_words(sizeof(device::SendEnd), 3 * kSlotBytes); is_error(s)) return s;
  if (Status s = executor_.own().allocate(kTableBytes, &table_); is_error(s)) return s;
  if (Status s = fill_in(); is_error(s)) return s;
  for (uint64_t n = 0; n < depth_; ++n) device::try_post(Machine(), &mine_, n, static_cast<device::u32>(n));
  return TW_OK;
}

Status CarriedSend::fill_in() {
  device::SendEnd end{};
  end.credits = words_at(words_);
  end.flags = words_at(words_ + kSlotBytes);
  end.lengths = words_at(words_ + 2 * kSlotBytes);
  end.recv_buffers = reinterpret_cast<const device::RecvBuffer*>(table_);
  mine_.credits = end.credits;
  mine_.flags = end.flags;
  std::vector<device::RecvBuffer> table(depth_);
  for (uint64_t i = 0; i < depth_; ++i) table[i] = {device::contiguous_at(bounces_ + i * stride_), message_bytes_};
  if (Status s = executor_.store(table_, table.data(), table.size() * sizeof table[0]); is_error(s)) return s;
  return executor_.store(end_, &end, sizeof end);
}

std::string CarriedSend::describe() const {
  return "; " + std::to_string(depth_) + " bounce buffers of " + std::to_string(message_bytes_) + " bytes";
}

std::string CarriedSend::why_truncated() const {
  return "a message was longer than the bounce buffers of its end, which have " + std::to_string(message_bytes_) +
         " bytes, as the host carries the channel: give the longest one in tw_channel_options.message_bytes";
}

bool CarriedSend::look() {
  if (!alive()) return false;
  const uint64_t before = mine_.taken + mine_.posted;
  device::i64 status = 0;
  while (device::try_take(Machine(), &mine_, mine_.taken, &status)) {
    if (status != 0) {
      channel_.fail_end(epoch_, TW_ERR_TRUNCATED, why_truncated());
      return true;
    }
    const uint64_t n = mine_.taken;
    device::finish_take(Machine(), device::Thread(), &mine_, n);
    send(n);
  }
  const auto is_free = [this](uint64_t n) {  // the bounce buffer of message n
    return n < depth_ || (n - depth_ < mine_.taken && !operation(n - depth_).running.load(std::memory_order_acquire));
  };
  for (uint64_t n = mine_.posted; is_free(n); ++n) device::try_post(Machine(), &mine_, n, static_cast<device::u32>(n % depth_));
  report_failures();
  return before != mine_.taken + mine_.posted;
}

/// The code has stored the length before its flag.
void CarriedSend::send(uint64_t n) {
  const uint64_t length = Machine().load(words_at(words_ + 2 * kSlotBytes) + n % device::kSlots);
  OpDesc op;
  op.verb = Verb::send;
  op.address = reinterpret_cast<std::byte*>(bounces_ + n % depth_ * stride_);
  op.length = std::min(length, message_bytes_);
  channel_.carry();
  if (send_prepared(endpoint(), op.address, op.length, number_) != TW_OK) start(n, op);
}

// ------------------------------------------------------------------------------------------------ the code receives

CarriedRecv::~CarriedRecv() {
  for (const auto& [number, buffer] : buffers_) release(buffer.layout);
}

void CarriedRecv::add(uint16_t number, const Buffer& buffer) {
  retain(buffer.layout);
  buffers_.emplace_back(number, buffer);
}

Status CarriedRecv::open() {
  if (Status s = allocate_words(sizeof(device::RecvEnd), 2 * kSlotBytes); is_error(s)) return s;
  device::RecvEnd end{};
  end.credits = words_at(words_);
  end.flags = words_at(words_ + kSlotBytes);
  mine_.credits = end.credits;
  mine_.flags = end.flags;
  return executor_.store(end_, &end, sizeof end);
}

bool CarriedRecv::look() {
  if (!alive()) return false;
  const uint64_t before = next_;
  for (;; ++next_) {
    const device::u64 credit = Machine().acquire(mine_.credits + next_ % device::kSlots);
    if (!device::slot_reached(credit, next_)) break;
    if (operation(next_).running.load(std::memory_order_acquire)) break;  // its flag is stored, and it ends right now
    if (!receive(next_, device::slot_info(credit))) break;
  }
  report_failures();
  return before != next_;
}

bool CarriedRecv::receive(uint64_t n, uint64_t number) {
  const auto found = std::find_if(buffers_.begin(), buffers_.end(), [number](const auto& one) { return one.first == number; });
  if (found == buffers_.end()) {  // as a sender finds no room in it
    channel_.fail_end(epoch_, TW_ERR_TRUNCATED,
                      "a receive was posted into buffer " + std::to_string(number) + ", and the end has none of that number");
    return false;
  }
  OpDesc op;
  op.verb = Verb::recv;
  op.address = reinterpret_cast<std::byte*>(found->second.address);
  op.length = found->second.length;
  op.layout = found->second.layout;
  channel_.carry();
  start(n, op);
  return true;
}

void CarriedRecv::completed(uint64_t n) {
  device::finish_send(Machine(), device::Thread(), &mine_, device::Sending{n, {}, 0, 0});
}

}  // namespace thalweg::impl
