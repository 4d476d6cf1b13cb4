// SPDX-License-Identifier: Apache-2.0
// Which addresses this machine has, and which of them a user allows.
#pragma once
#include <string>
#include <vector>

#include "base/socket_address.hpp"

namespace thalweg::impl::tcp {

struct LocalAddress {
  std::string interface;
  SocketAddress address;  // port 0
};
/// Addresses of interfaces that are up: loopback and IPv6 link-local ones last. `filter` is a comma list of interface
/// names, addresses or subnets ("eth0,192.0.2.7,2001:db8::/32"); null or "": all. An item that names nothing here is
/// TW_ERR_INVALID with what there is.
Status local_addresses(const char* filter, std::vector<LocalAddress>* out);

}  // namespace thalweg::impl::tcp
