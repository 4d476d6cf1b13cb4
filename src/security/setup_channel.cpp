// SPDX-License-Identifier: Apache-2.0
// Bounded messages over an authenticated socket. Reads are sized exactly, so that what follows a message stays in the
// socket.
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <iterator>
#include <span>
#include <utility>

#include "base/passed_descriptors.hpp"
#include "base/platform/fork.hpp"
#include "base/sockets.hpp"
#include "security/handshake.hpp"
#include "security/handshake_wire.hpp"
#include "security/stream.hpp"

namespace thalweg::impl {
namespace {

using handshake_wire::SetupHeader;

constexpr size_t kQueueMax = 1u << 20;  // bytes waiting for a peer that does not read, beyond one message
constexpr size_t kGrowth = 64u << 10;   // an announced length allocates nothing until the bytes arrive
constexpr size_t kMac = sizeof(Session::Key);

struct Outgoing {
  std::vector<std::byte> bytes;    // header, body and mac
  SetupChannel::SharedBytes rest;  // of the body: before the mac
  std::vector<UniqueFd> fds;       // travel with the first byte
  size_t done = 0;

  size_t size() const { return bytes.size() + (rest ? rest->size() : 0); }
  /// What can be written next, as one piece.
  std::span<const std::byte> left() const {
    const std::span<const std::byte> own(bytes);
    if (!rest) return own.subspan(done);
    const size_t before = bytes.size() - kMac, behind = before + rest->size();
    if (done < before) return own.subspan(done, before - done);
    return done < behind ? std::span<const std::byte>(*rest).subspan(done - before) : own.subspan(done - rest->size());
  }
};

// A control buffer of the right alignment for kMaxFds descriptors.
union Control {
  cmsghdr align;
  char bytes[CMSG_SPACE(SetupChannel::kMaxFds * sizeof(int))];
};

IoResult send_with_fds(int socket, std::span<const std::byte> bytes, const std::vector<UniqueFd>& fds) {
  iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
  Control control{};
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  header.msg_control = control.bytes;
  header.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
  cmsghdr* ancillary = CMSG_FIRSTHDR(&header);
  ancillary->cmsg_level = SOL_SOCKET;
  ancillary->cmsg_type = SCM_RIGHTS;
  ancillary->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
  for (size_t i = 0; i < fds.size(); ++i) {
    const int fd = fds[i].get();
    std::memcpy(CMSG_DATA(ancillary) + i * sizeof(int), &fd, sizeof fd);
  }
  ssize_t sent;
  do sent = sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  if (sent > 0) return {IoState::moved, size_t(sent), 0};
  if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return {IoState::want_write};
  return {IoState::error, 0, sent < 0 ? errno : EPIPE};
}

enum class Came { whole, too_many, foreign, without };

/// Every received descriptor is owned at once, wanted or not. The kernel drops some where this process is out of them.
IoResult read_with_fds(int socket, void* buffer, size_t n, std::vector<UniqueFd>* fds, Came* came) {
  const iovec piece{buffer, n};
  Passed passed;
  const ssize_t got = receive_passed(socket, &piece, 1, &passed);
  if (got < 0)
    return errno == EAGAIN || errno == EWOULDBLOCK ? IoResult{IoState::want_read} : IoResult{IoState::error, 0, errno};
  std::move(passed.fds.begin(), passed.fds.end(), std::back_inserter(*fds));
  if (fds->size() > SetupChannel::kMaxFds)
    *came = Came::too_many;
  else if (passed.refused != 0)
    *came = Came::foreign;
  else if (passed.cut)
    *came = Came::without;
  return got > 0 ? IoResult{IoState::moved, size_t(got), 0} : IoResult{IoState::end};
}

}  // namespace

struct SetupChannel::State {
  BornHere born;
  UniqueFd socket;
  SSL* tls = nullptr;
  Session session;
  size_t max = kMax;
  bool passes_fds = false;
  Status broken = TW_OK;  // a protocol error is for ever

  std::deque<Outgoing> out;
  size_t queued = 0;

  SetupHeader header{};
  size_t header_done = 0;
  std::vector<std::byte> body;  // and the mac
  size_t body_done = 0;
  std::vector<UniqueFd> fds;
  bool without = false;  // this process was out of descriptors for those of the message

  Status read_some(void* buffer, size_t n, size_t* done);
  Status ended(const IoResult& result);
  Status check_header();
  Status check_mac();
  Status check_fds();
};

Status SetupChannel::State::ended(const IoResult& result) {
  if (result.state == IoState::end && header_done == 0) return fail(TW_ERR_CLOSED, "the peer closed the set-up connection");
  if (result.state == IoState::end) return fail(TW_ERR_PEER_LOST, "the peer ended in the middle of a set-up message");
  if (result.error == 0) return broken = fail(TW_ERR_PROTOCOL, "the TLS stream of the set-up connection is damaged");
  return fail_errno(result.error, "set-up connection");
}

Status SetupChannel::State::read_some(void* buffer, size_t n, size_t* done) {
  Came came = Came::whole;
  auto* at = static_cast<std::byte*>(buffer) + *done;
  const IoResult result =
      passes_fds ? read_with_fds(socket.get(), at, n - *done, &fds, &came) : stream_read(socket.get(), tls, at, n - *done);
  without |= came == Came::without;
  if (came == Came::too_many) {
    fds.clear();
    return broken =
               fail(TW_ERR_PROTOCOL, "the peer sent more descriptors than the %zu that a set-up message may carry", kMaxFds);
  }
  if (came == Came::foreign) {
    fds.clear();
    return broken =
               fail(TW_ERR_PROTOCOL, "the peer sent a descriptor that is neither memory, a device's nor a unix stream socket");
  }
  // want_write: TLS itself has something to send first; the same readiness callback follows.
  if (result.state == IoState::want_read || result.state == IoState::want_write) return TW_IN_PROGRESS;
  if (result.state != IoState::moved) return ended(result);
  *done += result.bytes;
  return TW_OK;
}

Status SetupChannel::State::check_header() {
  if (header.length > max) {
    return broken = fail(TW_ERR_PROTOCOL, "the peer announced a set-up message of %u bytes; at most %zu are allowed",
                         header.length, max);
  }
  if (header.fds > kMaxFds || (header.fds != 0 && !passes_fds)) {
    return broken = fail(TW_ERR_PROTOCOL, "the peer announced %u descriptors where they cannot travel", unsigned(header.fds));
  }
  return TW_OK;
}

/// Takes the mac off the body.
Status SetupChannel::State::check_mac() {
  const std::span<const std::byte> text(body.data(), header.length);
  const std::span<const std::byte> pieces[] = {std::as_bytes(std::span(&header, 1)), text};
  const Session::Key expected = authenticate(session.receive, pieces);
  if (CRYPTO_memcmp(expected.data(), body.data() + header.length, kMac) != 0 || header.counter != session.received) {
    return broken = fail(TW_ERR_AUTHENTICATION,
                         "a message was changed, repeated or left out on its way from the peer (%s): the connection is closed; "
                         "use TLS on networks that you do not trust",
                         header.counter != session.received ? "counter" : "mac");
  }
  ++session.received;
  body.resize(header.length);
  return TW_OK;
}

/// Of a message that is right otherwise.
Status SetupChannel::State::check_fds() {
  if (std::exchange(without, false)) {
    fds.clear();
    return fail(TW_ERR_NO_DESCRIPTORS,
                "this process has no descriptor left for what the peer sent; raise the limit (ulimit -n) or close endpoints");
  }
  if (fds.size() == header.fds) return TW_OK;
  fds.clear();
  return fail(TW_ERR_PROTOCOL, "a set-up message came without its descriptors, or with others'");
}

SetupChannel::SetupChannel(UniqueFd socket, SSL* tls, const Session& session, size_t max) : state_(std::make_unique<State>()) {
  state_->session = session;
  state_->max = max;
  state_->passes_fds = !tls && is_unix_socket(socket.get());
  state_->socket = std::move(socket);
  state_->tls = tls;
}

SetupChannel::~SetupChannel() {
  if (state_->passes_fds && state_->socket && !state_->born.forked()) drop_passed(state_->socket.get());
  SSL_free(state_->tls);
}

Status SetupChannel::queue(uint16_t type, const void* bytes, size_t length, const int* fds, size_t fd_count) {
  if (fd_count > kMaxFds) return fail(TW_ERR_LIMIT, "%zu descriptors in a set-up message; at most %zu", fd_count, kMaxFds);
  std::vector<UniqueFd> copies;
  for (size_t i = 0; i < fd_count; ++i) {
    copies.emplace_back(fcntl(fds[i], F_DUPFD_CLOEXEC, 0));
    if (!copies.back()) return fail_errno(errno, "duplicating a descriptor for the peer");
  }
  return queue(type, bytes, length, std::move(copies));
}

Status SetupChannel::queue(uint16_t type, const void* bytes, size_t length, std::vector<UniqueFd>&& fds, SharedBytes rest) {
  State& s = *state_;
  const size_t all = length + (rest ? rest->size() : 0);
  if (all > s.max) return fail(TW_ERR_LIMIT, "a set-up message of %zu bytes; at most %zu are allowed", all, s.max);
  if (fds.size() > kMaxFds) return fail(TW_ERR_LIMIT, "%zu descriptors in a set-up message; at most %zu", fds.size(), kMaxFds);
  if (!fds.empty() && !s.passes_fds) {
    return fail(TW_ERR_UNSUPPORTED, "descriptors travel over unix sockets without TLS only");
  }
  if (s.queued != 0 && s.queued + all > kQueueMax)
    return fail(TW_ERR_LIMIT, "the peer has not read %zu bytes of set-up messages", s.queued);
  Outgoing message;
  message.fds = std::move(fds);
  message.rest = std::move(rest);
  const SetupHeader header{uint32_t(all), type, uint16_t(message.fds.size()), s.session.sent++};
  message.bytes.resize(sizeof header + length + kMac);
  std::memcpy(message.bytes.data(), &header, sizeof header);
  if (length) std::memcpy(message.bytes.data() + sizeof header, bytes, length);
  const std::span<const std::byte> text(message.bytes.data(), sizeof header + length);
  const std::span<const std::byte> pieces[] = {text, message.rest ? std::span(*message.rest) : std::span<const std::byte>()};
  const Session::Key mac = authenticate(s.session.send, pieces);
  std::memcpy(message.bytes.data() + text.size(), mac.data(), kMac);
  s.queued += message.size();
  s.out.push_back(std::move(message));
  return TW_OK;
}

Status SetupChannel::flush() {
  State& s = *state_;
  if (is_error(s.broken)) return s.broken;
  while (!s.out.empty()) {
    Outgoing& message = s.out.front();
    while (message.done < message.size()) {
      const bool with_fds = message.done == 0 && !message.fds.empty();
      const std::span<const std::byte> left = message.left();
      const IoResult result = with_fds ? send_with_fds(s.socket.get(), left, message.fds)
                                       : stream_write(s.socket.get(), s.tls, left.data(), left.size());
      if (result.state == IoState::want_read || result.state == IoState::want_write) return TW_IN_PROGRESS;
      if (result.state == IoState::error && result.error == ETOOMANYREFS) {
        return fail(TW_ERR_NO_DESCRIPTORS, "too many descriptors are on their way between processes; raise ulimit -n");
      }
      if (result.state != IoState::moved) return fail_errno(result.error ? result.error : EPIPE, "set-up connection");
      message.done += result.bytes;
    }
    s.queued -= message.size();
    s.out.pop_front();
  }
  return TW_OK;
}

Status SetupChannel::receive(Message* out) {
  State& s = *state_;
  if (is_error(s.broken)) return s.broken;
  while (s.header_done < sizeof s.header) {
    if (const Status status = s.read_some(&s.header, sizeof s.header, &s.header_done); status != TW_OK) return status;
    if (s.header_done < sizeof s.header) continue;
    if (const Status status = s.check_header(); status != TW_OK) return status;
    s.body_done = 0;
  }
  for (const size_t total = s.header.length + kMac; s.body_done < total;) {
    s.body.resize(std::min(total, s.body_done + kGrowth));
    if (const Status status = s.read_some(s.body.data(), s.body.size(), &s.body_done); status != TW_OK) return status;
  }
  s.header_done = 0;
  if (const Status status = s.check_mac(); status != TW_OK) {
    s.fds.clear();
    return status;
  }
  const Status fds = s.check_fds();
  if (is_error(fds) && fds != TW_ERR_NO_DESCRIPTORS) return s.broken = fds;
  out->type = s.header.type;
  out->bytes = std::move(s.body);
  out->fds = std::move(s.fds);
  s.body.clear();
  s.fds.clear();
  return fds;
}

bool SetupChannel::all_written() const { return state_->out.empty(); }

int SetupChannel::fd() const { return state_->socket.get(); }

const Session& SetupChannel::session() const { return state_->session; }

UniqueFd SetupChannel::take_socket() { return std::move(state_->socket); }

SSL* SetupChannel::take_tls() {
  SSL* tls = state_->tls;
  state_->tls = nullptr;
  return tls;
}

}  // namespace thalweg::impl
