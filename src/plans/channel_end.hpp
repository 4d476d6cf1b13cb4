// SPDX-License-Identifier: Apache-2.0
// tw_channel_end: an end of a channel that code of the user's runs. The channel is opened as a plan opens it (channel.hpp); then
// the words that the code works on and a guard go to the user. Where the channel is mapped, all that is left is to report a failure;
// where the host carries it, its half of the end does what the code asks for (carried_end.hpp).
//
// Life: bound (the channel's only user) -> released. What the code recorded in the guard is found by check() and release().
#pragma once
#include <optional>
#include <span>

#include "core/endpoint.hpp"
#include "devices/deferred_release.hpp"
#include "plans/carried_end.hpp"
#include "plans/channel.hpp"

struct tw_channel_end final : thalweg::impl::ChannelUser {
  using Status = thalweg::impl::Status;
  tw_channel_end(thalweg::impl::Proxy& of, tw_endpoint& to) : proxy_(of), endpoint_(to) { proxy_.users_.fetch_add(1); }
  ~tw_channel_end() override { proxy_.users_.fetch_sub(1); }
  /// buffers: of a receiver.
  Status bind(uint64_t tag, bool sends, std::span<const tw_channel_buffer> buffers, const tw_channel_options& options);
  std::string explain() const;
  Status check();
  Status release();
  void on_channel_failed(const thalweg::impl::Channel& channel, Status status, const std::string& why) override;

  thalweg::impl::BornHere born;
  std::vector<uint16_t> recv_buffers;
  tw_device_guard guard{};
  uint64_t address = 0;  // SendEnd or RecvEnd

 private:
  using Buffer = thalweg::impl::CarriedRecv::Buffer;  // whose layout is the user's, and only for bind()
  Status take_buffers(std::span<const tw_channel_buffer> given);
  Status choose_executor(const char* place);
  Status make_guard(uint64_t timeout_ns);
  Status open(uint64_t tag, bool sends, const thalweg::impl::Deadline& deadline);
  Status admit_buffers(std::string* why);
  Status offer();
  Status settled() const;
  Status await_open(const thalweg::impl::Deadline& deadline, Status reachable, const std::string& why);
  Status carry();
  std::string text_of(const thalweg::device::Failure& failure, Status code) const;
  Status end_receives();
  void end_carried();
  void let_go();

  thalweg::impl::Proxy& proxy_;
  tw_endpoint& endpoint_;  // while binding
  thalweg::impl::Executor* executor_ = nullptr;
  std::optional<thalweg::impl::KernelsWait> kernels_wait_;  // a device's
  thalweg::impl::Channel* channel_ = nullptr;
  std::unique_ptr<thalweg::impl::CarriedEnd> carried_;
  std::string why_carried_;
  std::vector<Buffer> buffers_;
  uint64_t message_bytes_ = 0, abort_flag_ = 0, pinned_ = 0;
  uint32_t epoch_ = 0;  // of the channel: what the code runs on
};
