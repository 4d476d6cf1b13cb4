// SPDX-License-Identifier: Apache-2.0
// channels.hpp: the C++ view of channels.h. Part of thalweg.hpp, whose conventions hold.
//
//   thalweg::BoundSend out(peer, channel, "cuda:0");                  // the peer binds, or prepares, the other end
//   sender<<<16, 256, 0, stream>>>(out.end(), out.guard(), data);  // device/channel.hpp
//   ...
//   out.check();                                                   // throws what its code, or the peer, failed with
#pragma once
#include <thalweg/channels.h>
#include <thalweg/core.hpp>
#include <thalweg/device/types.hpp>

#include <algorithm>
#include <cstring>
#include <initializer_list>

namespace thalweg {

namespace detail {

/// What both ends have; E: device::SendEnd or device::RecvEnd.
template <class E>
class [[nodiscard]] BoundEnd {
 public:
  BoundEnd() = default;
  /// In the memory of the place.
  [[nodiscard]] E* end() const {
    void* address = nullptr;
    check_status(tw_channel_end_address(get(), &address));
    return static_cast<E*>(address);
  }
  [[nodiscard]] device::Guard guard() const {
    tw_device_guard given;
    check_status(tw_channel_end_guard(get(), &given));
    device::Guard guard;
    static_assert(sizeof guard == sizeof given);
    std::memcpy(&guard, &given, sizeof guard);
    return guard;
  }
  /// Its way: mapped, or carried by the host, and why.
  [[nodiscard]] std::string explain() const {
    return text_of([this](char* to, size_t* size) { return tw_channel_end_explain(get(), to, size); });
  }
  /// Throws the failure: a wait of its code that failed, the peer's failure, a lost peer. Does not block.
  void check() const { check_status(tw_channel_end_check(get())); }
  /// Its code has ended: the end that the destructor makes too, and how it went.
  [[nodiscard]] tw_status release() noexcept { return tw_channel_end_release(handle_.release()); }
  tw_channel_end* get() const noexcept { return handle_.get(); }

 protected:
  static void check_status(tw_status status) { detail::check(status); }
  static tw_channel_options options(const char* place, std::chrono::nanoseconds timeout, size_t message_bytes = 0) {
    tw_channel_options made = TW_CHANNEL_OPTIONS_INIT;
    made.place = place;
    made.timeout_ns = std::max<uint64_t>(1, nanoseconds(timeout));  // 0 is the default
    made.message_bytes = message_bytes;
    return made;
  }
  void hold(tw_channel_end* made) { handle_ = Handle<tw_channel_end, tw_channel_end_release>(made); }

 private:
  Handle<tw_channel_end, tw_channel_end_release> handle_;
};

}  // namespace detail

/// The sending end of a channel for code at a place. timeout: of binding, which waits for the peer, and of every wait of the code.
/// message_bytes: the longest message, where the host carries the channel (0: 1 MiB).
class [[nodiscard]] BoundSend : public detail::BoundEnd<device::SendEnd> {
 public:
  BoundSend() = default;
  BoundSend(tw_endpoint* to, uint64_t channel, const char* place = "host",
            std::chrono::nanoseconds timeout = std::chrono::seconds(30), size_t message_bytes = 0) {
    const tw_channel_options how = options(place, timeout, message_bytes);
    tw_channel_end* made = nullptr;
    check_status(tw_channel_bind_send(to, channel, &how, &made));
    hold(made);
  }
};

/// Where a channel's messages may land.
struct ChannelBuffer : tw_channel_buffer {
  ChannelBuffer(Bytes bytes) : tw_channel_buffer{bytes.data(), bytes.size(), nullptr} {}
  ChannelBuffer(void* start, const Layout& shape) : tw_channel_buffer{start, 0, shape.get()} {}
};

/// The receiving end. place null: the device of the first buffer on one, else the host. The buffers must outlive it.
class [[nodiscard]] BoundRecv : public detail::BoundEnd<device::RecvEnd> {
 public:
  BoundRecv() = default;
  BoundRecv(tw_endpoint* from, std::initializer_list<ChannelBuffer> buffers, uint64_t channel, const char* place = nullptr,
            std::chrono::nanoseconds timeout = std::chrono::seconds(30))
      : BoundRecv(from, std::vector<tw_channel_buffer>(buffers.begin(), buffers.end()), channel, place, timeout) {}
  BoundRecv(tw_endpoint* from, const std::vector<tw_channel_buffer>& buffers, uint64_t channel, const char* place = nullptr,
            std::chrono::nanoseconds timeout = std::chrono::seconds(30)) {
    const tw_channel_options how = options(place, timeout);
    tw_channel_end* made = nullptr;
    check_status(tw_channel_bind_recv(from, buffers.data(), buffers.size(), channel, &how, &made));
    hold(made);
  }
  /// The number by which its code posts a receive into buffer `index`.
  [[nodiscard]] uint32_t recv_buffer(size_t index) const {
    uint32_t number = 0;
    check_status(tw_channel_end_recv_buffer(get(), index, &number));
    return number;
  }
};

}  // namespace thalweg
