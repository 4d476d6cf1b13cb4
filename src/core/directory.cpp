// SPDX-License-Identifier: Apache-2.0
// The rules of simultaneous connects.
#include "core/directory.hpp"

namespace thalweg::impl {

Directory::Decision Directory::arrived(WorkerId peer, uint64_t token, uint64_t previous) {
  std::lock_guard lock(mutex);
  auto [at, fresh] = entries.try_emplace(peer);
  Entry& entry = at->second;
  if (fresh || entry.state == State::incoming) {
    entry.state = State::incoming;
    entry.token = token;
    return Decision::answer;
  }
  if (entry.state == State::outgoing) return peer < self_ ? Decision::answer : Decision::superseded;
  // Established: a reconnect names the connection it replaces; anything else is a late rival of the established one.
  return previous == entry.token ? Decision::answer : Decision::superseded;
}

bool Directory::confirmed(WorkerId peer, uint64_t token, uint64_t previous, uint64_t* own_key) {
  std::lock_guard lock(mutex);
  *own_key = 0;
  Entry& entry = entries[peer];
  if (entry.state == State::incoming && entry.token != 0 && entry.token != token) return false;
  if (entry.state == State::established && entry.token != previous) return false;
  if (entry.state == State::outgoing) *own_key = entry.key;
  entry.state = State::established;
  entry.token = token;
  entry.key = 0;
  return true;
}

bool Directory::broke(WorkerId peer, uint64_t token) {
  std::lock_guard lock(mutex);
  auto at = entries.find(peer);
  if (at == entries.end() || at->second.state != State::incoming || at->second.token != token) return false;
  if (at->second.endpoint == nullptr) {
    entries.erase(at);
    return false;
  }
  at->second.state = State::outgoing;
  at->second.key = 0;
  at->second.token = 0;
  return true;
}

bool Directory::won(WorkerId peer, uint64_t key, uint64_t token) {
  std::lock_guard lock(mutex);
  auto at = entries.find(peer);
  if (at == entries.end() || at->second.state != State::outgoing || at->second.key != key) return false;
  at->second.state = State::established;
  at->second.token = token;
  at->second.key = 0;
  return true;
}

bool Directory::dropped(WorkerId peer, uint64_t token) {
  std::lock_guard lock(mutex);
  auto at = entries.find(peer);
  if (at == entries.end() || at->second.state != State::established || at->second.token != token) return false;
  note_ended(peer, token);
  if (at->second.endpoint == nullptr) {
    entries.erase(at);
    return false;
  }
  at->second.state = State::outgoing;
  at->second.key = at->second.token = 0;
  return true;
}

uint64_t Directory::last_ended(WorkerId peer) const {
  const auto at = ended_.find(peer);
  return at == ended_.end() ? 0 : at->second;
}

/// Peers come and go for as long as the worker lives: the newest ends are kept.
void Directory::note_ended(WorkerId peer, uint64_t token) {
  ended_[peer] = token;
  ends_.emplace_back(peer, token);
  if (ends_.size() <= kEndedKept) return;
  const auto oldest = ended_.find(ends_.front().first);
  if (oldest != ended_.end() && oldest->second == ends_.front().second) ended_.erase(oldest);
  ends_.pop_front();
}

void Directory::forget(WorkerId peer, const tw_endpoint* endpoint, uint64_t token) {
  std::lock_guard lock(mutex);
  auto at = entries.find(peer);
  if (at == entries.end() || at->second.endpoint != endpoint) return;
  if (at->second.state == State::established && at->second.token == token) note_ended(peer, token);
  if (at->second.state == State::outgoing || at->second.token == token) {
    entries.erase(at);
  } else {
    at->second.endpoint = nullptr;
  }
}

}  // namespace thalweg::impl
