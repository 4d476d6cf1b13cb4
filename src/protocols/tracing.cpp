// SPDX-License-Identifier: Apache-2.0
// Arrows need a name that both ends know and that no frame carries: frames of a link arrive in order, each once, so both count them.
#include "protocols/tracing.hpp"

#include "protocols/engine.hpp"

namespace thalweg::impl {

// What an activity is called follows from its verb.
static_assert(static_cast<int>(trace::What::collective) == static_cast<int>(Verb::collective) &&
              static_cast<int>(trace::What::put) == static_cast<int>(Verb::put));

namespace {

uint64_t mix(uint64_t x, uint64_t y) {
  x = (x ^ y) * 0x9E3779B97F4A7C15u;
  return x ^ (x >> 29);
}

/// 0: this transport does not count.
uint64_t flow_of(uint64_t connection, uint64_t from, uint64_t to, uint64_t frame) {
  return frame == 0 ? 0 : mix(mix(mix(mix(0, connection), from), to), frame) | 1;
}

}  // namespace

void trace_begin(const Engine& engine, OpRun& run) {
  const OpDesc& op = *run.op;
  trace::Event event;
  event.what = static_cast<trace::What>(op.verb);
  event.phase = trace::Phase::begins;
  event.id = engine.runs().number(run);
  event.bytes = op.length;
  event.tag = op.tag;
  if (op.peer != nullptr) event.peer = op.peer->identity.worker;
  run.traced = run.extras = true;
  trace::record_now(event);
}

void trace_end(const Engine& engine, const OpRun& run, Status status) {
  if (!trace::on()) return;
  trace::Event event;
  event.what = static_cast<trace::What>(run.op->verb);
  event.phase = trace::Phase::ends;
  event.id = engine.runs().number(run);
  event.status = static_cast<int16_t>(status);
  trace::record_now(event);
}

void trace_sent(const Peer& peer, trace::What what, uint64_t tag, uint64_t bytes, uint64_t at) {
  if (peer.link == nullptr) return;
  trace::Event event;
  event.what = what;
  event.bytes = bytes;
  event.tag = tag;
  event.peer = peer.identity.worker;
  event.flow = flow_of(peer.connection, peer.engine->options().worker, peer.identity.worker, peer.link->port->sent(*peer.link));
  event.at = at;
  trace::record(event);
}

void trace_arrived(const Peer& peer, bool matched, uint64_t tag, uint64_t bytes) {
  if (peer.link == nullptr) return;
  trace::Event event;
  event.what = matched ? trace::What::arrived : trace::What::unexpected;
  event.bytes = bytes;
  event.tag = tag;
  event.peer = peer.identity.worker;
  event.flow =
      flow_of(peer.connection, peer.identity.worker, peer.engine->options().worker, peer.link->port->taken(*peer.link));
  trace::record_now(event);
}

}  // namespace thalweg::impl
