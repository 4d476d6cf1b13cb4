// SPDX-License-Identifier: Apache-2.0
// Mutual challenge-response over a connected stream socket (TCP or unix), before any other byte is parsed.
//
//   client -> hello      magic, version range, feature bits, nonce_c
//   server -> challenge  version, feature bits, nonce_s
//   client -> proof      HMAC-SHA256(key, "client" | transcript)
//   server -> verdict    accepted or refused, HMAC-SHA256(key, "server" | transcript | client proof)
//
// All messages have fixed sizes. A server verifies the client first. With TLS, TLS 1.3 with an external PSK derived from the
// job key comes first and the same exchange runs inside it. Non-blocking: call advance() whenever the socket is ready.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "base/unique_fd.hpp"
#include "security/job_key.hpp"

typedef struct ssl_st SSL;

namespace thalweg::impl {

enum class Role { client, server };
/// Why a stranger was turned away. `timeout` and `overload` are the caller's to find; see RefusalCounters.
enum class Refusal { none, authentication, version, malformed, timeout, replay, overload, closed, count_ };

class Handshake {
 public:
  enum class Want { read, write, done, failed };
  Handshake(Role role, const JobKey& key, uint64_t features, bool tls);
  ~Handshake();
  /// Moves as far as the socket allows.
  Want advance(int fd);
  Status status() const;            // why it failed
  const std::string& text() const;  // the error's text with remedy; fail() has also stored it for the advancing thread
  Refusal refusal() const;
  uint16_t version() const;   // agreed
  uint64_t features() const;  // common bits
  SSL* take_tls();            // null without TLS; ownership passes

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Bounded messages over an authenticated socket (and its TLS), with descriptors over unix sockets. Non-blocking.
/// Wire: u32 length (<= kMax), u16 type, u16 fd count, bytes.
class SetupChannel {
 public:
  static constexpr size_t kMax = 4096;
  static constexpr size_t kMaxFds = 8;
  struct Message {
    uint16_t type = 0;
    std::vector<std::byte> bytes;
    std::vector<UniqueFd> fds;
  };
  SetupChannel(UniqueFd socket, SSL* tls);
  ~SetupChannel();
  /// Queues; flush() writes. Duplicates of the descriptors travel; the caller keeps its own.
  Status queue(uint16_t type, const void* bytes, size_t length, const int* fds = nullptr, size_t fd_count = 0);
  /// TW_OK: all written. TW_IN_PROGRESS: wait for writability. Error.
  Status flush();
  /// TW_OK with a message, TW_IN_PROGRESS: wait for readability, TW_ERR_CLOSED at the end, TW_ERR_PROTOCOL.
  /// Reads exactly the message's bytes and nothing behind it (the socket may carry data frames next).
  Status receive(Message* out);
  int fd() const;
  UniqueFd take_socket();
  SSL* take_tls();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace thalweg::impl
