// SPDX-License-Identifier: Apache-2.0
// Flush: a frame behind everything in the ordered queue, answered when all of it is applied. Endpoints without unconfirmed
// frames are flushed already, because the other ways are complete when they return. A worker's flush is one of each of its
// peers.
#include <algorithm>
#include <utility>

#include "protocols/dispatch.hpp"
#include "protocols/one_sided.hpp"

namespace thalweg::impl {
namespace {

/// On whose behalf a flush of a peer is sent.
enum Stage : uint8_t { kForEndpoint, kForWorker, kForFence };

/// Flush of a worker: how many peers have not answered, and the first failure. Kept in the OpRun::state of the parent; a
/// child knows the parent by its request number, which dies with it.
struct Parent {
  uint64_t missing;
  Status status;
};

void child_ended(Engine& engine, OpRun& child, Status status) {
  if (child.stage != kForWorker) return;
  uint64_t number = 0;
  std::memcpy(&number, child.state, sizeof number);
  OpRun* run = engine.runs().find(number);
  if (run == nullptr || run->status.load(std::memory_order_relaxed) != TW_IN_PROGRESS) return;
  Parent parent;
  std::memcpy(&parent, run->state, sizeof parent);
  if (parent.status == TW_OK) parent.status = status;
  --parent.missing;
  std::memcpy(run->state, &parent, sizeof parent);
  if (parent.missing == 0) engine.complete(*run, parent.status);
}

/// Everything before the flush is applied, with `status`. Returns the flush's status.
Status settle(Engine& engine, OpRun& run, Status status) {
  if (run.peer != nullptr) {
    OneSided& state = run.peer->one_sided;
    confirm(*run.peer, run);
    state.reported = std::max(state.reported, run.sequence);
    if (run.stage == kForFence) {
      if (state.owed == TW_OK) state.owed = status;
    } else if (status == TW_OK) {
      status = std::exchange(state.owed, TW_OK);
    }
  }
  child_ended(engine, run, status);
  return status;
}

void answered(Engine& engine, OpRun& run, Status status) { engine.complete(run, settle(engine, run, status)); }

Status step(OpRun& run) {
  Peer& peer = *run.peer;
  if (peer.link == nullptr) return TW_AGAIN;
  const OneSided& state = peer.one_sided;
  // The answer covers frames only. It may come before that of a get, for whose bytes only a fence waits.
  if (state.device != 0 || (run.stage == kForFence && state.gets != 0)) return TW_AGAIN;
  run.sequence = state.framed;
  if (state.confirmed >= state.framed && state.silent <= state.reported) {
    return settle(*peer.engine, run, TW_OK);  // what waited before it moved without frames: no answer is needed
  }
  run.fin = answered;
  const FrameHeader header = make_header(Frame::flush, 0, peer.engine->runs().wire_op(run), 0);
  if (Status s = peer.link->port->send(*peer.link, header, nullptr); s != TW_OK) {
    if (is_error(s)) child_ended(*peer.engine, run, s);  // the link is lost, and that was not reported yet
    return s;
  }
  if (run.stage == kForFence) {
    count_out(run);
    count_in(run, Counted::fence_out);
  }
  return TW_IN_PROGRESS;
}

void abort(OpRun& run, Status why) {
  if (run.peer != nullptr) child_ended(*run.peer->engine, run, why);
}

/// A flush of one peer without a holder, on behalf of the worker flush `parent` (0: of a fence). It is sent by the next
/// progress, so the answer cannot come before the parent has counted its children.
Status launch_child(Engine& engine, Peer& peer, uint64_t parent) {
  OpDesc op;
  op.verb = Verb::flush;
  op.peer = &peer;
  OpRun* run = engine.acquire(op, Completion{});
  if (run == nullptr) return TW_ERR_LIMIT;
  std::memcpy(run->state, &parent, sizeof parent);
  run->stage = parent == 0 ? kForFence : kForWorker;
  run->protocol = &kFlushFrames;
  ++peer.one_sided.issued;
  engine.bind(*run, peer);
  if (parent == 0) count_in(*run, Counted::fence);
  peer.one_sided.queue.push_back(run);
  engine.pusher().wants(peer);
  return TW_OK;
}

/// Confirmation is not enough: only a flush reports the failure of a put that requested no answer.
bool to_flush(const Peer& peer) {
  const OneSided& state = peer.one_sided;
  return !is_error(peer.state) && (unconfirmed(peer) || state.silent > state.reported || is_error(state.owed));
}

Status flush_worker(Engine& engine, const OpDesc& op, const Completion& completion) {
  uint64_t missing = 0;
  for (Peer* peer : engine.peers()) missing += to_flush(*peer) ? 1 : 0;
  if (missing == 0) return TW_OK;
  OpRun* run = engine.acquire(op, completion);
  if (run == nullptr) return TW_ERR_LIMIT;
  const Parent parent{missing, TW_OK};
  std::memcpy(run->state, &parent, sizeof parent);
  run->protocol = &kFlushFrames;
  const uint64_t number = engine.runs().number(*run);
  if (completion.request != nullptr) *completion.request = number;
  for (Peer* peer : engine.peers()) {
    if (!to_flush(*peer)) continue;
    if (Status s = launch_child(engine, *peer, number); is_error(s)) {
      engine.complete(*run, s);
      break;
    }
  }
  return TW_IN_PROGRESS;
}

}  // namespace

const Protocol kFlushFrames = {"flush_frames", Verb::flush, step, abort};

Status start_flush(Engine& engine, const OpDesc& op, const Completion& completion) {
  if (completion.request != nullptr) *completion.request = TW_REQUEST_NONE;
  if (op.peer == nullptr) return flush_worker(engine, op, completion);
  Peer& peer = *op.peer;
  if (is_error(peer.state)) return fail(peer.state, "%s", peer.why.c_str());
  if (!to_flush(peer)) return TW_OK;
  OpDesc plain = op;
  plain.flags &= ~uint32_t{TW_OP_NO_WAIT};
  return launch_one_sided(engine, plain, completion, kFlushFrames);
}

Status fence_one_sided(Engine& engine, Peer& peer) {
  const Engine::Guard guard(engine);
  if (is_error(peer.state)) return fail(peer.state, "%s", peer.why.c_str());
  if (!unconfirmed(peer) || peer.one_sided.fence == peer.one_sided.issued) return TW_OK;
  if (Status s = launch_child(engine, peer, 0); is_error(s)) return s;
  peer.one_sided.fence = peer.one_sided.issued;
  return TW_OK;
}

void on_flush(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes) {
  const uint64_t status = static_cast<uint64_t>(static_cast<int64_t>(peer.one_sided.failed));
  peer.one_sided.failed = TW_OK;
  engine.send_control(peer, make_header(Frame::fin, 0, header.a, status), nullptr);
}

}  // namespace thalweg::impl
