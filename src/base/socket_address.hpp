// SPDX-License-Identifier: Apache-2.0
// Addresses of stream sockets: text to sockaddr and back.
#pragma once
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"

namespace thalweg::impl {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  int family() const { return storage.ss_family; }
  bool internet() const { return family() == AF_INET || family() == AF_INET6; }
  bool loopback() const;
  bool link_local() const;  // IPv6's fe80::/10: means nothing to another machine
  bool any() const;         // 0.0.0.0 or ::
  uint16_t port() const;    // 0 for unix
  void set_port(uint16_t port);
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  /// "192.0.2.1:4711", "[2001:db8::1]:4711", "unix:/path", "unix" for a client's.
  std::string text() const;
  /// The address bytes alone (4 or 16); empty for unix.
  std::string_view host_bytes() const;
};

/// The text forms a user writes: "host:port", "[v6]:port", ":port" (every interface), "unix:/path".
struct AddressText {
  std::string host;  // v6 without brackets; or the path; "" for every interface
  uint16_t port = 0;
  bool unix_path = false;
  std::string text() const;  // with brackets around v6
};
Status parse_address_text(std::string_view text, AddressText* out);

/// All addresses the text stands for, best first. Numeric ones at once; names by getaddrinfo, which may block for seconds:
/// not for a thread that must not. For listening, "" is the wildcard (IPv6 with IPv4 where there is IPv6).
Status resolve(const AddressText& text, bool to_listen, std::vector<SocketAddress>* out);

/// "192.0.2.1" or "2001:db8::1", with or without "%interface".
bool parse_numeric(const std::string& host, uint16_t port, SocketAddress* out);
/// From the 4 or 16 bytes that host_bytes gives.
SocketAddress internet_address(std::string_view host_bytes, uint16_t port);
/// TW_ERR_INVALID when the path is too long for a socket.
Status unix_address(const std::string& path, SocketAddress* out);

}  // namespace thalweg::impl
