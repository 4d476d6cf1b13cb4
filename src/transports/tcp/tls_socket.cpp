// SPDX-License-Identifier: Apache-2.0
// TLS over a stream: SSL_read and SSL_write without blocking. The SSL object comes from the handshake (security/tls.hpp) and
// already writes without raising SIGPIPE.
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/passed_descriptors.hpp"
#include "base/sockets.hpp"
#include "security/tls.hpp"
#include "transports/tcp/socket.hpp"

namespace thalweg::impl::tcp {

namespace {

constexpr size_t kRecord = 16384;

}  // namespace

Socket::Socket(UniqueFd socket, SSL* tls) : socket_(std::move(socket)), tls_(tls) {
  unix_ = socket_ && is_unix_socket(socket_.get());
  if (tls_ == nullptr) return;
  SSL_set_mode(tls_, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
}

Socket::~Socket() {
  if (unix_ && !born_.forked()) drop_passed(fd());
  if (tls_ != nullptr) SSL_free(tls_);
}

void Socket::finish() {
  if (tls_ != nullptr) {
    ERR_clear_error();
    SSL_shutdown(tls_);
  }
  ::shutdown(fd(), SHUT_WR);
}

/// EAGAIN, an errno, EPROTO for a broken TLS stream, or 0 for its end.
int Socket::tls_error(int result) {
  const int error = errno;
  switch (SSL_get_error(tls_, result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
      return EAGAIN;
    case SSL_ERROR_ZERO_RETURN:
      return 0;
    case SSL_ERROR_SYSCALL:
      return error == 0 || error == EAGAIN ? ECONNRESET : error;
    default:
      // A peer that died sends no close_notify: that is an end of the stream, not a broken one.
      return ERR_GET_REASON(ERR_peek_error()) == SSL_R_UNEXPECTED_EOF_WHILE_READING ? ECONNRESET : EPROTO;
  }
}

IoResult Socket::receive_tls(const iovec* places, size_t count) {
  IoResult result;
  for (size_t i = 0; i < count; ++i) {
    size_t filled = 0;
    while (filled < places[i].iov_len) {
      const size_t room = std::min<size_t>(places[i].iov_len - filled, 1u << 30);
      ERR_clear_error();
      errno = 0;
      const int n = SSL_read(tls_, static_cast<std::byte*>(places[i].iov_base) + filled, static_cast<int>(room));
      read_wants_write_ = n <= 0 && SSL_want_write(tls_) != 0;
      if (n > 0) {
        filled += static_cast<size_t>(n);
        result.moved += static_cast<size_t>(n);
        continue;
      }
      result.error = tls_error(n);
      result.end = result.error == 0;
      return result;
    }
  }
  return result;
}

// OpenSSL insists that an interrupted write is repeated with at least as many bytes and the same contents. The caller
// repeats from the first byte not taken and never takes bytes back, so the repetition is the same stream; gathering up to
// one record makes it at least as long.
IoResult Socket::send_tls(const iovec* pieces, size_t count) {
  IoResult result;
  size_t i = 0, skip = 0;
  std::byte record[kRecord];
  while (true) {
    while (i < count && skip == pieces[i].iov_len) ++i, skip = 0;
    if (i == count) return result;
    const std::byte* from = static_cast<const std::byte*>(pieces[i].iov_base) + skip;
    size_t length = std::min(pieces[i].iov_len - skip, kRecord);
    if (length < kRecord && i + 1 < count) {
      size_t used = 0;
      for (size_t j = i, from_skip = skip; j < count && used < kRecord; ++j, from_skip = 0) {
        const size_t n = std::min(pieces[j].iov_len - from_skip, kRecord - used);
        std::memcpy(record + used, static_cast<const std::byte*>(pieces[j].iov_base) + from_skip, n);
        used += n;
      }
      from = record;
      length = used;
    }
    ERR_clear_error();
    errno = 0;
    const int n = SSL_write(tls_, from, static_cast<int>(length));
    if (n <= 0) {
      result.error = tls_error(n);
      if (result.error == 0) result.error = EPIPE;
      return result;
    }
    result.moved += static_cast<size_t>(n);
    count_record(tls_);
    for (size_t rest = static_cast<size_t>(n); rest > 0;) {
      const size_t step = std::min(rest, pieces[i].iov_len - skip);
      skip += step;
      rest -= step;
      if (skip == pieces[i].iov_len) ++i, skip = 0;
    }
  }
}

}  // namespace thalweg::impl::tcp
