// SPDX-License-Identifier: Apache-2.0
// Fixtures of the security tests: connected sockets, keys, and two handshakes driven against each other.
#pragma once
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <span>
#include <vector>

#include "base/unique_fd.hpp"
#include "security/handshake.hpp"
#include "security/handshake_wire.hpp"
#include "security/job_key.hpp"

namespace thalweg::impl::test {

struct SocketPair {
  UniqueFd a, b;
  explicit SocketPair(bool tcp = false) {
    int ends[2] = {-1, -1};
    if (tcp) {
      UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      socklen_t length = sizeof address;
      EXPECT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
      EXPECT_EQ(listen(listener.get(), 1), 0);
      EXPECT_EQ(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
      ends[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      EXPECT_EQ(connect(ends[0], reinterpret_cast<sockaddr*>(&address), length), 0);
      ends[1] = accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC);
    } else {
      EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    }
    for (const int fd : ends) fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    a = UniqueFd(ends[0]);
    b = UniqueFd(ends[1]);
  }
};

inline JobKey key_of(const char* text) {
  JobKey key;
  EXPECT_EQ(JobKey::load(text, std::strlen(text), nullptr, &key), TW_OK);
  return key;
}

/// The target of these tests' clients, and the server that is it.
inline DialTarget meant() { return DialTarget::of_worker(0x1122334455667788, 7); }
inline bool is_meant(const DialTarget& target) { return target == meant(); }

/// The two ends of a session, as a handshake would leave them.
inline Session session_of(Role role) {
  Session session;
  session.send.fill(std::byte{role == Role::client});
  session.receive.fill(std::byte{role == Role::server});
  return session;
}

/// A message as an end with this session sends it; the header may lie.
inline std::vector<std::byte> signed_message(Session& session, handshake_wire::SetupHeader header,
                                             const std::vector<std::byte>& body = {}) {
  header.counter = session.sent++;
  std::vector<std::byte> bytes(sizeof header);
  std::memcpy(bytes.data(), &header, sizeof header);
  bytes.insert(bytes.end(), body.begin(), body.end());
  const std::span<const std::byte> text(bytes);
  const Session::Key mac = authenticate(session.send, {&text, 1});
  bytes.insert(bytes.end(), mac.begin(), mac.end());
  return bytes;
}

inline std::vector<std::byte> random_data(size_t n) {
  std::vector<std::byte> bytes(n);
  EXPECT_EQ(random_bytes(bytes.data(), n), TW_OK);
  return bytes;
}

inline bool over(Handshake::Want want) { return want == Handshake::Want::done || want == Handshake::Want::failed; }

/// Drives both ends until both are over; an end that failed closes its socket, as its owner would.
inline void shake(Handshake& client, UniqueFd& a, Handshake& server, UniqueFd& b) {
  auto want_a = Handshake::Want::read;
  auto want_b = Handshake::Want::read;
  for (int i = 0; i < 100 && !(over(want_a) && over(want_b)); ++i) {
    if (!over(want_a)) want_a = client.advance(a.get());
    if (want_a == Handshake::Want::failed) a.reset();
    if (!over(want_b)) want_b = server.advance(b.get());
    if (want_b == Handshake::Want::failed) b.reset();
    pollfd both[2] = {{over(want_a) ? -1 : a.get(), POLLIN, 0}, {over(want_b) ? -1 : b.get(), POLLIN, 0}};
    if (!over(want_a) || !over(want_b)) poll(both, 2, 1000);
  }
  EXPECT_TRUE(over(want_a));
  EXPECT_TRUE(over(want_b));
}

}  // namespace thalweg::impl::test
