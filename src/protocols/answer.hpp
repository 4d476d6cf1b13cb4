// SPDX-License-Identifier: Apache-2.0
// A target's answer to a get by frames: data, or fin. It is sent at once; without room, or behind other answers,
// it becomes a run in Peer::answers. Not in the ordered queue: what waits there may wait for answers of the other side,
// whose ordered queue waits for these.
#pragma once
#include <cstring>

#include "protocols/engine.hpp"
#include "protocols/rendezvous.hpp"

namespace thalweg::impl {

/// What may wait for room to one peer, and to all: a quarter of the worker's requests. A requester reads answers as it asks; those that
/// do not would take all requests, and memory for what they name.
inline constexpr uint32_t kMostAnswers = 1u << 17, kMostOfAll = RunPool::kChunk * RunPool::kChunks / 4;
inline constexpr const char* kUnreadAnswers = "the peer sends requests but does not read the answers";
/// In requests: what else is kept of it counts as their size does.
inline uint32_t answer_cost(const OpDesc& op) {
  const size_t pieces = op.remote_layout != nullptr ? op.remote_layout->pieces.size() : 0;
  return static_cast<uint32_t>(1 + (op.header_length + pieces * (sizeof(tw_piece) + sizeof(uint64_t))) / sizeof(OpRun));
}

/// May an answer to this peer wait? Of all that do not read theirs the one that owes most is left.
[[gnu::cold]] bool may_wait(Engine& engine, Peer& peer, uint32_t cost);

/// Answer: plain data, with the requester's `op`. kNow answers: TW_OK, with data or with fin, or TW_AGAIN: no room. The rest
/// of what was asked for is in the OpDesc (its remote_layout or header), which a waiting answer keeps.
template <class Answer, Verb kVerb, Status (*kNow)(Engine&, Peer&, const Answer&, const OpDesc&)>
struct Answering {
  static_assert(sizeof(Answer) <= sizeof(OpRun::state));

  static void give(Engine& engine, Peer& peer, const Answer& answer, OpDesc& op) {
    if (peer.answers.empty() && kNow(engine, peer, answer, op) != TW_AGAIN) return;
    if (peer.doomed) return;
    const uint32_t cost = answer_cost(op);
    if (!may_wait(engine, peer, cost)) return;
    op.verb = kVerb;
    op.peer = &peer;
    OpRun* run = engine.acquire(op, Completion{});
    if (run == nullptr) return send_fin(engine, peer, answer.op, TW_ERR_LIMIT);
    if (op.header != nullptr && !keep_header(*run)) {
      engine.discard(*run);
      return send_fin(engine, peer, answer.op, TW_ERR_LIMIT);
    }
    std::memcpy(run->state, &answer, sizeof answer);
    run->protocol = &kProtocol;
    engine.bind(*run, peer);
    peer.answers_cost += cost;
    engine.answers_cost += cost;
    peer.answers.push_back(run);
    engine.pusher().wants(peer);
  }

 private:
  static Status step(OpRun& run) {
    Peer& peer = *run.peer;
    if (peer.link == nullptr) return TW_AGAIN;
    Answer answer;
    std::memcpy(&answer, run.state, sizeof answer);
    const Status status = kNow(*peer.engine, peer, answer, *run.op);
    if (status == TW_AGAIN) return status;
    const uint32_t cost = answer_cost(*run.op);
    peer.answers_cost -= cost;
    peer.engine->answers_cost -= cost;
    return status;
  }

  static constexpr Protocol kProtocol = {"answer", kVerb, step, nullptr};
};

}  // namespace thalweg::impl
