// SPDX-License-Identifier: Apache-2.0
// Two sides with bound ends of channels between them, and the buffers of their kernels.
#pragma once
#include <numeric>

#include "kernel_twins.hpp"
#include "pair.hpp"

namespace thalweg::tests {

class ChannelEnds : public Pair {
 protected:
  static constexpr size_t kMost = 3000, kGuard = 16;

  tw_channel_options options(uint64_t timeout_ns = kLong) const {
    tw_channel_options made = TW_CHANNEL_OPTIONS_INIT;
    made.place = GetParam().place;
    made.timeout_ns = timeout_ns;
    return made;
  }
  /// For `body` of both sides at once: binding waits for the other side.
  tw_status bind_send(uint64_t tag, Bound* out, uint64_t timeout_ns = kLong) {
    const tw_channel_options how = options(timeout_ns);
    const tw_status status = tw_channel_bind_send(a.endpoint, tag, &how, &out->handle);
    if (status == TW_OK) out->look(0);
    return status;
  }
  tw_status bind_recv(uint64_t tag, const std::vector<tw_channel_buffer>& buffers, Bound* out, uint64_t timeout_ns = kLong) {
    const tw_channel_options how = options(timeout_ns);
    const tw_status status = tw_channel_bind_recv(b.endpoint, buffers.data(), buffers.size(), tag, &how, &out->handle);
    if (status == TW_OK) out->look(buffers.size());
    return status;
  }
  void bind_both(uint64_t tag, const std::vector<tw_channel_buffer>& buffers, Bound* send, Bound* recv) {
    both([&] { ASSERT_EQ(bind_send(tag, send), TW_OK) << tw_last_error(); },
         [&] { ASSERT_EQ(bind_recv(tag, buffers, recv), TW_OK) << tw_last_error(); });
  }

  /// Buffers of b at odd addresses with random guards around.
  struct RecvBuffers {
    std::vector<unsigned char*> at;
    std::vector<tw_channel_buffer> given;
    std::vector<Bytes> guards;
  };
  RecvBuffers make_recv_buffers(size_t count, size_t capacity = kMost) {
    RecvBuffers made;
    for (size_t i = 0; i < count; ++i) {
      made.guards.push_back(random_bytes(capacity + 2 * kGuard));
      unsigned char* const at = memory(b, made.guards.back().size() + 3) + i % 4;
      b.store(at, made.guards.back());
      made.at.push_back(at + kGuard);
      made.given.push_back({at + kGuard, capacity, nullptr});
    }
    return made;
  }
  void expect_guards(const RecvBuffers& recv_buffers) {
    for (size_t i = 0; i < recv_buffers.at.size(); ++i) {
      const size_t whole = recv_buffers.guards[i].size();
      const Bytes now = b.load(recv_buffers.at[i] - kGuard, whole);
      EXPECT_EQ(std::memcmp(now.data(), recv_buffers.guards[i].data(), kGuard), 0);
      EXPECT_EQ(std::memcmp(now.data() + whole - kGuard, recv_buffers.guards[i].data() + whole - kGuard, kGuard), 0);
    }
  }
  static std::vector<size_t> random_sizes(size_t count) {
    std::mt19937 random(std::random_device{}());
    std::vector<size_t> sizes(count);
    for (size_t& size : sizes) size = random() % (kMost + 1);
    sizes[0] = 0;
    return sizes;
  }
  /// Random bytes for all messages at a, and as much poisoned room for them at b.
  struct Traffic {
    std::vector<size_t> sizes;
    Bytes data;
    unsigned char *from, *to;
    size_t sent = 0, received = 0;
  };
  Traffic make_traffic(std::vector<size_t> sizes) {
    Traffic made;
    made.sizes = std::move(sizes);
    made.data = random_bytes(std::accumulate(made.sizes.begin(), made.sizes.end(), size_t{1}));
    made.from = memory(a, made.data.size() + 1) + 1;
    made.to = memory(b, made.data.size() + 5) + 5;
    a.store(made.from, made.data);
    b.store(made.to, Bytes(made.data.size(), 0xee));
    return made;
  }
  void expect_all(Traffic& traffic) {
    EXPECT_EQ(traffic.sent, traffic.sizes.size());
    EXPECT_EQ(traffic.received, traffic.sizes.size());
    traffic.data.back() = 0xee;  // the byte behind the messages
    EXPECT_TRUE(b.load(traffic.to, traffic.data.size()) == traffic.data);
  }
  Running start_send(const Bound& end, Traffic& traffic) {
    return Running(GetParam().place,
                   [&](auto machine) { send_messages(machine, end, traffic.from, traffic.sizes, &traffic.sent); });
  }
  Running start_recv(const Bound& end, const RecvBuffers& recv_buffers, Traffic& traffic, size_t ahead) {
    return Running(GetParam().place, [&, ahead](auto machine) {
      receive_messages(machine, end, recv_buffers.at, traffic.to, traffic.sizes, ahead, &traffic.received);
    });
  }
  /// A few messages through a channel that is bound anew.
  void expect_passage(uint64_t tag) {
    const RecvBuffers recv_buffers = make_recv_buffers(2);
    Traffic traffic = make_traffic(random_sizes(5));
    Bound send, recv;
    bind_both(tag, recv_buffers.given, &send, &recv);
    {
      const Running receiver = start_recv(recv, recv_buffers, traffic, 2);
      const Running sender = start_send(send, traffic);
    }
    expect_all(traffic);
    EXPECT_EQ(send.release(), TW_OK) << tw_last_error();
    EXPECT_EQ(recv.release(), TW_OK) << tw_last_error();
  }
  /// What the peer tells arrives by a message.
  static tw_status failure_of(const Bound& end) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    tw_status status = TW_OK;
    while ((status = tw_channel_end_check(end.handle)) == TW_OK && std::chrono::steady_clock::now() < limit)
      std::this_thread::yield();
    return status;
  }
};

/// The last error's text holds all of these.
inline void expect_text(std::initializer_list<const char*> parts) {
  const std::string text = tw_last_error();
  for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << " in \"" << text << '"';
}

}  // namespace thalweg::tests
