// SPDX-License-Identifier: Apache-2.0
// Endpoints that connect behind one that closes.
//
// A worker has one connection with another worker. While its endpoint closes gracefully, tw_connect gives another one, the successor,
// which connects once the first has ended; it may close before that, too, and have a successor of its own. The first of such a chain is
// in the directory or, when its link is lost, nowhere but in closing_; the others are in their predecessors alone. One that fails
// or ends leaves the chain at once (tw_worker::on_lost).
#include <algorithm>
#include <utility>

#include "base/clock.hpp"
#include "core/worker.hpp"

using namespace thalweg::impl;

void thalweg::impl::put_behind(tw_endpoint& before, tw_endpoint& endpoint) {
  before.successor = &endpoint;
  endpoint.predecessor = &before;
  endpoint.behind_since = monotonic_ns();
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
  successor->waited_ns = monotonic_ns() - successor->behind_since;
  return successor;
}

/// Of the time that it may take to connect; 0: it is over.
uint64_t left_ns(const tw_endpoint& successor) {
  return successor.timeout_ns - std::min(successor.timeout_ns, monotonic_ns() - successor.behind_since);
}

}  // namespace

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
  if (!start) return;
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
    engine->fail(
        *successor->peer, TW_ERR_TIMED_OUT,
        "not connected within " + std::to_string(successor->timeout_ns / kMillisecond) +
            " ms: the endpoint to this worker that was closed before still has something to deliver; let the peer receive "
            "it, or connect again later");
  }
}

/// The alarm of an owner that sleeps by the descriptor: only its own progress looks at the time of those that wait.
uint64_t tw_worker::longest_wait_behind() {
  if (closings_.load(std::memory_order_relaxed) == 0) return kForever;
  const Guard guard(*engine);
  uint64_t ns = kForever;
  for (const tw_endpoint* const endpoint : closing_) {
    if (endpoint->successor != nullptr) ns = std::min(ns, left_ns(*endpoint->successor));
  }
  return std::max<uint64_t>(ns, 1);  // an alarm of 0 is none
}
