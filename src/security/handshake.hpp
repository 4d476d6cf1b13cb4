// SPDX-License-Identifier: Apache-2.0
// Mutual challenge-response over a connected stream socket (TCP or unix), before any other byte is parsed.
//
//   client -> hello      magic, version range, feature bits, nonce_c, its target (target.hpp), what carries the connection
//   server -> challenge  version, feature bits, nonce_s
//   client -> proof      HMAC-SHA256(key, transcript of "client")
//   server -> authentication result    accepted or refused, HMAC-SHA256(key, transcript of "server", which has the client's proof)
//
// All messages have fixed sizes. A server verifies the client first, then that it is the client's target. Both then derive
// the keys of their session (session.hpp). With TLS, TLS 1.3 with an external PSK derived from the job key comes first and
// the same exchange runs inside it. Non-blocking: call advance() whenever the socket is ready.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "base/unique_fd.hpp"
#include "security/job_key.hpp"
#include "security/session.hpp"
#include "security/target.hpp"

typedef struct ssl_st SSL;

namespace thalweg::impl {

enum class Role { client, server };
/// Why a peer was refused. `timeout` and `overload` are detected by the caller; see RefusalCounters. target: it has the key,
/// but means another, or is another than was dialled. integrity: a message of a session was changed, repeated or left out.
/// identity: it has the key, but claims to be a worker that it is not.
enum class Refusal {
  none,
  authentication,
  version,
  malformed,
  timeout,
  replay,
  overload,
  closed,
  target,
  integrity,
  identity,
  count_
};

/// How a client begins, by its first byte, which stays in the socket. wait: nothing came yet.
enum class Opening { wait, closed, tls, plain };
Opening look_at_opening(int fd);

class Handshake {
 public:
  enum class Want { read, write, done, failed };
  using Here = std::function<bool(const DialTarget&)>;
  /// A client and its target.
  Handshake(const JobKey& key, uint64_t features, bool tls, const DialTarget& target);
  /// A server; `here` tells if this server is the target of a client that has proved the key.
  Handshake(const JobKey& key, uint64_t features, bool tls, Here here);
  ~Handshake();
  /// Moves as far as the socket allows.
  Want advance(int fd);
  Status status() const;            // why it failed
  const std::string& text() const;  // the error's text with remedy; fail() has also stored it for the advancing thread
  Refusal refusal() const;
  uint16_t version() const;          // agreed
  uint64_t features() const;         // common bits
  const DialTarget& target() const;  // the client's target
  /// The keys of the messages that follow. After Want::done.
  Session session() const;
  SSL* take_tls();  // null without TLS; ownership passes

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Bounded messages over an authenticated socket (and its TLS), with descriptors over unix sockets. Non-blocking.
/// Wire: handshake_wire.hpp's SetupHeader, bytes, MAC. Each direction has its key and counts its messages.
class SetupChannel {
 public:
  static constexpr size_t kMax = 4096;
  static constexpr size_t kMaxFds = 8;
  using SharedBytes = std::shared_ptr<const std::vector<std::byte>>;
  struct Message {
    uint16_t type = 0;
    std::vector<std::byte> bytes;
    std::vector<UniqueFd> fds;
  };
  /// max: bytes of a message.
  SetupChannel(UniqueFd socket, SSL* tls, const Session& session, size_t max = kMax);
  ~SetupChannel();
  /// Queues; flush() writes. Duplicates of the descriptors travel; the caller keeps its own.
  Status queue(uint16_t type, const void* bytes, size_t length, const int* fds = nullptr, size_t fd_count = 0);
  /// The descriptors themselves travel: nothing is duplicated, so none can be lacking. The message goes on with `rest`, which
  /// is not copied: many channels may send one.
  Status queue(uint16_t type, const void* bytes, size_t length, std::vector<UniqueFd>&& fds, SharedBytes rest = nullptr);
  /// TW_OK: all written. TW_IN_PROGRESS: wait for writability. TW_ERR_NO_DESCRIPTORS: too many are on their way; try again a little
  /// later. Other errors are for ever.
  Status flush();
  bool all_written() const;
  /// TW_OK with a message, TW_IN_PROGRESS: wait for readability, TW_ERR_CLOSED at the end, TW_ERR_PROTOCOL, for ever
  /// TW_ERR_AUTHENTICATION: a message is not as the peer sent it. A message is seen only when all of it is there and right.
  /// TW_ERR_NO_DESCRIPTORS: the same message without its descriptors, because this process is out of them; the channel goes on.
  /// Reads exactly the message's bytes and nothing behind it (the socket may carry data frames next).
  Status receive(Message* out);
  int fd() const;
  const Session& session() const;  // for a channel that continues over the same socket
  UniqueFd take_socket();
  SSL* take_tls();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace thalweg::impl
