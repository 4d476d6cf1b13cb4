// SPDX-License-Identifier: Apache-2.0
// A connected, non-blocking stream socket, plain or inside TLS 1.3: gathered writes and scattered reads that never raise
// SIGPIPE and never block.
#pragma once
#include <sys/uio.h>

#include <cstddef>

#include "base/platform/fork.hpp"
#include "base/unique_fd.hpp"

typedef struct ssl_st SSL;

namespace thalweg::impl::tcp {

/// What a read or write did. error 0: as much as asked, more may be possible at once. EAGAIN: `moved` bytes, the rest must
/// wait for the socket. Anything else: the stream is over (after `moved` bytes); 0 with `end`: the peer closed it.
struct IoResult {
  size_t moved = 0;
  int error = 0;
  bool end = false;
};

class Socket {
 public:
  Socket() = default;
  /// Takes the socket and the SSL* (null: plain).
  Socket(UniqueFd socket, SSL* tls);
  Socket(Socket&&) = delete;
  ~Socket();

  int fd() const { return socket_.get(); }
  bool tls() const { return tls_ != nullptr; }
  IoResult receive(const iovec* places, size_t count);
  /// One contiguous piece: the cheapest way for small frames.
  IoResult send(const void* bytes, size_t length);
  IoResult send(const iovec* pieces, size_t count);
  /// TLS read asked for writability: wait for it as for a write.
  bool read_wants_write() const { return read_wants_write_; }
  /// Shuts down our half: the peer sees that nothing follows.
  void finish();

 private:
  IoResult receive_tls(const iovec* places, size_t count);
  IoResult send_tls(const iovec* pieces, size_t count);
  int tls_error(int result);

  BornHere born_;
  UniqueFd socket_;
  bool unix_ = false;
  SSL* tls_ = nullptr;
  bool read_wants_write_ = false;
};

}  // namespace thalweg::impl::tcp
