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

int closed(int fd) {
  const int code = errno;
  if (fd >= 0) (void)::close(fd);
  errno = code;
  return -1;
}

int listen_and_accept(int fd, sockaddr_in a, SharedPort* port) {
  socklen_t length = sizeof a;
  auto* const address = reinterpret_cast<sockaddr*>(&a);
  if (::bind(fd, address, sizeof a) != 0 || ::listen(fd, 1) != 0 || ::getsockname(fd, address, &length) != 0) {
    port->store(kNoPort, std::memory_order_release);
    return closed(fd);
  }
  port->store(a.sin_port, std::memory_order_release);
  constexpr int kLookMs = 100;
  pollfd comes{fd, POLLIN, 0};
  int ready = 0;
  while ((ready = ::poll(&comes, 1, kLookMs)) == 0 || (ready < 0 && errno == EINTR)) {
    if (!a_child_ended()) continue;  // it is yet to connect
    errno = ECONNABORTED;
    return closed(fd);
  }
  const int accepted = ::accept4(fd, nullptr, nullptr, SOCK_CLOEXEC);
  (void)closed(fd);
  return accepted;
}

int connect_to(int fd, sockaddr_in a, const SharedPort* port) {
  uint64_t number;
  while ((number = port->load(std::memory_order_acquire)) == 0) ::sched_yield();
  a.sin_port = static_cast<in_port_t>(number);
  if (number == kNoPort || ::connect(fd, reinterpret_cast<sockaddr*>(&a), sizeof a) != 0) return closed(fd);
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
