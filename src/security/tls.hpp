// SPDX-License-Identifier: Apache-2.0
// TLS 1.3 with a pre-shared key derived from the job key (and ephemeral keys, so that a key lost later opens no recording).
// No certificates. Non-blocking.
#pragma once
#include <array>
#include <cstddef>
#include <vector>

#include "base/status.hpp"
#include "security/handshake.hpp"

namespace thalweg::impl {

/// Does a context or store use TLS on TCP? `asked`: its option says so; THALWEG_TLS=1 says it whatever their options.
Status choose_tls(bool asked, bool* out);

/// A TLS object over a connected non-blocking socket, which stays the caller's. Freed with SSL_free. nullptr: see
/// last_error(). It writes with MSG_NOSIGNAL. One thread at a time. first: what was read of the socket already.
SSL* make_tls(Role role, const JobKey& key, int fd, std::vector<std::byte> first = {});

/// To be called after every successful write: renews the sending key long before it has protected too much.
void count_record(SSL* tls);
/// For tests.
void set_records_per_key(SSL* tls, uint64_t records);

enum class TlsStep { done, want_read, want_write, closed, wrong_key, malformed };
/// Moves the TLS handshake on. A failing step leaves OpenSSL's reason in *reason (static text).
TlsStep step_tls(SSL* tls, const char** reason);

/// 32 bytes that are secret to the two ends of this TLS connection.
Status tls_binding(SSL* tls, std::array<std::byte, 32>* out);

}  // namespace thalweg::impl
