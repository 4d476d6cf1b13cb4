// SPDX-License-Identifier: Apache-2.0
// "host:port", "[v6]:port" and ":port" as text and as socket addresses.
#pragma once
#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.hpp"

namespace thalweg::impl {

struct HostPort {
  std::string host;  // "" for all interfaces; v6 without brackets
  uint16_t port = 0;
};
Status parse_host_port(const std::string& text, HostPort* out);
std::string to_text(const HostPort& address);  ///< with brackets around v6

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  uint16_t port() const;
};
/// Addresses for a stream socket, best first. May ask a name server: not on the service thread. `passive`: for bind.
Status resolve(const HostPort& address, bool passive, std::vector<SocketAddress>* out);
/// Numeric "1.2.3.4:5" or "[::1]:5".
std::string to_text(const SocketAddress& address);

}  // namespace thalweg::impl
