// SPDX-License-Identifier: Apache-2.0
// Plain sockets: send, recv and their gathered forms. TLS is in tls_stream.cpp.
#include "transports/tcp/socket.hpp"

#include <sys/socket.h>

#include <cerrno>

#include "base/passed_descriptors.hpp"

namespace thalweg::impl::tcp {

namespace {

size_t total(const iovec* pieces, size_t count) {
  size_t sum = 0;
  for (size_t i = 0; i < count; ++i) sum += pieces[i].iov_len;
  return sum;
}

IoResult written(ssize_t n, size_t wanted) {
  if (n < 0) return {0, errno == EWOULDBLOCK ? EAGAIN : errno, false};
  // A short write means that the socket's buffer is full: asking again would only cost a system call.
  return {static_cast<size_t>(n), static_cast<size_t>(n) < wanted ? EAGAIN : 0, false};
}

}  // namespace

IoResult Socket::receive(const iovec* places, size_t count) {
  if (tls_ != nullptr) return receive_tls(places, count);
  ssize_t n;
  do {
    if (unix_) {
      n = receive_passed(fd(), places, count, nullptr);
    } else if (count == 1) {
      n = ::recv(fd(), places[0].iov_base, places[0].iov_len, MSG_DONTWAIT);
    } else {
      msghdr message{};
      message.msg_iov = const_cast<iovec*>(places);
      message.msg_iovlen = count;
      n = ::recvmsg(fd(), &message, MSG_DONTWAIT);
    }
  } while (n < 0 && errno == EINTR);
  if (n == 0) return {0, 0, true};
  if (n < 0) return {0, errno == EWOULDBLOCK ? EAGAIN : errno, false};
  return {static_cast<size_t>(n), static_cast<size_t>(n) < total(places, count) ? EAGAIN : 0, false};
}

IoResult Socket::send(const void* bytes, size_t length) {
  if (tls_ != nullptr) {
    const iovec piece{const_cast<void*>(bytes), length};
    return send_tls(&piece, 1);
  }
  ssize_t n;
  do n = ::send(fd(), bytes, length, MSG_DONTWAIT | MSG_NOSIGNAL);
  while (n < 0 && errno == EINTR);
  return written(n, length);
}

IoResult Socket::send(const iovec* pieces, size_t count) {
  if (count == 1) return send(pieces[0].iov_base, pieces[0].iov_len);
  if (tls_ != nullptr) return send_tls(pieces, count);
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces);
  message.msg_iovlen = count;
  ssize_t n;
  do n = ::sendmsg(fd(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  while (n < 0 && errno == EINTR);
  return written(n, total(pieces, count));
}

}  // namespace thalweg::impl::tcp
