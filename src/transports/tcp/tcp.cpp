// SPDX-License-Identifier: Apache-2.0
// The Transport of tcp: always there; remarks about kernel settings that cost speed.
#include "transports/tcp/tcp.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "transports/tcp/port.hpp"

namespace thalweg::impl {

namespace {

class TcpTransport final : public Transport {
 public:
  const char* name() const override { return "tcp"; }
  TransportTraits traits() const override { return {.over_network = true}; }
  std::string unavailable() const override;
  std::vector<std::string> remarks() const override;
  Status open(const PortOptions& options, std::unique_ptr<Port>* port) override;
};

std::string TcpTransport::unavailable() const {
  const UniqueFd v4(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (v4) return {};
  const int error = errno;
  const UniqueFd v6(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (v6) return {};
  return std::string("no internet socket can be made (") + std::strerror(error) +
         "): allow IPv4 or IPv6 sockets in this sandbox or container, or raise RLIMIT_NOFILE";
}

/// The first word of a file under /proc/sys, "" when it cannot be read.
std::string setting(const char* path) {
  char word[64] = "";
  if (std::FILE* file = std::fopen(path, "re")) {
    if (std::fscanf(file, "%63s", word) != 1) word[0] = '\0';
    std::fclose(file);
  }
  return word;
}

std::vector<std::string> TcpTransport::remarks() const {
  std::vector<std::string> out;
  if (setting("/proc/sys/net/ipv4/tcp_congestion_control") == "bbr") {
    out.push_back(
        "the system's congestion control is bbr, which paces: fine for long distances, slower inside a cluster; "
        "on one machine cubic is used instead; remedy: sysctl net.ipv4.tcp_congestion_control=cubic");
  }
  if (setting("/proc/sys/net/ipv4/tcp_window_scaling") == "0") {
    out.push_back(
        "window scaling is off, which limits a connection to 64 KiB in flight; "
        "remedy: sysctl net.ipv4.tcp_window_scaling=1");
  }
  return out;
}

Status TcpTransport::open(const PortOptions& options, std::unique_ptr<Port>* port) {
  PortOptions complete = options;
  if (complete.silent_timeout_ns == 0) complete.silent_timeout_ns = 5'000'000'000;
  auto made = std::make_unique<tcp::TcpPort>(complete);
  if (Status s = made->start(); s != TW_OK) return s;
  *port = std::move(made);
  return TW_OK;
}

}  // namespace

std::unique_ptr<Transport> make_tcp_transport() { return std::make_unique<TcpTransport>(); }

}  // namespace thalweg::impl
