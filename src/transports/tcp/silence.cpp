// SPDX-License-Identifier: Apache-2.0
// Socket options and the watch over unacknowledged data.
#include "transports/tcp/silence.hpp"

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <sys/ioctl.h>

#include <algorithm>

#include "base/sockets.hpp"

#ifndef TCP_RTO_MAX_MS
#define TCP_RTO_MAX_MS 44  // Linux 6.15; older kernels refuse it and keep 120 s
#endif

namespace thalweg::impl::tcp {

namespace {

void set(int fd, int level, int name, int value) { (void)::setsockopt(fd, level, name, &value, sizeof(value)); }

/// Both ends on one machine: no network to be fair to.
bool is_local(int fd) {
  SocketAddress here, there;
  if (local_address(fd, &here) != TW_OK || peer_address(fd, &there) != TW_OK) return false;
  return here.internet() && (here.host_bytes() == there.host_bytes() || there.loopback());
}

}  // namespace

bool tune_socket(int fd, uint64_t timeout_ns) {
  int domain = 0;
  socklen_t n = sizeof(domain);
  if (::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &n) != 0 || (domain != AF_INET && domain != AF_INET6)) return false;
  // With 5 s: first question after 2 s of silence, two more a second apart, lost at 4 s.
  const int seconds = static_cast<int>(std::clamp<uint64_t>(timeout_ns / 1'000'000'000, 2, 86'400));
  const int idle = std::max(1, seconds * 2 / 5);
  const int interval = std::max(1, (seconds - idle) / 3);
  const int count = std::max(1, (seconds - idle) / interval - 1);
  set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set(fd, IPPROTO_TCP, TCP_KEEPIDLE, idle);
  set(fd, IPPROTO_TCP, TCP_KEEPINTVL, interval);
  set(fd, IPPROTO_TCP, TCP_KEEPCNT, count);
  set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  // Retransmissions and window probes come often enough to distinguish a dead network from a slow reader within the
  // time-out.
  set(fd, IPPROTO_TCP, TCP_RTO_MAX_MS, std::clamp(seconds * 1000 / 5, 1000, 120'000));
  // A pacing congestion control (BBR) costs 64 KiB and 1 MiB messages half their speed on loopback.
  if (is_local(fd)) {
    static constexpr char kControl[] = "cubic";
    if (::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kControl, sizeof(kControl) - 1) != 0)
      (void)::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
  }
  return true;
}

Silence listen_for(int fd, uint64_t timeout_ns) {
  tcp_info info{};
  socklen_t n = sizeof(info);
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n) != 0) return Silence::acknowledged;  // a unix socket
  int unsent = 0;
  (void)::ioctl(fd, SIOCOUTQ, &unsent);
  if (info.tcpi_unacked == 0 && unsent == 0) return Silence::acknowledged;
  // Retransmissions (or probes of a closed window) go unanswered, and nothing else came either.
  const bool unanswered = info.tcpi_retransmits >= 2 || info.tcpi_probes >= 2;
  const uint64_t silent_ms = std::min(info.tcpi_last_ack_recv, info.tcpi_last_data_recv);
  return unanswered && silent_ms * 10 >= timeout_ns / 1'000'000 * 7 ? Silence::lost : Silence::waiting;
}

}  // namespace thalweg::impl::tcp
