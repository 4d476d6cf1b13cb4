// SPDX-License-Identifier: Apache-2.0
// Stream sockets: connecting without blocking, listening, accepting. All are close-on-exec and non-blocking.
#pragma once
#include <cstdint>
#include <string>

#include "base/socket_address.hpp"
#include "base/unique_fd.hpp"

namespace thalweg::impl {

/// Starts a connect. TW_OK: connected. TW_IN_PROGRESS: when writable, ask finish_connect.
Status start_connect(const SocketAddress& to, UniqueFd* socket);
Status finish_connect(int fd, const SocketAddress& to);

/// A socket file that a dead listener left behind at a unix path is replaced; a live one is TW_ERR_ADDRESS_IN_USE. The file
/// is made private to the user (mode 0600).
Status listen_at(const SocketAddress& at, int backlog, UniqueFd* socket);
/// TW_AGAIN when nobody waits; an error when descriptors or memory have run out: the connection stays in the backlog.
Status accept_from(int listener, UniqueFd* socket);

/// Socket files of this user in `directory`, whose names end so, that nobody has bound any more and that are `age_s` old (a new one is
/// not bound for a moment): of processes that were killed. Looks at `most` of them; live ones notice nothing. How many it removed.
unsigned remove_abandoned_sockets(const std::string& directory, const char* ending, int64_t age_s, unsigned most);

Status local_address(int fd, SocketAddress* out);
Status peer_address(int fd, SocketAddress* out);
bool is_unix_socket(int fd);

}  // namespace thalweg::impl
