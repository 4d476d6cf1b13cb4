// SPDX-License-Identifier: Apache-2.0
// Stream sockets: connecting without blocking, listening, accepting. All are close-on-exec and non-blocking.
#pragma once
#include <cstdint>
#include <string>

#include "base/socket_address.hpp"
#include "base/unique_fd.hpp"

namespace thalweg::impl {

/// Starts a connect. TW_OK: connected. TW_IN_PROGRESS: call finish_connect once the socket is writable.
Status start_connect(const SocketAddress& to, UniqueFd* socket);
Status finish_connect(int fd, const SocketAddress& to);

/// A socket file that a dead listener left behind at a unix path is replaced; a live one is TW_ERR_ADDRESS_IN_USE. The file
/// is made private to the user (mode 0600).
Status listen_at(const SocketAddress& at, int backlog, UniqueFd* socket);
/// TW_AGAIN when no connection is pending; an error when descriptors or memory have run out: the connection stays in the
/// backlog.
Status accept_from(int listener, UniqueFd* socket);

/// Removes stale socket files (of killed processes) of this user in `directory`, with this suffix, not bound any more and
/// `age_s` old (a new one is not bound for a moment). Checks at most `most`; live processes are not disturbed. Returns the
/// number removed.
unsigned remove_abandoned_sockets(const std::string& directory, const char* ending, int64_t age_s, unsigned most);

Status local_address(int fd, SocketAddress* out);
Status peer_address(int fd, SocketAddress* out);
bool is_unix_socket(int fd);

}  // namespace thalweg::impl
