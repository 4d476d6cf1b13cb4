// SPDX-License-Identifier: Apache-2.0
#include "machine/socket_link.hpp"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

#include "processes.hpp"

namespace perf {
namespace {

constexpr uint64_t kNoPort = ~uint64_t{0};
constexpr unsigned kOfChild = 16;  // bits below rank 1's port

int closed(int fd) {
  const int code = errno;
  if (fd >= 0) (void)::close(fd);
  errno = code;
  return -1;
}

/// Of the child alone: any process of this machine may connect.
int accept_child(int fd, const SharedPort* port) {
  constexpr int kLookMs = 100;
  for (;;) {
    pollfd comes{fd, POLLIN, 0};
    const int ready = ::poll(&comes, 1, kLookMs);
    if (ready < 0 && errno != EINTR) return -1;
    if (ready <= 0) {
      if (!a_child_ended()) continue;  // it is yet to connect
      errno = ECONNABORTED;
      return -1;
    }
    const int accepted = ::accept4(fd, nullptr, nullptr, SOCK_CLOEXEC);
    if (accepted < 0) return -1;
    sockaddr_in from{};
    socklen_t length = sizeof from;
    const bool named = ::getpeername(accepted, reinterpret_cast<sockaddr*>(&from), &length) == 0;
    if (named && from.sin_port == port->load(std::memory_order_acquire) >> kOfChild) return accepted;
    (void)closed(accepted);
  }
}

int listen_and_accept(int fd, sockaddr_in a, SharedPort* port) {
  socklen_t length = sizeof a;
  auto* const address = reinterpret_cast<sockaddr*>(&a);
  if (::bind(fd, address, sizeof a) != 0 || ::listen(fd, 16) != 0 || ::getsockname(fd, address, &length) != 0) {
    port->store(kNoPort, std::memory_order_release);
    return closed(fd);
  }
  port->store(a.sin_port, std::memory_order_release);
  const int accepted = accept_child(fd, port);
  (void)closed(fd);
  return accepted;
}

int connect_to(int fd, sockaddr_in a, SharedPort* port) {
  uint64_t number;
  while ((number = port->load(std::memory_order_acquire)) == 0) ::sched_yield();
  if (number == kNoPort) return closed(fd);
  sockaddr_in own = a;
  socklen_t length = sizeof own;
  auto* const mine = reinterpret_cast<sockaddr*>(&own);
  if (::bind(fd, mine, sizeof own) != 0 || ::getsockname(fd, mine, &length) != 0) return closed(fd);
  port->store(number | uint64_t{own.sin_port} << kOfChild, std::memory_order_release);
  a.sin_port = static_cast<in_port_t>(number);
  if (::connect(fd, reinterpret_cast<sockaddr*>(&a), sizeof a) != 0) return closed(fd);
  return fd;
}

}  // namespace

int tcp_link(int rank, SharedPort* port) {
  const int one = 1, made = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = rank == 0 ? listen_and_accept(made, a, port) : connect_to(made, a, port);
  if (fd < 0) return -1;
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5);  // a machine's default may pace loopback
  return fd;
}

namespace {

bool move_all(int fd, unsigned char* p, size_t n, bool out, int flags) {
  while (n > 0) {
    const ssize_t k = out ? ::send(fd, p, n, MSG_NOSIGNAL | flags) : ::recv(fd, p, n, flags);
    if (k < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (k <= 0) return false;
    p += k;
    n -= static_cast<size_t>(k);
  }
  return true;
}

}  // namespace

bool move_polled(int fd, unsigned char* p, size_t n, bool out) { return move_all(fd, p, n, out, MSG_DONTWAIT); }
bool move_asleep(int fd, unsigned char* p, size_t n, bool out) { return move_all(fd, p, n, out, 0); }

}  // namespace perf
