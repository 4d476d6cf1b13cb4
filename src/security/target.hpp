// SPDX-License-Identifier: Apache-2.0
// A dialler's target. Both ends of a handshake include it in their proofs, so a handshake for one listening socket of a job
// does not authenticate at another one, whatever relays the bytes.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/socket_address.hpp"

namespace thalweg::impl {

enum class Purpose : uint16_t { worker = 1, listener = 2, store = 3 };

struct DialTarget {
  Purpose purpose = Purpose::worker;
  /// A worker's id and incarnation; IPv6 (or mapped IPv4) address and port; SHA-256 of a unix socket's absolute path.
  std::array<std::byte, 32> name{};

  static DialTarget of_worker(uint64_t worker, uint64_t incarnation);
  uint64_t worker() const;
  uint64_t incarnation() const;
  /// A listener at a unix socket of this absolute path.
  static DialTarget at_path(Purpose purpose, const std::string& path);
  /// A listener or store at this address; a relative path is of the working directory of now.
  static DialTarget at(Purpose purpose, const SocketAddress& address);
  /// What a connected client dialled: `given`, where the kernel may have filled in the host.
  static DialTarget dialled(Purpose purpose, int fd, const SocketAddress& given);
  /// Where a server's accepted socket was reached. Of a unix socket the kernel reports the path that was bound: where that was
  /// relative it may lead elsewhere by now.
  static DialTarget reached(Purpose purpose, int fd);
  bool operator==(const DialTarget&) const = default;
};

/// The same unix socket has one path, whatever links and working directories lie on the way to it now.
std::string absolute_path(const std::string& path);

/// Other addresses under which clients reach this process's listeners and stores, through a port forward or a NAT:
/// THALWEG_KNOWN_AS, a comma list such as "203.0.113.7:5000,unix:/run/job.sock". May query a name server.
Status known_as(Purpose purpose, std::vector<DialTarget>* out);

}  // namespace thalweg::impl
