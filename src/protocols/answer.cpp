// SPDX-License-Identifier: Apache-2.0
// The bounds of answers that wait because their requesters do not read them.
#include "protocols/answer.hpp"

namespace thalweg::impl {

bool may_wait(Engine& engine, Peer& peer, uint32_t cost) {
  if (cost > kMostAnswers - peer.answers_cost) {
    engine.doom(peer, TW_ERR_PEER_LOST, kUnreadAnswers);
    return false;
  }
  if (engine.answers_cost + cost <= kMostOfAll) return true;
  uint64_t all = cost;
  Peer* most = &peer;
  for (Peer* const one : engine.peers()) {
    if (one->doomed) continue;  // what it owes goes with it, at the end of this progress
    all += one->answers_cost;
    if (one->answers_cost > most->answers_cost) most = one;
  }
  if (all <= kMostOfAll) return true;
  engine.doom(*most, TW_ERR_PEER_LOST, kUnreadAnswers);
  return most != &peer;
}

}  // namespace thalweg::impl
