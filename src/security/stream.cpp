// SPDX-License-Identifier: Apache-2.0
// Reads and writes over a socket or TLS.
#include "security/stream.hpp"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <cerrno>

#include "base/passed_descriptors.hpp"
#include "security/tls.hpp"

namespace thalweg::impl {
namespace {

IoResult tls_result(SSL* tls, int returned, size_t bytes) {
  if (returned == 1) return {IoState::moved, bytes, 0};
  const int saved = errno;
  switch (SSL_get_error(tls, returned)) {
    case SSL_ERROR_WANT_READ:
      return {IoState::want_read};
    case SSL_ERROR_WANT_WRITE:
      return {IoState::want_write};
    case SSL_ERROR_ZERO_RETURN:
      return {IoState::end};
    case SSL_ERROR_SYSCALL:
      return saved == 0 ? IoResult{IoState::end} : IoResult{IoState::error, 0, saved};
    default:
      // A socket that ends without TLS's own goodbye is an end like any other: messages carry their lengths.
      if (ERR_GET_REASON(ERR_peek_error()) == SSL_R_UNEXPECTED_EOF_WHILE_READING) return {IoState::end};
      return {IoState::error, 0, 0};
  }
}

IoResult plain_result(ssize_t n, IoState want) {
  if (n > 0) return {IoState::moved, size_t(n), 0};
  if (n == 0) return {IoState::end};
  if (errno == EAGAIN || errno == EWOULDBLOCK) return {want};
  return {IoState::error, 0, errno};
}

}  // namespace

IoResult stream_read(int fd, SSL* tls, void* buffer, size_t n) {
  if (tls) {
    size_t bytes = 0;
    ERR_clear_error();
    errno = 0;
    const int returned = SSL_read_ex(tls, buffer, n, &bytes);
    return tls_result(tls, returned, bytes);
  }
  const iovec place{buffer, n};
  return plain_result(receive_passed(fd, &place, 1, nullptr), IoState::want_read);
}

IoResult stream_write(int fd, SSL* tls, const void* buffer, size_t n) {
  if (tls) {
    size_t bytes = 0;
    ERR_clear_error();
    errno = 0;
    const int returned = SSL_write_ex(tls, buffer, n, &bytes);
    if (returned == 1) count_record(tls);
    return tls_result(tls, returned, bytes);
  }
  ssize_t sent;
  do sent = send(fd, buffer, n, MSG_DONTWAIT | MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  return plain_result(sent, IoState::want_write);
}

}  // namespace thalweg::impl
