// SPDX-License-Identifier: Apache-2.0
// Outgoing connections.
#include "core/connector.hpp"

#include <algorithm>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/platform/process.hpp"
#include "core/context.hpp"
#include "core/worker.hpp"

namespace thalweg::impl {
namespace {

constexpr uint64_t kRetryNs = 20 * kMillisecond;
/// A full listener drops the longest pending connection; dropped clients retry with back-off, for some 3 s in all.
constexpr unsigned kMaxTurnedAway = 12, kLongestWait = 4;  // kRetryNs << kLongestWait

}  // namespace

Connector::~Connector() { end(); }

void Connector::end() {
  if (committed_ && !over_ && by_address() && plan_.worker->directory.dropped(plan_.message.target, plan_.message.token)) {
    ConnectionEvent event;
    event.kind = ConnectionEvent::Kind::retry;
    event.peer = plan_.message.target;
    plan_.worker->inbox.post(std::move(event));
  }
  over_ = true;
  EventLoop& loop = setup_.context().loop;
  if (deadline_timer_ != 0) loop.cancel(deadline_timer_);
  if (retry_timer_ != 0) loop.cancel(retry_timer_);
  deadline_timer_ = retry_timer_ = 0;
  if (connection_) connection_->abandon();
  if (upgrade_) upgrade_->abandon();
}

void Connector::start() {
  begin_time();
  next_candidate();
}

void Connector::await_candidates() {
  last_text_ = "its name has not been looked up yet";
  begin_time();
}

void Connector::start(std::vector<SocketAddress> candidates) {
  last_text_.clear();
  plan_.candidates = std::move(candidates);
  next_candidate();
}

void Connector::begin_time() {
  const uint64_t left_ns = plan_.timeout_ns - std::min(plan_.timeout_ns, plan_.waited_ns);
  deadline_timer_ = setup_.context().loop.after(left_ns, [this] {
    deadline_timer_ = 0;
    failed(TW_ERR_TIMED_OUT, "not connected within " + std::to_string(plan_.timeout_ns / kMillisecond) + " ms" +
                                 (last_text_.empty() ? std::string() : ": " + last_text_));
  });
}

void Connector::next_candidate() {
  tw_context& context = setup_.context();
  while (next_ < plan_.candidates.size()) {
    const SocketAddress& candidate = plan_.candidates[next_++];
    connection_ = std::make_shared<SetupConnection>(context.loop, context.key, this);
    const ConnectMessage& message = plan_.message;
    const DialTarget target =
        by_address() ? DialTarget::of_worker(message.target, message.target_incarnation) : DialTarget{Purpose::listener, {}};
    const Status status = connection_->open(candidate, plan_.tls, target);
    if (!is_error(status)) return;
    last_status_ = status;
    last_text_ = last_error();
  }
  if (plan_.candidates.empty()) last_text_ = "no transport in common, or the peer's sockets are out of reach";
  failed(last_status_, last_text_);
}

void Connector::retry(uint64_t after_ns) {
  if (connection_) connection_->abandon();
  retry_timer_ = setup_.context().loop.after(after_ns, [this] {
    retry_timer_ = 0;
    next_ = 0;
    plan_.message.token = random_id();
    next_candidate();
  });
}

void Connector::failed(Status status, const std::string& why, std::vector<std::byte> data) {
  if (over_) return;
  auto self = shared_from_this();
  over_ = true;  // the failure is reported, to the directory too
  end();
  ConnectionEvent event;
  event.kind = ConnectionEvent::Kind::failed;
  event.key = plan_.key;
  event.token = committed_ ? plan_.message.token : 0;
  event.status = status;
  event.text = why;
  event.data = std::move(data);
  plan_.worker->inbox.post(std::move(event));
  setup_.end_connector(plan_.key);
}

bool Connector::wants(const std::string& transport) const { return plan_.transport.empty() || plan_.transport == transport; }

/// Could a transport of one machine be used, which needs a unix socket?
bool Connector::wants_local() const {
  return setup_.context().usable(&TransportTraits::passes_descriptors, plan_.transport) != nullptr;
}

void Connector::make_offers(const SetupConnection& from, const PeerIdentity& peer, std::vector<Offer>* offers) {
  offers->clear();
  for (const TransportSlot& slot : setup_.context().transports) {
    const TransportTraits traits = slot.transport->traits();
    if (!wants(slot.name) || traits.to_itself || (traits.passes_descriptors && !from.is_unix())) continue;
    Port* port = plan_.worker->port(slot.name);
    if (port == nullptr) continue;
    Offer offer;
    offer.transport = slot.name;
    if (is_error(port->offer(peer, offer.message))) {
      last_text_ = slot.name + ": " + last_error();
      warn_once(slot.name.c_str(), "no connection by " + last_text_);
      continue;
    }
    offers->push_back(std::move(offer));
  }
}

void Connector::on_authenticated(SetupConnection& from) {
  auto self = shared_from_this();
  const bool upgrading = &from == upgrade_.get();
  ConnectMessage& message = plan_.message;
  PeerIdentity peer;
  if (upgrading) {
    peer = identify(accept_.worker, accept_.incarnation, accept_.host, from.pid());
  } else if (by_address()) {
    peer = identify(message.target, message.target_incarnation, plan_.target_host, from.pid());
  } else {
    peer.host = from.is_unix() ? setup_.context().host : 0;
    peer.pid = from.pid();
  }
  std::vector<Offer>& mine = upgrading ? upgrade_offers_ : offers_;
  make_offers(from, peer, &mine);
  message.ticket = upgrading ? accept_.ticket : 0;
  message.shared_memory = wants_local();
  message.offers = std::move(mine);
  const Status status = queue_connect(from.channel(), message, plan_.worker->identity);
  mine = std::move(message.offers);
  message.offers.clear();
  if (is_error(status)) {
    from.abandon();
    return on_broken(from, status, Refusal::none, last_error());
  }
  from.push();
}

void Connector::on_message(SetupConnection& from, SetupChannel::Message&& message) {
  auto self = shared_from_this();
  if (over_) return;
  if (!committed_ && message.type == uint16_t(SetupType::accept)) return accepted(from, std::move(message));
  if (!committed_ && message.type == uint16_t(SetupType::reject)) return rejected(from, std::move(message));
  from.abandon();
  on_broken(from, TW_ERR_PROTOCOL, Refusal::malformed, "the other side sent an unexpected message during connection set-up");
}

void Connector::rejected(SetupConnection& from, SetupChannel::Message&& message) {
  RejectMessage reject;
  if (is_error(parse_reject(std::move(message), &reject))) return failed(TW_ERR_PROTOCOL, last_error());
  if (&from == upgrade_.get()) return upgrade_failed(reject.text);
  // Superseded: the other side's attempt wins and ends this one. Should that one break, this one tries again.
  if (reject.kind == RejectKind::superseded) return retry(kRetryNs);
  failed(reject.status, reject.text, std::move(reject.data));
}

void Connector::accepted(SetupConnection& from, SetupChannel::Message&& message) {
  AcceptMessage accept;
  const Status status = parse_accept(from.channel().session(), std::move(message), plan_.message.worker, &accept);
  if (status == TW_ERR_AUTHENTICATION) return impostor(from, last_error());
  if (is_error(status)) return failed(TW_ERR_PROTOCOL, last_error());
  if (!is_meant(from, accept)) return impostor(from, "another worker answered than the one that was dialled");
  if (&from == upgrade_.get()) {
    accept_.answer = std::move(accept.answer);
    if (connection_) connection_->abandon();
    return confirm(from);
  }
  accept_ = std::move(accept);
  if (accept_.ticket != 0 && plan_.message.shared_memory && begin_upgrade()) return;
  confirm(from);
}

/// Is it the worker of the address, or, on the way to shared memory, the one that accepted first? A listener's may be any.
bool Connector::is_meant(const SetupConnection& from, const AcceptMessage& accept) const {
  if (&from == upgrade_.get()) return accept.worker == accept_.worker && accept.incarnation == accept_.incarnation;
  const ConnectMessage& mine = plan_.message;
  return !by_address() || (accept.worker == mine.target && accept.incarnation == mine.target_incarnation);
}

/// The peer has the job key but is not the worker it claims to be, or not the one dialled, which may be at the next
/// candidate.
void Connector::impostor(SetupConnection& from, const std::string& why) {
  setup_.refused(Refusal::identity, from.peer_text() + ": " + why);
  from.abandon();
  if (&from == upgrade_.get()) return upgrade_failed(why);
  last_status_ = TW_ERR_AUTHENTICATION;
  last_text_ = why;
  next_candidate();
}

bool Connector::begin_upgrade() {
  WorkerAddress address;
  SocketAddress candidate;
  if (is_error(parse_address(accept_.address.data(), accept_.address.size(), &address)) ||
      address.host != setup_.context().host || !setup_.unix_candidate(address.token, &candidate)) {
    return false;
  }
  tw_context& context = setup_.context();
  upgrade_ = std::make_shared<SetupConnection>(context.loop, context.key, this);
  if (is_error(upgrade_->open(candidate, false, DialTarget::of_worker(accept_.worker, accept_.incarnation)))) {
    upgrade_failed(last_error());
  }
  return true;
}

void Connector::upgrade_failed(const std::string& why) {
  if (upgrade_) upgrade_->abandon();
  if (connection_->over()) return failed(TW_ERR_PEER_LOST, "the connection broke while shared memory was set up (" + why + ")");
  if (accept_.answer.transport.empty()) {
    return failed(TW_ERR_UNREACHABLE, "shared memory cannot be set up (" + why + ") and " +
                                          setup_.context().names_of(&TransportTraits::over_network) + " was not offered");
  }
  const std::string text = "TCP inside one host: the peer is on this machine, but shared memory could not be set up (" + why +
                           "). Give both processes one socket directory (THALWEG_SOCKET_DIR)";
  warn_once("tcp-inside-host", text);
  plan_.note = text;
  confirm(*connection_);
}

void Connector::confirm(SetupConnection& from) {
  const std::vector<Offer>& mine = &from == upgrade_.get() ? upgrade_offers_ : offers_;
  bool offered = false;
  for (const Offer& offer : mine) offered |= offer.transport == accept_.answer.transport;
  if (!offered) {
    return failed(TW_ERR_UNREACHABLE, last_text_.empty() ? "no transport in common with the listener" : last_text_);
  }
  if (by_address() && !plan_.worker->directory.won(plan_.message.target, plan_.key, plan_.message.token)) {
    from.abandon();  // the other side's attempt won meanwhile: the acceptor posts the event
    return setup_.end_connector(plan_.key);
  }
  committed_ = true;
  queue_confirm(from.channel());
  auto self = shared_from_this();
  SetupConnection* connection = &from;
  from.push_then([self, connection] { self->hand_over(*connection); });
}

void Connector::hand_over(SetupConnection& from) {
  if (over_) return;
  const bool upgraded = &from == upgrade_.get();
  ConnectionEvent event;
  event.kind = ConnectionEvent::Kind::linked;
  event.key = plan_.key;
  event.port = plan_.worker->port(accept_.answer.transport);
  if (by_address() && plan_.target_host == setup_.context().host && !from.is_unix() && plan_.transport.empty() &&
      wants_local()) {
    plan_.note = "TCP inside one host: the peer is on this machine, but its unix socket is out of reach" +
                 (last_text_.empty() ? std::string() : " (" + last_text_ + ")") +
                 ". Give both processes one socket directory (THALWEG_SOCKET_DIR)";
    warn_once("tcp-inside-host", plan_.note);
  }
  event.text = plan_.note;
  event.data = std::move(accept_.data);
  event.init.peer = identify(accept_.worker, accept_.incarnation, accept_.host, from.pid());
  event.init.initiator = true;
  for (Offer& offer : upgraded ? upgrade_offers_ : offers_) {
    if (offer.transport == accept_.answer.transport) event.init.mine = std::move(offer.message);
  }
  event.init.theirs = std::move(accept_.answer.message);
  if (by_address()) event.token = plan_.message.token;
  from.release(&event.init);
  auto self = shared_from_this();
  over_ = true;
  end();
  if (event.port != nullptr) event.port->adopt(event.init);
  plan_.worker->inbox.post(std::move(event));
  setup_.end_connector(plan_.key);
}

void Connector::on_broken(SetupConnection& from, Status status, Refusal refusal, const std::string& why) {
  if (over_) return;
  auto self = shared_from_this();
  if (refusal == Refusal::integrity) setup_.refused(refusal, from.peer_text() + ": " + why);
  if (&from == upgrade_.get() && !committed_) return upgrade_failed(why);
  if (upgrade_ && !upgrade_->over() && !committed_) return;  // the TCP connection broke; the better one continues
  // Another process of the job answers there: perhaps the address is of another network, and the worker's next one is right.
  const bool elsewhere = by_address() && (last_status_ == TW_ERR_STALE || last_status_ == TW_ERR_AUTHENTICATION);
  if (!elsewhere) last_status_ = status;
  if (!elsewhere) last_text_ = why;
  if (refusal == Refusal::target && !by_address()) return failed(status, why);
  if (refusal == Refusal::integrity) return failed(status, why);
  if (refusal == Refusal::authentication || refusal == Refusal::version) {
    const std::string source = setup_.context().key.source();
    return failed(status, why + " (own job key: " + source + ")");
  }
  if (committed_) return failed(status, why);
  if (refusal == Refusal::closed && turned_away_ < kMaxTurnedAway) {
    return retry(kRetryNs << std::min(turned_away_++, kLongestWait));
  }
  next_candidate();
}

}  // namespace thalweg::impl
