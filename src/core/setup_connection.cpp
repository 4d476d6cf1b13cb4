// SPDX-License-Identifier: Apache-2.0
// Sockets during set-up: connect, authenticate, exchange messages.
#include "core/setup_connection.hpp"

#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>

#include "base/platform/process.hpp"

namespace thalweg::impl {

SetupConnection::~SetupConnection() { abandon(); }

Status SetupConnection::open(const SocketAddress& address, bool tls, const DialTarget& target) {
  role_ = Role::client;
  target_ = target;
  unix_ = !address.internet();
  tls_ = tls && !unix_;
  address_ = address;
  const Status status = start_connect(address, &socket_);
  if (is_error(status)) return status;
  connecting_ = true;
  return watch(EPOLLOUT);
}

Status SetupConnection::adopt(UniqueFd socket, bool tls, Handshake::Here here) {
  role_ = Role::server;
  here_ = std::move(here);
  tls_ = tls;
  socket_ = std::move(socket);
  learn_peer();
  recognising_ = true;
  return watch(EPOLLIN);
}

void SetupConnection::learn_peer() {
  if (role_ == Role::server && !is_error(peer_address(socket_.get(), &address_))) unix_ = !address_.internet();
  if (unix_) {
    pid_ = peer_pid(socket_.get());
  } else {
    const int on = 1;
    setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
}

Status SetupConnection::watch(uint32_t events) {
  watched_ = socket_.get();
  events_ = events;
  auto self = shared_from_this();
  const Status status = loop_.add(watched_, events, [self](uint32_t ready) { self->ready(ready); });
  if (is_error(status)) {
    watched_ = -1;
    abandon();
  }
  return status;
}

void SetupConnection::want(uint32_t events) {
  if (over_ || events == events_) return;
  events_ = events;
  loop_.modify(watched_, events);
}

void SetupConnection::abandon() {
  over_ = true;
  written_ = nullptr;
  if (watched_ >= 0) {
    const int fd = watched_;
    watched_ = -1;
    loop_.remove(fd);
  }
  channel_.reset();
  handshake_.reset();
  socket_.reset();
}

void SetupConnection::broken(Status status, Refusal refusal, const std::string& why) {
  if (over_) return;
  auto self = shared_from_this();
  abandon();
  user_->on_broken(*this, status, refusal, why);
}

void SetupConnection::ready(uint32_t) {
  auto self = shared_from_this();
  if (over_) return;
  if (connecting_) return connected();
  if (recognising_) return recognise();
  if (channel_ == nullptr) return handshake();
  push();
  if (!over_) read_messages();
}

void SetupConnection::connected() {
  const Status status = finish_connect(socket_.get(), address_);
  if (status == TW_IN_PROGRESS) return;
  if (is_error(status)) return broken(status, Refusal::none, last_error());
  connecting_ = false;
  if (unix_) {  // the path may lie where others can write
    const uid_t uid = peer_uid(socket_.get());
    if (uid != geteuid() && uid != 0)
      return broken(TW_ERR_PERMISSION, Refusal::none,
                    "user " + std::to_string(uid) + " listens at " + address_.text() +
                        ", not this one: remove that socket, or set THALWEG_SOCKET_DIR to a directory of this user's");
  }
  learn_peer();
  if (target_.purpose != Purpose::worker) target_ = DialTarget::dialled(target_.purpose, socket_.get(), address_);
  handshake_ = std::make_unique<Handshake>(key_, 0, tls_, target_);
  handshake();
}

void SetupConnection::recognise() {
  const Opening opening = look_at_opening(socket_.get());
  if (opening == Opening::wait) return;
  if (opening == Opening::closed) return broken(TW_ERR_CLOSED, Refusal::closed, "closed before it said anything");
  if (tls_ && !unix_ && opening != Opening::tls) {
    return broken(TW_ERR_AUTHENTICATION, Refusal::authentication, "came without TLS, which this context demands");
  }
  recognising_ = false;
  handshake_ = std::make_unique<Handshake>(key_, 0, opening == Opening::tls && !unix_, std::move(here_));
  handshake();
}

void SetupConnection::handshake() {
  switch (handshake_->advance(socket_.get())) {
    case Handshake::Want::read:
      return want(EPOLLIN);
    case Handshake::Want::write:
      return want(EPOLLOUT);
    case Handshake::Want::failed:
      return broken(handshake_->status(), handshake_->refusal(), last_error());
    case Handshake::Want::done:
      break;
  }
  SSL* tls = handshake_->take_tls();
  target_ = handshake_->target();
  channel_ = std::make_unique<SetupChannel>(std::move(socket_), tls, handshake_->session());
  handshake_.reset();
  want(EPOLLIN);
  user_->on_authenticated(*this);
  if (!over_) read_messages();
}

void SetupConnection::push() {
  const Status status = channel_->flush();
  if (status == TW_ERR_NO_DESCRIPTORS) return broken(status, Refusal::none, last_error());
  if (is_error(status)) return broken(TW_ERR_PEER_LOST, Refusal::none, "the other side closed during connection set-up");
  if (status == TW_IN_PROGRESS) return want(EPOLLIN | EPOLLOUT);
  want(EPOLLIN);
  if (written_) {
    auto then = std::move(written_);
    written_ = nullptr;
    then();
  }
}

void SetupConnection::push_then(std::function<void()> then) {
  written_ = std::move(then);
  push();
}

void SetupConnection::read_messages() {
  while (!over_) {
    SetupChannel::Message message;
    const Status status = channel_->receive(&message);
    if (status == TW_IN_PROGRESS) return;
    if (status == TW_ERR_CLOSED)
      return broken(TW_ERR_PEER_LOST, Refusal::closed, "the other side closed during connection set-up");
    if (status == TW_ERR_AUTHENTICATION) return broken(status, Refusal::integrity, last_error());
    if (status == TW_ERR_NO_DESCRIPTORS) return broken(status, Refusal::none, last_error());
    if (is_error(status)) return broken(status, Refusal::malformed, last_error());
    user_->on_message(*this, std::move(message));
  }
}

void SetupConnection::release(LinkInit* init) {
  over_ = true;
  written_ = nullptr;
  const int fd = watched_;
  watched_ = -1;
  loop_.remove(fd);
  init->session = channel_->session();
  init->tls = channel_->take_tls();
  init->socket = channel_->take_socket();
}

}  // namespace thalweg::impl
