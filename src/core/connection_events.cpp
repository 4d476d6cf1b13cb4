// SPDX-License-Identifier: Apache-2.0
// The worker's side of connection set-up: it handles the connection events that the service thread posted to the inbox.
#include "base/log.hpp"
#include "base/sockets.hpp"
#include "core/worker.hpp"
#include "protocols/one_sided.hpp"

using namespace thalweg::impl;

unsigned tw_worker::read_inbox() {
  std::vector<ConnectionEvent> events = inbox.take();
  Guard guard(*engine);
  for (ConnectionEvent& one : events) take(std::move(one));
  return unsigned(events.size());
}

void tw_worker::take(ConnectionEvent&& event) {
  switch (event.kind) {
    case ConnectionEvent::Kind::linked:
      return take_link(std::move(event));
    case ConnectionEvent::Kind::request:
      return take_request(std::move(event));
    case ConnectionEvent::Kind::retry:
      return try_again(event.peer);
    case ConnectionEvent::Kind::request_gone: {
      auto at = listeners.find(event.listener);
      if (at == listeners.end()) return;
      std::erase_if(at->second->waiting, [&](const auto& request) { return request->acceptor == event.key; });
      return;
    }
    case ConnectionEvent::Kind::failed: {
      auto at = pending.find(event.key);
      if (at == pending.end()) return;
      tw_endpoint& endpoint = *at->second;
      pending.erase(at);
      endpoint.key = 0;
      endpoint.token = event.token;
      endpoint.received = std::move(event.data);
      engine->fail(*endpoint.peer, event.status, event.text);
      return;
    }
  }
}

/// An endpoint waits for a connection from the peer's attempt, or from an earlier one of ours, that failed: connects again.
void tw_worker::try_again(WorkerId peer) {
  tw_endpoint* endpoint = nullptr;
  {
    std::lock_guard lock(directory.mutex);
    auto at = directory.entries.find(peer);
    if (at != directory.entries.end() && at->second.state == Directory::State::outgoing) endpoint = at->second.endpoint;
  }
  if (endpoint != nullptr && endpoint->key == 0 && endpoint->addressed) call(*endpoint);
}

tw_endpoint* tw_worker::endpoint_of(const ConnectionEvent& event) {
  if (event.key != 0) {
    auto at = pending.find(event.key);
    if (at == pending.end()) return nullptr;
    tw_endpoint* endpoint = at->second;
    pending.erase(at);
    return endpoint;
  }
  tw_endpoint* endpoint = nullptr;
  {
    std::lock_guard lock(directory.mutex);
    auto at = directory.entries.find(event.init.peer.worker);
    if (at == directory.entries.end()) return nullptr;
    // Replaced already: the peer has ended this connection, and its next one is behind it in the inbox. What it sent by this one counts.
    const bool replaced = at->second.token != event.token;
    if (replaced && at->second.state != Directory::State::established) return nullptr;
    if (!replaced) {
      endpoint = at->second.endpoint;
      // Linked already: the peer has ended that connection and made a new one. The old one's end is on its way.
      if (endpoint != nullptr && endpoint->peer->state != TW_IN_PROGRESS) endpoint = nullptr;
      if (endpoint == nullptr) endpoint = take_waiting(event.init.peer.worker);
    }
    if (endpoint == nullptr) {
      tw_endpoint_options options = TW_ENDPOINT_OPTIONS_INIT;
      endpoint = make_endpoint(options);
      endpoint->references = 0;
      endpoint->remote = event.init.peer.worker;
    }
    if (!replaced) at->second.endpoint = endpoint;
  }
  if (endpoint->key != 0) pending.erase(endpoint->key);
  return endpoint;
}

void tw_worker::take_link(ConnectionEvent&& event) {
  tw_endpoint* endpoint = endpoint_of(event);
  if (endpoint == nullptr) {  // closed meanwhile; the event closes the socket
    if (event.token != 0 && directory.dropped(event.init.peer.worker, event.token)) try_again(event.init.peer.worker);
    return;
  }
  endpoint->key = 0;
  endpoint->token = event.token;
  endpoint->received = std::move(event.data);
  endpoint->note = std::move(event.text);
  const PeerIdentity identity = event.init.peer;
  Link* link = nullptr;
  if (endpoint->tls && event.init.tls == nullptr && event.init.socket && !is_unix_socket(event.init.socket.get())) {
    endpoint->peer->identity = identity;  // the peer's own connection attempt won
    engine->fail(*endpoint->peer, TW_ERR_AUTHENTICATION, kPlainLink);
    return;
  }
  if (!endpoint->forced.empty() && endpoint->forced != event.port->name()) {
    endpoint->peer->identity = identity;
    const std::string why = std::string("the connection with this worker came to be by ") + event.port->name() + ", not by " +
                            endpoint->forced + ": name the same transport at both sides and in every tw_connect to it";
    engine->fail(*endpoint->peer, TW_ERR_INVALID, why.c_str());
    return;
  }
  const Status status = event.port->establish(std::move(event.init), &link);
  if (is_error(status)) {
    endpoint->peer->identity = identity;
    engine->fail(*endpoint->peer, status, last_error());
    return;
  }
  link->user = &*endpoint->peer;
  endpoint->peer->connection = event.token;
  endpoint->transport = event.port->name();
  endpoint->is_protected = (link->features & kLinkProtected) != 0;
  engine->attach(*endpoint->peer, *link);
}

void tw_worker::take_request(ConnectionEvent&& event) {
  auto at = listeners.find(event.listener);
  if (at == listeners.end()) return;
  tw_listener* listener = at->second;
  if (listener->on_request == nullptr) {
    listener->waiting.push_back(std::move(event.connection_request));
    return;
  }
  requested_.emplace_back(listener, std::move(event.connection_request));
  chores_.store(true, std::memory_order_relaxed);
}

void tw_worker::tell_watches(tw_endpoint& endpoint, Status status, const char* why) {
  for (const auto& one : endpoint.watches) {
    if (const auto watch = one.lock()) watch->on_loss(status, why);
  }
  endpoint.watches.clear();
}

void tw_worker::on_lost(Peer& peer, Status why) {
  tw_endpoint* endpoint = peer.endpoint;
  if (endpoint == nullptr || endpoint->peer->engine == nullptr) return;
  unchain(*endpoint);
  for (RemoteRegion* region : endpoint->regions) {
    if (!region->held) unmap_region(*region);
  }
  tell_watches(*endpoint, why, peer.why.c_str());
  if (endpoint->remote != 0) directory.forget(endpoint->remote, endpoint, endpoint->token);
  if (endpoint->magic != tw_endpoint::kAlive) return;
  lost_.emplace_back(endpoint, why);
  chores_.store(true, std::memory_order_relaxed);
}
