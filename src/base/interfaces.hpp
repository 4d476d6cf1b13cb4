// SPDX-License-Identifier: Apache-2.0
// Which addresses this machine has, which of them a user allows, and listening there only.
#pragma once
#include <string>
#include <vector>

#include "base/socket_address.hpp"
#include "base/unique_fd.hpp"

namespace thalweg::impl {

struct LocalAddress {
  std::string interface;
  SocketAddress address;  // port 0
};
/// Addresses of interfaces that are up: loopback and IPv6 link-local ones last. `filter` is a comma list of interface
/// names, addresses or subnets ("eth0,192.0.2.7,2001:db8::/32"); null or "": all. An item that names nothing here is
/// TW_ERR_INVALID with what there is.
Status local_addresses(const char* filter, std::vector<LocalAddress>* out);

/// Listens where `text` says, as far as `filter` allows it: at every allowed address when the text names none ("",
/// "0.0.0.0", "::"), all with one port. TW_ERR_INVALID: the text names an address that is not allowed. Without a filter, and
/// for a unix path, one socket. *port: 0 for a unix path.
Status listen_where_allowed(const AddressText& text, const char* filter, int backlog, std::vector<UniqueFd>* sockets,
                            uint16_t* port);

}  // namespace thalweg::impl
