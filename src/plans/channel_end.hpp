// SPDX-License-Identifier: Apache-2.0
// tw_channel_end: an end of a channel that code of the user's runs. The channel is opened as a plan opens it (channel.hpp); then
// the executor's words and a guard go to the user, and all that is left is to report a failure.
//
// Life: bound (the channel's only user) -> released. What the code recorded in the guard is found by check() and release().
#pragma once
#include <optional>
#include <span>

#include "core/endpoint.hpp"
#include "devices/deferred_release.hpp"
#include "plans/channel.hpp"

struct tw_channel_end final : thalweg::impl::ChannelUser {
  using Status = thalweg::impl::Status;
  tw_channel_end(thalweg::impl::Proxy& of, tw_endpoint& to) : proxy_(of), endpoint_(to) { proxy_.users_.fetch_add(1); }
  ~tw_channel_end() override { proxy_.users_.fetch_sub(1); }
  /// buffers: of a receiver.
  Status bind(uint64_t tag, bool sends, std::span<const tw_channel_buffer> buffers, const tw_channel_options& options);
  Status check();
  Status release();
  void on_channel_failed(const thalweg::impl::Channel& channel, Status status, const std::string& why) override;

  thalweg::impl::BornHere born;
  std::vector<uint16_t> recv_buffers;
  tw_device_guard guard{};
  uint64_t address = 0;  // SendEnd or RecvEnd

 private:
  struct Buffer {
    uint64_t address, length;
    const thalweg::impl::Layout* layout;  // null: contiguous
  };
  Status take_buffers(std::span<const tw_channel_buffer> given);
  Status choose_executor(const char* place);
  Status make_guard(uint64_t timeout_ns);
  Status open(uint64_t tag, bool sends, const thalweg::impl::Deadline& deadline);
  Status admit_buffers(std::string* why);
  Status offer();
  Status settled() const;
  Status await_open(const thalweg::impl::Deadline& deadline);
  Status end_receives();
  void let_go();

  thalweg::impl::Proxy& proxy_;
  tw_endpoint& endpoint_;  // while binding
  thalweg::impl::Executor* executor_ = nullptr;
  std::optional<thalweg::impl::KernelsWait> kernels_wait_;  // a device's
  thalweg::impl::Channel* channel_ = nullptr;
  std::vector<Buffer> buffers_;
  uint64_t abort_flag_ = 0, pinned_ = 0;
  uint32_t epoch_ = 0;  // of the channel: what the code runs on
};
