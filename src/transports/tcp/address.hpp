// SPDX-License-Identifier: Apache-2.0
// Addresses of stream sockets: text to sockaddr and back, what this machine has, connecting and listening.
#pragma once
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"
#include "base/unique_fd.hpp"

namespace thalweg::impl::tcp {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  int family() const { return storage.ss_family; }
  bool internet() const { return family() == AF_INET || family() == AF_INET6; }
  bool loopback() const;
  bool any() const;       // 0.0.0.0 or ::
  uint16_t port() const;  // 0 for unix
  void set_port(uint16_t port);
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  /// "192.0.2.1:4711", "[2001:db8::1]:4711", "unix:/path".
  std::string text() const;
  /// The address bytes alone (4 or 16); empty for unix.
  std::string_view host_bytes() const;
  bool operator==(const SocketAddress& other) const;
};

/// The text forms a user writes: "host:port", "[v6]:port", ":port" (every interface), "unix:/path".
struct AddressText {
  bool unix_path = false;
  std::string host;  // or the path; "" for every interface
  uint16_t port = 0;
};
Status parse_address(std::string_view text, AddressText* out);

/// All addresses the text stands for, best first. Numeric ones at once; names by getaddrinfo, which may block for seconds:
/// not for a thread that must not. For listening, "" is the wildcard (IPv6 with IPv4 where there is IPv6).
Status resolve(const AddressText& text, bool to_listen, std::vector<SocketAddress>* out);

/// "192.0.2.1" or "2001:db8::1", with or without "%interface".
bool parse_numeric(const std::string& host, uint16_t port, SocketAddress* out);

struct LocalAddress {
  std::string interface;
  SocketAddress address;  // port 0
  unsigned prefix = 0;    // bits of the subnet
};
/// Addresses of interfaces that are up: loopback and IPv6 link-local ones last. `filter` is a comma list of interface
/// names, addresses or subnets ("eth0,192.0.2.7,2001:db8::/32"); null or "": all. An item that names nothing here, or a
/// filter that leaves nothing, is TW_ERR_INVALID with what there is.
Status local_addresses(const char* filter, std::vector<LocalAddress>* out);

/// The local address to connect from when `to` must be reached over one of `allowed`: in the same subnet, else of the same
/// family. null: none (loopback targets only match loopback addresses).
const LocalAddress* choose_source(const SocketAddress& to, const std::vector<LocalAddress>& allowed);

/// Starts a connect without blocking. TW_OK: connected. TW_IN_PROGRESS: when writable, ask finish_connect. `from` may be
/// null; its port is ignored. The socket is non-blocking and close-on-exec.
Status start_connect(const SocketAddress& to, const SocketAddress* from, UniqueFd* socket);
Status finish_connect(int fd, const SocketAddress& to);

/// A listening, non-blocking socket. A unix path is made private to the user (mode 0600), and a socket file left behind by
/// a dead listener is replaced; a live one is TW_ERR_ADDRESS_IN_USE.
Status listen_at(const SocketAddress& at, int backlog, UniqueFd* socket);
/// TW_AGAIN when nobody waits. The accepted socket is non-blocking and close-on-exec.
Status accept_from(int listener, UniqueFd* socket, SocketAddress* peer);

Status local_address(int fd, SocketAddress* out);
Status peer_address(int fd, SocketAddress* out);

}  // namespace thalweg::impl::tcp
