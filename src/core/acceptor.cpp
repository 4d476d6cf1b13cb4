// SPDX-License-Identifier: Apache-2.0
// Incoming connections.
#include "core/acceptor.hpp"

#include <algorithm>

#include "base/platform/process.hpp"
#include "base/sockets.hpp"
#include "core/context.hpp"
#include "core/listener.hpp"
#include "core/worker.hpp"

namespace thalweg::impl {

Acceptor::Acceptor(Setup& setup, uint64_t id, const Door& door)
    : setup_(setup), id_(id), listener_(door.listener), worker_(door.worker), known_as_(door.known_as) {}

Acceptor::~Acceptor() { end(); }

Status Acceptor::start(UniqueFd socket, bool tls) {
  tw_context& context = setup_.context();
  connection_ = std::make_shared<SetupConnection>(context.loop, context.key, this);
  start_timer(context.settings.handshake_timeout_ns);
  const int fd = socket.get();
  return connection_->adopt(std::move(socket), tls, [this, fd](const DialTarget& meant) { return is_here(meant, fd); });
}

/// Does a client that has proved the key mean what is behind this door?
bool Acceptor::is_here(const DialTarget& meant, int fd) const {
  if (listener_ == 0) {
    return meant.purpose == Purpose::worker && meant.incarnation() == setup_.context().incarnation &&
           setup_.find(meant.worker()) != nullptr;
  }
  if (std::find(known_as_.begin(), known_as_.end(), meant) != known_as_.end()) return true;
  return !is_unix_socket(fd) && meant == DialTarget::reached(Purpose::listener, fd);
}

void Acceptor::start_timer(uint64_t timeout_ns) {
  EventLoop& loop = setup_.context().loop;
  if (timer_ != 0) loop.cancel(timer_);
  timer_ = loop.after(timeout_ns, [this] {
    timer_ = 0;
    auto self = shared_from_this();
    if (connection_) connection_->abandon();
    on_broken(*connection_, TW_ERR_TIMED_OUT, Refusal::timeout, "did not finish connection set-up in time");
  });
}

void Acceptor::end() {
  state_ = State::over;
  if (timer_ != 0) setup_.context().loop.cancel(timer_);
  timer_ = 0;
  if (ticket_ != 0) setup_.withdraw_ticket(ticket_);
  ticket_ = 0;
  if (connection_) connection_->abandon();
}

void Acceptor::evict() {
  if (connection_) connection_->abandon();
  on_broken(*connection_, TW_ERR_LIMIT, Refusal::overload, "too many connections are being set up: the oldest was dropped");
}

void Acceptor::turn_away() {
  if (state_ == State::asking) reject(TW_ERR_REJECTED, RejectKind::refused, "the listener was closed");
}

void Acceptor::leave() {
  state_ = State::over;
  if (timer_ != 0) setup_.context().loop.cancel(timer_);
  timer_ = 0;
  setup_.end_acceptor(id_);
}

void Acceptor::on_broken(SetupConnection& from, Status status, Refusal refusal, const std::string& why) {
  if (state_ == State::over) return leave();  // before it had read why it was rejected
  // The client went on over the unix socket and closed this one: the claim stays until that is confirmed, or in vain.
  if (state_ == State::answered && claimed_ && refusal != Refusal::timeout) return;
  const State was = state_;
  if (was == State::stranger) {
    setup_.refused(refusal, from.peer_text() + ": " + why);
  } else if (was == State::asking) {
    setup_.dismiss(listener_);
    ConnectionEvent event;
    event.kind = ConnectionEvent::Kind::request_gone;
    event.listener = listener_;
    event.key = id_;
    worker_->inbox.post(std::move(event));
  } else {
    if (refusal == Refusal::integrity) setup_.refused(refusal, from.peer_text() + ": " + why);
    failed(status, why);
  }
  leave();
}

void Acceptor::failed(Status status, const std::string& why) {
  if (message_.target != 0) {
    if (worker_->directory.broke(message_.worker, message_.token)) {
      ConnectionEvent event;
      event.kind = ConnectionEvent::Kind::retry;
      event.peer = message_.worker;
      worker_->inbox.post(std::move(event));
    }
    return;
  }
  if (key_ == 0) return;
  ConnectionEvent event;
  event.kind = ConnectionEvent::Kind::failed;
  event.key = key_;
  event.status = status;
  event.text = why;
  worker_->inbox.post(std::move(event));
}

void Acceptor::on_message(SetupConnection& from, SetupChannel::Message&& message) {
  auto self = shared_from_this();
  if (state_ == State::stranger && message.type == uint16_t(SetupType::connect)) return connect(std::move(message));
  if (state_ == State::answered && message.type == uint16_t(SetupType::confirm)) return confirmed();
  from.abandon();
  on_broken(from, TW_ERR_PROTOCOL, Refusal::malformed, "sent an unexpected message during connection set-up");
}

void Acceptor::connect(SetupChannel::Message&& message) {
  const Status status = parse_connect(connection_->channel().session(), std::move(message), &message_);
  if (status == TW_ERR_AUTHENTICATION) return impostor(last_error());
  if (is_error(status)) {
    connection_->abandon();
    return on_broken(*connection_, TW_ERR_PROTOCOL, Refusal::malformed, last_error());
  }
  // The listening socket decides what is requested, and the handshake has proved the target that the client means.
  const DialTarget& meant = connection_->target();
  const bool by_worker = listener_ == 0 && (message_.target != 0 || message_.ticket != 0);
  if (listener_ == 0 ? !by_worker || (message_.target != 0 &&
                                      (message_.target != meant.worker() || message_.target_incarnation != meant.incarnation()))
                     : message_.target != 0 || message_.ticket != 0) {
    connection_->abandon();
    return on_broken(*connection_, TW_ERR_PROTOCOL, Refusal::target, "asks for another than it has proved to mean");
  }
  setup_.settled(id_);
  peer_ = identify(message_.worker, message_.incarnation, message_.host, connection_->pid());
  if (message_.ticket != 0) return by_ticket();
  if (message_.target != 0) return by_address();
  by_listener();
}

/// It has the job key but claims another worker's id: nothing of that id is looked up for it.
void Acceptor::impostor(const std::string& why) {
  setup_.refused(Refusal::identity, connection_->peer_text() + ": " + why);
  reject(TW_ERR_AUTHENTICATION, RejectKind::refused, why);
}

void Acceptor::by_address() {
  worker_ = setup_.find(message_.target);
  if (worker_ == nullptr || message_.target_incarnation != setup_.context().incarnation) {
    return reject(TW_ERR_STALE, RejectKind::refused,
                  "the address is of a worker that has ended: get a fresh one from the peer");
  }
  if (worker_->directory.arrived(message_.worker, message_.token, message_.previous) == Directory::Decision::superseded) {
    return reject(TW_ERR_BUSY, RejectKind::superseded, "connecting from the other side already");
  }
  Offer answer;
  std::string why;
  if (!choose("", false, &answer, &why)) {
    failed(TW_ERR_UNREACHABLE, why);
    return reject(TW_ERR_UNREACHABLE, RejectKind::refused, why);
  }
  accept(std::move(answer), {}, 0);
}

void Acceptor::by_ticket() {
  Acceptor* first = setup_.by_ticket(message_.ticket);
  if (first == nullptr || !connection_->is_unix() || first->message_.worker != message_.worker ||
      first->worker_->id != connection_->target().worker()) {
    return reject(TW_ERR_STALE, RejectKind::refused, "this ticket is not known (any more)");
  }
  worker_ = first->worker_;
  first->claimed_ = true;
  Offer answer;
  std::string why;
  if (!choose("", true, &answer, &why)) return reject(TW_ERR_UNREACHABLE, RejectKind::refused, why);
  accept(std::move(answer), {}, 0);
}

void Acceptor::by_listener() {
  if (!setup_.admit(listener_)) {
    setup_.refused(Refusal::overload, "listener backlog is full");
    return reject(TW_ERR_LIMIT, RejectKind::refused, "the listener's backlog is full: it must answer its requests");
  }
  state_ = State::asking;
  setup_.context().loop.cancel(timer_);
  timer_ = 0;
  ConnectionEvent event;
  event.kind = ConnectionEvent::Kind::request;
  event.listener = listener_;
  event.connection_request = std::make_unique<tw_connection_request>();
  tw_connection_request& request = *event.connection_request;
  request.worker = worker_;
  request.listener = listener_;
  request.acceptor = id_;
  request.data = message_.data;
  request.peer = connection_->peer_text();
  worker_->inbox.post(std::move(event));
}

/// `local`: only one that needs the unix socket.
bool Acceptor::choose(const std::string& forced, bool local, Offer* answer, std::string* why) {
  *why = "no transport in common";
  for (Offer& offer : message_.offers) {
    if (!forced.empty() && offer.transport != forced) continue;
    if (local && setup_.context().usable(&TransportTraits::passes_descriptors, offer.transport) == nullptr) continue;
    Port* port = worker_->port(offer.transport);
    if (port == nullptr) continue;
    SetupMessage mine;
    const Status status = port->answer(peer_, offer.message, mine);
    if (is_error(status)) {
      *why = offer.transport + ": " + last_error();
      continue;
    }
    port_ = port;
    theirs_ = std::move(offer.message);
    answer->transport = offer.transport;
    answer->message = std::move(mine);
    return true;
  }
  return false;
}

void Acceptor::accept(Offer&& offer, std::vector<std::byte> data, uint64_t ticket) {
  AcceptMessage message;
  message.worker = worker_->id;
  message.incarnation = setup_.context().incarnation;
  message.host = setup_.context().host;
  message.data = std::move(data);
  message.ticket = ticket;
  if (ticket != 0) {
    message.address.resize(kAddressMax);
    size_t length = message.address.size();
    write_address(worker_->address, message.address.data(), &length);
    message.address.resize(length);
  }
  message.answer = std::move(offer);
  const Status status = queue_accept(connection_->channel(), message, worker_->identity, message_.worker);
  mine_ = std::move(message.answer.message);
  state_ = State::answered;
  if (is_error(status)) {
    connection_->abandon();
    return on_broken(*connection_, status, Refusal::none, last_error());
  }
  start_timer(setup_.context().settings.handshake_timeout_ns);
  connection_->push();
}

void Acceptor::reject(Status status, RejectKind kind, const std::string& text, std::vector<std::byte> data) {
  state_ = State::over;
  const RejectMessage message{status, kind, text, std::move(data)};
  auto self = shared_from_this();
  if (is_error(queue_reject(connection_->channel(), message))) return leave();
  start_timer(setup_.context().settings.handshake_timeout_ns);
  connection_->push_then([self] { self->leave(); });
}

void Acceptor::answered(Answer&& answer) {
  if (state_ != State::asking) {
    key_ = answer.key;
    if (answer.accept) failed(TW_ERR_PEER_LOST, "the client gave up, or the listener was closed, before it was accepted");
    return;
  }
  setup_.dismiss(listener_);
  if (!answer.accept)
    return reject(TW_ERR_REJECTED, RejectKind::refused, "rejected by the listener's user", std::move(answer.data));
  key_ = answer.key;
  const bool local = !connection_->is_unix() && message_.shared_memory && message_.host == setup_.context().host &&
                     worker_->address.token != 0 &&
                     setup_.context().usable(&TransportTraits::passes_descriptors, answer.transport) != nullptr;
  Offer offer;
  std::string why;
  const bool direct = choose(answer.transport, false, &offer, &why);
  if (!direct && !local) {
    failed(TW_ERR_UNREACHABLE, why);
    return reject(TW_ERR_UNREACHABLE, RejectKind::refused, why);
  }
  if (local) {
    ticket_ = random_id();
    setup_.issue_ticket(ticket_, id_);
  }
  accept(std::move(offer), std::move(answer.data), ticket_);
}

void Acceptor::confirmed() {
  ConnectionEvent event;
  event.kind = ConnectionEvent::Kind::linked;
  if (message_.ticket != 0) {
    Acceptor* first = setup_.by_ticket(message_.ticket);
    if (first == nullptr) return on_broken(*connection_, TW_ERR_STALE, Refusal::none, "came too late");
    event.key = first->key();
    event.data = first->message_.data;
    first->pass_on();
    first->leave();
  } else if (message_.target != 0) {
    uint64_t own = 0;
    if (!worker_->directory.confirmed(message_.worker, message_.token, message_.previous, &own)) return leave();
    if (own != 0) setup_.end_connector(own);
    event.token = message_.token;
    event.data = std::move(message_.data);
  } else {
    event.key = key_;
    event.data = std::move(message_.data);
  }
  if (port_ == nullptr) return on_broken(*connection_, TW_ERR_PROTOCOL, Refusal::malformed, "confirmed what was not offered");
  event.port = port_;
  event.init.peer = peer_;
  event.init.initiator = false;
  event.init.mine = std::move(mine_);
  event.init.theirs = std::move(theirs_);
  connection_->release(&event.init);
  port_->adopt(event.init);
  worker_->inbox.post(std::move(event));
  leave();
}

}  // namespace thalweg::impl
