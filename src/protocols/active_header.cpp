// SPDX-License-Identifier: Apache-2.0
// The sender's steps; see active_header.hpp. The receiver's are in active.cpp (what comes) and flow.cpp (what may come).
#include "protocols/active_header.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "protocols/flow.hpp"
#include "protocols/operation_routes.hpp"
#include "protocols/rendezvous.hpp"
#include "protocols/tracing.hpp"

namespace thalweg::impl {

namespace {

/// OpRun::stage before all of it is sent.
enum HeaderStage : uint8_t {
  kHeaderAsked = kMoreStages,  // the receiver's answer is awaited
  kHeaderGranted,
  kHeaderRefused,  // beyond the receiver's budget: waits for credit
  kHeaderGoes,     // run.moved of its bytes are sent
};

/// The header's first bytes, behind their number and a description of what follows.
Status send_first(OpRun& run, Frame frame) {
  const OpDesc& op = *run.op;
  Peer& peer = *op.peer;
  Link& link = *peer.link;
  const bool announced = frame == Frame::am_long_rts;
  const uint64_t along = announced ? 0 : op.length;
  const bool granted = run.stage == kHeaderGranted;
  if (announced && peer.rts_credit <= 0) return TW_AGAIN;
  if (!granted && !header_affordable(op, along)) return TW_AGAIN;
  FrameHeader first = am_header(frame, op);
  std::byte prefix[sizeof(FirstBody) + kMostRts];
  const FirstBody body{peer.next_first, op.header_length + along};
  std::memcpy(prefix, &body, sizeof body);
  size_t used = sizeof body;
  if (announced) used += describe_rts(*peer.engine, peer, run, &first, prefix + used);
  const size_t n = std::min<size_t>(op.header_length, std::min<size_t>(peer.limits.fragment, peer.limits.copy - used));
  std::byte* const to = link.port->reserve(link, used + n);
  if (to == nullptr) return TW_AGAIN;
  std::memcpy(to, prefix, used);
  std::memcpy(to + used, op.header, n);
  first.length = static_cast<uint32_t>(used + n);
  link.port->commit(link, first);
  if (!granted) peer.eager_credit -= eager_cost(op.header_length + along);
  run.stage = kHeaderGoes;
  run.cancelable = false;
  run.pipeline.dest_op = peer.next_first++;
  run.moved = n;
  return TW_OK;
}

}  // namespace

Status send_header(OpRun& run, Frame frame) {
  const OpDesc& op = *run.op;
  Link& link = *op.peer->link;
  if (run.stage == kHeaderAsked) return TW_AGAIN;
  if (run.stage != kHeaderGoes) {
    const uint64_t at = trace::moment();
    const Status status = send_first(run, frame);
    if (status != TW_OK) return status;
    if (at != 0) [[unlikely]]
      trace_sent(*op.peer, frame == Frame::am_long ? trace::What::sent : trace::What::announced, op.tag, op.length, at);
  }
  while (run.moved < op.header_length) {
    const size_t n = std::min<size_t>(op.header_length - run.moved, op.peer->limits.fragment);
    const FrameHeader more = make_header(Frame::data, n, run.pipeline.dest_op, run.moved, kFrameMore);
    const Status status = link.port->send(link, more, op.header + run.moved);
    if (status != TW_OK) return status;
    run.moved += n;
  }
  return TW_OK;
}

namespace {

/// The receiver's answer to am_ask.
void header_answered(Engine& engine, OpRun& run, Status status) {
  const OpDesc& op = *run.op;
  Peer& peer = *op.peer;
  if (status != TW_OK && status != TW_ERR_LIMIT) return engine.violation(peer, "an answer that says nothing of a header");
  run.fin = nullptr;
  engine.pusher().wants(peer);
  if (status == TW_OK) {
    run.stage = kHeaderGranted;
    return;
  }
  if (run.protocol == &kAmSegmented) peer.eager_credit += eager_cost(op.length);
  if (op.header_length > kHeaderOnCredit) {
    return engine.complete(run, TW_ERR_LIMIT,
                           "a header of " + std::to_string(op.header_length) +
                               " bytes is more than the receiver's budget has room for: send the bytes as payload, or give its "
                               "worker a larger unexpected_budget, of which a header may take an eighth");
  }
  run.stage = kHeaderRefused;
  run.cancelable = true;
  Message message = active_of(op);
  message.header_refused = true;
  if (active_route(peer.limits, message) == MessageRoute::frames) run.protocol = &kAmRendezvous;
}

}  // namespace

Status ask_for_header(OpRun& run, const Protocol& protocol) {
  const OpDesc& op = *run.op;
  Peer& peer = *op.peer;
  const bool announced = &protocol == &kAmRendezvous;
  if (announced && peer.rts_credit <= 0) return TW_AGAIN;
  const FrameHeader ask = make_header(Frame::am_ask, 0, peer.engine->runs().wire_op(run), op.header_length);
  const Status status = peer.link->port->send(*peer.link, ask, nullptr);
  if (status != TW_OK) return status;
  if (!announced) peer.eager_credit -= eager_cost(op.length);
  run.stage = kHeaderAsked;
  run.cancelable = false;
  run.fin = header_answered;
  return TW_AGAIN;
}

}  // namespace thalweg::impl
