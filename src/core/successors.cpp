// SPDX-License-Identifier: Apache-2.0
// Endpoints that wait to connect: behind one that closes, or for the peer's own attempt.
//
// A worker has one connection with another worker. While its endpoint closes gracefully, tw_connect gives another one, the successor,
// which connects once the first has ended; it may close before that, too, and have a successor of its own. The first of such a chain is
// in the directory or, when its link is lost, nowhere but in closing_; the others are in their predecessors alone. One that fails
// or ends leaves the chain at once (tw_worker::on_lost).
//
// One whose peer is connecting already makes no attempt of its own (directory.hpp), so that no Connector looks at its time: the
// worker does.
#include <algorithm>
#include <utility>

#include "base/clock.hpp"
#include "core/worker.hpp"

using namespace thalweg::impl;

void thalweg::impl::put_behind(tw_endpoint& before, tw_endpoint& endpoint) {
  before.successor = &endpoint;
  endpoint.predecessor = &before;
}

void thalweg::impl::unchain(tw_endpoint& endpoint) {
  tw_endpoint* const before = std::exchange(endpoint.predecessor, nullptr);
  if (before == nullptr) return;
  before->successor = std::exchange(endpoint.successor, nullptr);
  if (before->successor != nullptr) before->successor->predecessor = before;
}

namespace {

/// The successor of `before`, which waits no longer. What waits behind it still does.
tw_endpoint* take_successor(tw_endpoint& before) {
  tw_endpoint* const successor = std::exchange(before.successor, nullptr);
  if (successor == nullptr) return nullptr;
  successor->predecessor = nullptr;
  return successor;
}

std::string not_connected(const tw_endpoint& endpoint) {
  return "not connected within " + std::to_string(endpoint.timeout_ns / kMillisecond) + " ms: ";
}

}  // namespace

uint64_t thalweg::impl::left_ns(const tw_endpoint& endpoint) {
  return endpoint.timeout_ns - std::min(endpoint.timeout_ns, monotonic_ns() - endpoint.connect_since);
}

/// The endpoint that tw_connect to `remote` gives, or puts a new one behind: the last of the chain. known: the directory's.
tw_endpoint* tw_worker::last_to(WorkerId remote, tw_endpoint* known) const {
  for (size_t i = 0; known == nullptr && i < closing_.size(); ++i) {
    if (closing_[i]->remote == remote) known = closing_[i]->successor;
  }
  while (known != nullptr && known->successor != nullptr) known = known->successor;
  return known;
}

/// The endpoint that waits to connect to `remote`, as a link with it has come without a call; null: none waits.
tw_endpoint* tw_worker::take_waiting(WorkerId remote) {
  for (tw_endpoint* const endpoint : closing_) {  // the first of a chain has closed before the others
    if (endpoint->remote == remote && endpoint->successor != nullptr) return take_successor(*endpoint);
  }
  return nullptr;
}

/// `endpoint` has ended, and is in the directory no more.
void tw_worker::start_successor(tw_endpoint& endpoint) {
  tw_endpoint* const successor = take_successor(endpoint);
  if (successor == nullptr) return;
  bool start;
  {
    std::lock_guard lock(directory.mutex);
    auto [at, fresh] = directory.entries.try_emplace(successor->remote);
    at->second.endpoint = successor;
    start = fresh;  // otherwise the peer's own attempt is on its way
    if (successor->remote == id) at->second.state = Directory::State::established;
  }
  if (!start) return await_peer(*successor);
  if (successor->remote == id) {
    connect_self(*successor);
  } else {
    call(*successor);
  }
}

/// What waits behind `endpoint` for longer than it may fails.
void tw_worker::time_out_successors(tw_endpoint& endpoint) {
  while (tw_endpoint* const successor = endpoint.successor) {
    if (left_ns(*successor) != 0) return;
    engine->fail(*successor->peer, TW_ERR_TIMED_OUT,
                 not_connected(*successor) +
                     "the endpoint to this worker that was closed before still has something to deliver; let the peer receive "
                     "it, or connect again later");
  }
}

/// The peer's attempt is to connect `endpoint`, or that attempt's end, behind which it connects itself (try_again).
void tw_worker::await_peer(tw_endpoint& endpoint) {
  awaiting_.push_back(&endpoint);
  chores_.store(true, std::memory_order_relaxed);
  inbox.ring();  // who sleeps looks at its time, too
}

/// What the peer's attempt has not connected in its time fails. What that attempt has come to is read from the inbox before.
unsigned tw_worker::time_out_awaiting() {
  std::erase_if(awaiting_, [](const tw_endpoint* one) { return one->peer->state != TW_IN_PROGRESS || one->key != 0; });
  unsigned events = 0;
  for (size_t i = 0; i < awaiting_.size();) {
    tw_endpoint* const endpoint = awaiting_[i];
    if (left_ns(*endpoint) != 0) {
      ++i;
      continue;
    }
    awaiting_.erase(awaiting_.begin() + std::ptrdiff_t(i));
    engine->fail(*endpoint->peer, TW_ERR_TIMED_OUT,
                 not_connected(*endpoint) +
                     "the peer began to connect itself and has not finished; see whether its process is stopped, and connect "
                     "again");
    ++events;
  }
  return events;
}

/// The alarm of an owner that sleeps by the descriptor: only its own progress looks at the time of those that wait.
uint64_t tw_worker::longest_wait_to_connect() {
  const Guard guard(*engine);
  uint64_t ns = kForever;
  for (const tw_endpoint* const endpoint : closing_) {
    if (endpoint->successor != nullptr) ns = std::min(ns, left_ns(*endpoint->successor));
  }
  for (const tw_endpoint* const endpoint : awaiting_) {
    if (endpoint->peer->state == TW_IN_PROGRESS && endpoint->key == 0) ns = std::min(ns, left_ns(*endpoint));
  }
  return std::max<uint64_t>(ns, 1);  // an alarm of 0 is none
}
