// SPDX-License-Identifier: Apache-2.0
// Two tcp ports, or one and a bare socket, with sinks that check every byte: what the tcp tests stand on.
#pragma once
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/sockets.hpp"
#include "transports/tcp/frame.hpp"
#include "transports/tcp/port.hpp"
#include "transports/tcp/tcp.hpp"

namespace thalweg::impl::tcp {

/// Bytes that depend on seed and position: anything shifted, lost or doubled shows.
inline void fill(std::byte* to, size_t n, uint64_t seed) {
  for (size_t i = 0; i < n; i += 8) {
    uint64_t z = seed + 0x9e3779b97f4a7c15ull * (i / 8 + 1);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z ^= z >> 27;
    std::memcpy(to + i, &z, std::min<size_t>(8, n - i));
  }
}

inline bool holds(const std::byte* at, size_t n, uint64_t seed) {
  std::vector<std::byte> wanted(n);
  fill(wanted.data(), n, seed);
  return n == 0 || std::memcmp(at, wanted.data(), n) == 0;
}

/// header.a: seed of the body. header.b: number of the frame on its link.
class CheckingSink : public Sink {
 public:
  static constexpr size_t kGuard = 64;
  uint64_t seed = 1;
  unsigned land_percent = 50;
  std::vector<uint64_t> landed_lengths;
  uint64_t frames = 0, landed = 0, asked = 0, bytes = 0, sent = 0, lost = 0;
  Status sent_status = TW_OK, lost_status = TW_OK;
  std::string why;
  std::map<void*, std::vector<std::byte>> by_reference;  // token -> memory in use
  std::function<void(Link&, const FrameHeader&)> on_each;

  void on_frame(Link& link, const FrameHeader& header, const std::byte* body) override {
    EXPECT_EQ(header.b, frames);
    EXPECT_TRUE(holds(body, header.length, header.a)) << "frame " << header.b << " of " << header.length;
    count(link, header);
  }
  std::byte* destination(Link&, const FrameHeader& header, const std::byte* prefix, size_t n) override {
    ++asked;
    EXPECT_GE(n, size_t{kPrefix});
    EXPECT_LT(n, header.length);
    EXPECT_TRUE(holds(prefix, n & ~size_t{7}, header.a));
    if (random_() % 100 >= land_percent) return nullptr;
    const size_t shift = random_() % 16;
    place_.assign(header.length + 2 * kGuard + shift, std::byte{0xa5});
    shift_ = shift;
    return place_.data() + kGuard + shift;
  }
  void on_landed(Link& link, const FrameHeader& header) override {
    EXPECT_EQ(header.b, frames);
    ++landed;
    const std::byte* at = place_.data() + kGuard + shift_;
    EXPECT_TRUE(holds(at, header.length, header.a)) << "landed frame " << header.b << " of " << header.length;
    for (size_t i = 0; i < kGuard; ++i) {
      ASSERT_EQ(at[-1 - static_cast<ptrdiff_t>(i)], std::byte{0xa5});
      ASSERT_EQ(at[header.length + i], std::byte{0xa5});
    }
    count(link, header);
  }
  void on_sent(Link&, void* token, Status status) override {
    ++sent;
    sent_status = status;
    // Any later read of this memory by the port would send garbage (or touch freed memory).
    auto it = by_reference.find(token);
    ASSERT_NE(it, by_reference.end()) << "reported twice";
    std::fill(it->second.begin(), it->second.end(), std::byte{0xee});
    by_reference.erase(it);
  }
  void on_lost(Link&, Status status, const char* text) override {
    EXPECT_TRUE(by_reference.empty()) << "bodies must be reported before the loss";
    ++lost;
    lost_status = status;
    why = text;
  }
  void on_import(Link&, uint64_t) override { ADD_FAILURE(); }

 private:
  void count(Link& link, const FrameHeader& header) {
    ++frames;
    bytes += header.length;
    if (on_each) on_each(link, header);
  }
  std::minstd_rand random_{std::random_device{}()};
  std::vector<std::byte> place_;
  size_t shift_ = 0;
};

struct Side {
  CheckingSink sink;
  std::unique_ptr<Port> port;
  Link* link = nullptr;

  explicit Side(uint64_t timeout_ns = 0) {
    PortOptions options;
    options.sink = &sink;
    options.silent_timeout_ns = timeout_ns;
    EXPECT_EQ(make_tcp_transport()->open(options, &port), TW_OK);
  }
  Link* add(int fd, void* tls = nullptr) {
    LinkInit init;
    init.socket = UniqueFd(fd);
    init.tls = tls;
    EXPECT_EQ(port->offer({}, init.theirs), TW_OK);  // both sides offer the same
    Link* made = nullptr;
    EXPECT_EQ(port->establish(std::move(init), &made), TW_OK) << last_error();
    if (link == nullptr) link = made;
    return made;
  }
};

enum class Wire { unix_pair, v4, v6 };

/// A connected pair of stream sockets; {-1, -1} when this machine has no such addresses.
inline std::pair<int, int> connected(Wire wire) {
  if (wire == Wire::unix_pair) {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    return {fds[0], fds[1]};
  }
  SocketAddress at, bound;
  EXPECT_TRUE(parse_numeric(wire == Wire::v4 ? "127.0.0.1" : "::1", 0, &at));
  UniqueFd listener, client, server;
  if (listen_at(at, 1, &listener) != TW_OK) return {-1, -1};
  EXPECT_EQ(local_address(listener.get(), &bound), TW_OK);
  const Status started = start_connect(bound, &client);
  EXPECT_GE(started, 0);
  pollfd ready{listener.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&ready, 1, 5000), 1);
  EXPECT_EQ(accept_from(listener.get(), &server), TW_OK);
  ready = {client.get(), POLLOUT, 0};
  EXPECT_EQ(::poll(&ready, 1, 5000), 1);
  EXPECT_EQ(finish_connect(client.get(), bound), TW_OK);
  return {client.release(), server.release()};
}

/// Sends frames of random size by a random way; remembers what is in use by reference.
class RandomSender {
 public:
  explicit RandomSender(Side& side, uint64_t seed, size_t largest = kReferenceMax)
      : side_(side), random_(seed), largest_(largest) {}
  uint64_t accepted = 0, again = 0, bytes = 0;
  bool by_reference_only = false;  // and large

  /// One attempt; false: no room now.
  bool step() {
    if (!planned_) plan();
    const Status status = attempt();
    if (status == TW_AGAIN) return ++again, false;
    EXPECT_GE(status, 0) << last_error();
    planned_ = false;
    ++accepted;
    bytes += header_.length;
    return true;
  }

 private:
  void plan() {
    planned_ = true;
    static constexpr size_t kSizes[] = {0, 1, 7, 8, 31, 64, 511, 512, 513, 4064, 4095, 4096, 4097, 65535, 65536};
    how_ = static_cast<int>(random_() % 3);
    const uint64_t kind = random_() % 10;
    size_t n = kind < 5 ? kSizes[random_() % std::size(kSizes)] : kind < 9 ? random_() % 3000 : random_() % (largest_ + 1);
    if (kind == 9 && random_() % 4 == 0) n = largest_;
    n = std::min(n, largest_);
    if (by_reference_only) n = largest_ - random_() % 1000;
    if (n > kCopyMax || by_reference_only) how_ = 2;
    header_ = {};
    header_.length = static_cast<uint32_t>(n);
    header_.type = 33;
    header_.a = random_();
    header_.b = accepted;
  }
  Status attempt() {
    const size_t n = header_.length;
    if (how_ == 0) {
      std::vector<std::byte> body(n);
      fill(body.data(), n, header_.a);
      return side_.port->send(*side_.link, header_, body.data());
    }
    if (how_ == 1) {
      std::byte* at = side_.port->reserve(*side_.link, n);
      if (at == nullptr) return TW_AGAIN;
      fill(at, n, header_.a);
      side_.port->commit(*side_.link, header_);
      return TW_OK;
    }
    std::vector<std::byte> body(n);
    fill(body.data(), n, header_.a);
    std::vector<iovec> pieces;
    const size_t count = 1 + random_() % 5;
    size_t at = 0;
    for (size_t i = 0; i < count; ++i) {
      const size_t part = i + 1 == count ? n - at : random_() % (n - at + 1);
      pieces.push_back({body.data() + at, part});
      at += part;
    }
    void* const token = reinterpret_cast<void*>(header_.b + 1);
    const Status status = side_.port->send_reference(*side_.link, header_, pieces.data(), pieces.size(), token);
    if (status == TW_IN_PROGRESS) side_.sink.by_reference.emplace(token, std::move(body));
    return status;
  }

  Side& side_;
  std::minstd_rand random_;
  const size_t largest_;
  bool planned_ = false;
  int how_ = 0;
  FrameHeader header_{};
};

/// Progresses until done() or the time is over.
template <typename Done>
bool progress_until(std::initializer_list<Side*> sides, Done done, uint64_t timeout_ns = 90 * kSecond) {
  const Deadline deadline(timeout_ns);
  while (!done()) {
    for (Side* side : sides) side->port->progress(64);
    if (deadline.passed()) return false;
  }
  return true;
}

/// Both sides send `frames` frames at the same time; all of them and every byte arrive.
inline void exchange(Side& left, RandomSender& there, Side& right, RandomSender& back, uint64_t frames, uint64_t seed) {
  const auto done = [&] {
    for (int i = 0; i < 20 && there.accepted < frames && there.step(); ++i) {
    }
    for (int i = 0; i < 20 && back.accepted < frames && back.step(); ++i) {
    }
    return right.sink.frames == frames && left.sink.frames == frames;
  };
  ASSERT_TRUE(progress_until({&left, &right}, done))
      << "seed " << seed << ": " << right.sink.frames << " and " << left.sink.frames;
  EXPECT_EQ(right.sink.bytes, there.bytes);
  EXPECT_EQ(left.sink.bytes, back.bytes);
}

}  // namespace thalweg::impl::tcp
