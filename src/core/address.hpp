// SPDX-License-Identifier: Apache-2.0
// The worker address: what a process hands to others, by any means, so that they can connect. At most 128 bytes, versioned,
// parsed defensively (it comes from outside).
//
//   0  magic "TWA", version 1        24  host id            40  TCP port
//   4  checksum of all that follows  32  unix socket token  42  count of IP addresses, flags
//   8  worker id                                            44  the addresses: family (4 or 6), 4 or 16 bytes each
//   16 incarnation
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.hpp"
#include "transports/transport.hpp"

namespace thalweg::impl {

inline constexpr size_t kAddressMax = 128;  // bytes of a worker's address

/// An IP address without port. length is 4 or 16.
struct IpAddress {
  uint8_t length = 4;
  std::array<uint8_t, 16> bytes{};
  bool operator==(const IpAddress&) const = default;
};

struct WorkerAddress {
  WorkerId worker = 0;
  uint64_t incarnation = 0;
  uint64_t host = 0;
  uint64_t token = 0;  // names the unix socket in the socket directory; 0: none
  uint16_t port = 0;   // 0: TCP is off
  std::vector<IpAddress> addresses;
};

/// Writes as many addresses as fit into kAddressMax. *length: capacity in, length out; TW_ERR_INVALID when too small.
Status write_address(const WorkerAddress& address, void* bytes, size_t* length);
/// TW_ERR_INVALID with a text for anything that write_address would not have written.
Status parse_address(const void* bytes, size_t length, WorkerAddress* out);

}  // namespace thalweg::impl
