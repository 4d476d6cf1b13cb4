// SPDX-License-Identifier: Apache-2.0
// Two shm ports, set up by hand over a socket pair: in one process, or with the second in a forked child.
#pragma once
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/event_loop.hpp"
#include "base/platform/process.hpp"
#include "memory/registry.hpp"
#include "security/handshake.hpp"
#include "transports/shm/port.hpp"

namespace thalweg::impl::test {

/// Counts frames and hands them to a function.
class RecordingSink final : public Sink {
 public:
  std::function<void(Link&, const FrameHeader&, const std::byte*)> frame;
  std::function<void(Link&)> lost_call;
  uint64_t frames = 0;
  int lost = 0, imports = 0;
  Status lost_status = TW_OK;
  std::string lost_why;
  void on_frame(Link& link, const FrameHeader& header, const std::byte* body) override {
    ++frames;
    if (frame) frame(link, header, body);
  }
  std::byte* destination(Link&, const FrameHeader&, const std::byte*, size_t) override { return nullptr; }
  void on_landed(Link&, const FrameHeader&) override {}
  void on_sent(Link&, void*, Status) override {}
  void on_lost(Link& link, Status status, const char* why) override {
    ++lost;
    lost_status = status;
    lost_why = why;
    if (lost_call) lost_call(link);
  }
  void on_import(Link&, uint64_t) override { ++imports; }
};

/// One side: its own loop, registry, sink and port, as a context and worker would have.
struct Side {
  uint64_t incarnation = random_id();
  EventLoop loop;
  Registry registry{incarnation};
  RecordingSink sink;
  std::unique_ptr<Port> port;
  explicit Side(bool with_loop = true, uint64_t silent_timeout_ns = 0) {
    if (with_loop) {
      EXPECT_EQ(loop.start(), TW_OK);
    }
    PortOptions options;
    options.sink = &sink;
    options.service = with_loop ? &loop : nullptr;
    options.registry = &registry;
    options.worker = random_id();
    options.incarnation = incarnation;
    options.silent_timeout_ns = silent_timeout_ns;
    EXPECT_EQ(shm::ShmPort::open(options, &port), TW_OK) << last_error();
  }
  ~Side() {
    port.reset();
    loop.stop();
  }
  shm::ShmPort& shm() { return static_cast<shm::ShmPort&>(*port); }
};

inline SetupMessage copy_of(const SetupMessage& m) {
  SetupMessage c;
  c.bytes = m.bytes;
  for (const UniqueFd& fd : m.fds) c.fds.emplace_back(dup(fd.get()));
  return c;
}

/// In one process.
inline void connect_sides(Side& a, Side& b, Link** la, Link** lb) {
  int fds[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
  LinkInit ia, ib;
  ia.initiator = true;
  ia.socket = UniqueFd(fds[0]);
  ib.socket = UniqueFd(fds[1]);
  ia.peer.incarnation = b.incarnation;
  ib.peer.incarnation = a.incarnation;
  ASSERT_EQ(a.port->offer(ia.peer, ia.mine), TW_OK) << last_error();
  ASSERT_EQ(b.port->answer(ib.peer, ia.mine, ib.mine), TW_OK) << last_error();
  ib.theirs = copy_of(ia.mine);
  ia.theirs = copy_of(ib.mine);
  ASSERT_EQ(a.port->establish(std::move(ia), la), TW_OK) << last_error();
  ASSERT_EQ(b.port->establish(std::move(ib), lb), TW_OK) << last_error();
}

/// Blocking exchange of set-up messages for two processes.
inline void send_setup(SetupChannel& channel, uint64_t incarnation, const SetupMessage& m) {
  std::vector<int> fds;
  for (const UniqueFd& fd : m.fds) fds.push_back(fd.get());
  std::vector<std::byte> bytes(sizeof incarnation);
  std::memcpy(bytes.data(), &incarnation, sizeof incarnation);
  bytes.insert(bytes.end(), m.bytes.begin(), m.bytes.end());
  ASSERT_EQ(channel.queue(1, bytes.data(), bytes.size(), fds.data(), fds.size()), TW_OK) << last_error();
  while (channel.flush() == TW_IN_PROGRESS) {
  }
}
inline void receive_setup(SetupChannel& channel, uint64_t* incarnation, SetupMessage* m) {
  SetupChannel::Message message;
  Status s;
  while ((s = channel.receive(&message)) == TW_IN_PROGRESS) cpu_pause();
  ASSERT_EQ(s, TW_OK) << last_error();
  std::memcpy(incarnation, message.bytes.data(), 8);
  m->bytes.assign(message.bytes.begin() + 8, message.bytes.end());
  m->fds = std::move(message.fds);
}
inline Link* connect_over(Side& side, int socket, bool initiator) {
  LinkInit init;
  init.initiator = initiator;
  SetupChannel channel{UniqueFd(socket), nullptr, {}};
  if (initiator) {
    EXPECT_EQ(side.port->offer(init.peer, init.mine), TW_OK) << last_error();
    send_setup(channel, side.incarnation, init.mine);
    receive_setup(channel, &init.peer.incarnation, &init.theirs);
  } else {
    receive_setup(channel, &init.peer.incarnation, &init.theirs);
    EXPECT_EQ(side.port->answer(init.peer, init.theirs, init.mine), TW_OK) << last_error();
    send_setup(channel, side.incarnation, init.mine);
  }
  init.session = channel.session();
  init.socket = channel.take_socket();
  Link* link = nullptr;
  EXPECT_EQ(side.port->establish(std::move(init), &link), TW_OK) << last_error();
  return link;
}

/// A child process that runs `body` over a socket to this one, which it connects itself: a socket pair from before the fork would
/// show both ends the parent's pid. Nothing of the library may exist before the fork.
class Child {
 public:
  explicit Child(const std::function<int(int socket)>& body) {
    const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    socklen_t length = sizeof(sa_family_t);  // the kernel chooses an abstract name
    if (bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(listener, 1) != 0) abort();
    length = sizeof address;
    if (getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0) abort();
    pid_ = fork();
    if (pid_ == 0) {
      ::close(listener);
      alarm(100);
      const int mine = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (connect(mine, reinterpret_cast<sockaddr*>(&address), length) != 0) _exit(98);
      if (fcntl(mine, F_SETFL, O_NONBLOCK) != 0) _exit(98);
      const int code = body(mine);
      _exit(::testing::Test::HasFailure() ? 99 : code);
    }
    pollfd one{listener, POLLIN, 0};
    if (poll(&one, 1, 10'000) != 1) abort();
    socket_ = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (socket_ < 0) abort();
    ::close(listener);
  }
  ~Child() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }
  int socket() const { return socket_; }  // ownership passes to the caller
  pid_t pid() const { return pid_; }
  int wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t pid_ = -1;
  int socket_ = -1;
};

template <typename Done>
::testing::AssertionResult progress_until(std::initializer_list<Port*> ports, Done done, uint64_t timeout_ns = 30 * kSecond) {
  const Deadline deadline(timeout_ns);
  for (uint64_t i = 0; !done(); ++i) {
    for (Port* port : ports) port->progress(64);
    if ((i & 63) == 63) sched_yield();  // more processes than cores
    if ((i & 1023) == 1023 && deadline.passed()) return ::testing::AssertionFailure() << "timed out";
  }
  return ::testing::AssertionSuccess();
}

/// Bytes that both sides can compute from a seed; different for each frame.
inline void fill(std::byte* to, size_t n, uint64_t seed) {
  uint64_t x = seed * 0x9e3779b97f4a7c15u + 1;
  for (size_t i = 0; i < n; ++i) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    to[i] = std::byte(x);
  }
}
inline bool filled(const std::byte* from, size_t n, uint64_t seed) {
  std::vector<std::byte> want(n);
  fill(want.data(), n, seed);
  return n == 0 || std::memcmp(want.data(), from, n) == 0;
}

}  // namespace thalweg::impl::test
