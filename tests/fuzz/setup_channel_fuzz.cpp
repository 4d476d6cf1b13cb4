// SPDX-License-Identifier: Apache-2.0
// Set-up messages from a hostile peer over a unix socket: arbitrary bytes in arbitrary pieces, or arbitrary messages with the right
// MAC, both with arbitrary descriptors. What comes out keeps the documented limits, and no descriptor is left behind.
#include <fcntl.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "security/handshake.hpp"
#include "security/handshake_wire.hpp"

using namespace thalweg::impl;

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

/// No unix socket: the kernel would look for rings of sockets that hold each other, and senders wait for that.
int passed_descriptor() {
  static const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  return fd;
}

void send_piece(int socket, std::span<const uint8_t> bytes, size_t fds) {
  const int passed = passed_descriptor();
  alignas(cmsghdr) char control[CMSG_SPACE(16 * sizeof(int))] = {};
  iovec piece{const_cast<uint8_t*>(bytes.data()), bytes.size()};
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  if (fds) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(fds * sizeof(int));
    cmsghdr* c = CMSG_FIRSTHDR(&header);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fds * sizeof(int));
    for (size_t i = 0; i < fds; ++i) std::memcpy(CMSG_DATA(c) + i * sizeof(int), &passed, sizeof passed);
  }
  sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
}

// Receives until nothing more comes. False when the channel has ended.
bool drain(SetupChannel& channel) {
  for (;;) {
    SetupChannel::Message message;
    const Status status = channel.receive(&message);
    if (status == TW_IN_PROGRESS) return true;
    if (is_error(status)) {
      require(message.fds.empty());
      return false;
    }
    require(message.bytes.size() <= SetupChannel::kMax && message.fds.size() <= SetupChannel::kMaxFds);
    for (const UniqueFd& fd : message.fds) require(fcntl(fd.get(), F_GETFD) >= 0);
  }
}

int any_descriptor() { return fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0); }

int lowest_free_descriptor() {
  const int fd = any_descriptor();
  require(fd >= 0);
  close(fd);
  return fd;
}

/// HMAC-SHA256 with the key of a fresh session, all zeros: the library's own makes its context anew for every message.
void append_mac(std::vector<uint8_t>& message) {
  static EVP_MAC_CTX* const context = [] {
    EVP_MAC* const hmac = EVP_MAC_fetch(nullptr, "HMAC", nullptr);
    EVP_MAC_CTX* const made = EVP_MAC_CTX_new(hmac);
    EVP_MAC_free(hmac);
    char digest[] = "SHA256";
    const OSSL_PARAM parameters[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
                                     OSSL_PARAM_construct_end()};
    constexpr unsigned char kKey[sizeof(Session::Key)] = {};
    require(EVP_MAC_init(made, kKey, sizeof kKey, parameters) == 1);
    return made;
  }();
  const size_t length = message.size();
  size_t size = 0;
  message.resize(length + sizeof(Session::Key));
  require(EVP_MAC_init(context, nullptr, 0, nullptr) == 1 && EVP_MAC_update(context, message.data(), length) == 1 &&
          EVP_MAC_final(context, message.data() + length, &size, sizeof(Session::Key)) == 1 && size == sizeof(Session::Key));
}

/// The header says as many descriptors as `claimed`.
void send_signed(int socket, uint64_t counter, std::span<const uint8_t> bytes, size_t claimed, size_t fds) {
  const handshake_wire::SetupHeader header{uint32_t(bytes.size()), bytes.empty() ? uint16_t(0) : uint16_t(bytes[0]),
                                           uint16_t(claimed), counter};
  std::vector<uint8_t> message;
  message.reserve(sizeof header + bytes.size() + sizeof(Session::Key));
  message.resize(sizeof header);
  std::memcpy(message.data(), &header, sizeof header);
  message.insert(message.end(), bytes.begin(), bytes.end());
  append_mac(message);
  send_piece(socket, message, fds);
}

}  // namespace

// Input: 1 byte: even: pieces as they are, odd: pieces as messages with their MAC. Then pieces of {1 byte: low 6 bits length, 2 more:
// 0 none, 1 one, 2 eight, 3 nine descriptors (eight and nine only with one length of eight, otherwise one: they take long)}, bytes;
// behind a piece whose first byte is odd the next one comes before anybody looks.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const bool with_mac = data[0] & 1;
  ++data;
  --size;
  require(passed_descriptor() >= 0);
  const int before = lowest_free_descriptor();
  {
    int ends[2];
    require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    const UniqueFd peer(ends[0]);
    SetupChannel channel(UniqueFd(ends[1]), nullptr, Session{});
    uint64_t counter = 0;
    constexpr size_t counts[] = {0, 1, 8, 9}, few[] = {0, 1, 1, 1};
    bool alive = true;
    while (size > 1 && alive) {
      const size_t n = std::min<size_t>(size - 1, 1 + data[0] % 64);
      const size_t fds = (data[0] % 8 == 7 ? counts : few)[data[0] >> 6];
      if (with_mac) {
        send_signed(peer.get(), counter++, {data + 1, n}, data[1] % 10 == 0 ? 0 : fds, fds);
      } else {
        send_piece(peer.get(), {data + 1, n}, fds);
      }
      const bool more = data[1] % 2 != 0;  // the next piece comes before anybody looks
      data += 1 + n;
      size -= 1 + n;
      if (!more) alive = drain(channel);
    }
    shutdown(peer.get(), SHUT_RDWR);
    if (alive) require(!drain(channel));
  }
  require(lowest_free_descriptor() == before);
  return 0;
}
