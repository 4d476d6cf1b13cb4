// SPDX-License-Identifier: Apache-2.0
// Grants and returns of credit.
#include "protocols/flow.hpp"

#include <algorithm>
#include <utility>

#include "base/clock.hpp"
#include "protocols/dispatch.hpp"
#include "protocols/rendezvous.hpp"

namespace thalweg::impl {

namespace {

/// What of `wanted` the worker's budget still allows: never more than an eighth of what is left, so that late peers get
/// some.
uint64_t from_budget(Engine& engine, uint64_t wanted) {
  uint64_t budget = engine.options().unexpected_budget;
  uint64_t left = budget > engine.granted ? budget - engine.granted : 0;
  uint64_t share = std::min(wanted, left / 8);
  engine.granted += share;
  return share;
}

void send_credit(Engine& engine, Peer& peer, uint64_t bytes, uint64_t messages, uint16_t space) {
  engine.send_control(peer, make_header(Frame::credit, 0, bytes, messages, 0, space), nullptr);
}

}  // namespace

Status check_unasked(const OpDesc& op) {
  if ((op.flags & TW_OP_EAGER) == 0) return TW_OK;
  if ((op.flags & (kOpDevice | kOpLate)) != 0)
    return fail(TW_ERR_UNSUPPORTED, "TW_OP_EAGER sends host memory that is ready: send device memory without it");
  if (static_cast<uint64_t>(eager_cost(op.length + op.header_length)) <= kFirstEager) return TW_OK;
  return fail(TW_ERR_LIMIT, "an eager active message has at most %llu bytes with its header: send it without TW_OP_EAGER",
              static_cast<unsigned long long>(kFirstEager - kMessageOverhead));
}

void open_credit(Engine& engine, Peer& peer) {
  peer.eager_credit = kFirstEager;
  peer.rts_credit = kFirstRts;
  peer.bytes_credit = kFirstStream;
  peer.granted_bytes = kFirstEager;
  peer.granted_stream = kFirstStream;
  engine.granted += kFirstEager + kFirstStream;
  bool reference = (peer.link->features & kLinkByReference) != 0;
  engine.granted += kLeastEager - kFirstEager;
  const uint64_t more =
      kLeastEager - kFirstEager + from_budget(engine, (reference ? kFullEagerReference : kFullEager) - kLeastEager);
  peer.granted_bytes += more;
  send_credit(engine, peer, more, 0, kCreditMessages);
}

void close_credit(Engine& engine, Peer& peer) {
  engine.granted += peer.held_bytes;
  engine.left += peer.held_bytes;
  engine.granted -= peer.granted_bytes + peer.granted_stream;
  end_header(engine, peer);
  peer.granted_bytes = peer.granted_stream = 0;
  peer.eager_credit = peer.rts_credit = peer.bytes_credit = 0;
}

void widen_stream(Engine& engine, Peer& peer) {
  if (peer.granted_stream != kFirstStream) return;
  uint64_t more = from_budget(engine, kFullStream - kFirstStream);
  if (more == 0) return;
  peer.granted_stream += more;
  send_credit(engine, peer, more, 0, kCreditStream);
}

void give_back_messages(Engine& engine, Peer& peer) {
  send_credit(engine, peer, peer.consumed_bytes, peer.consumed_messages, kCreditMessages);
  peer.consumed_bytes = peer.consumed_messages = 0;
}

void give_back_stream(Engine& engine, Peer& peer) {
  send_credit(engine, peer, peer.consumed_stream, 0, kCreditStream);
  peer.consumed_stream = 0;
}

void end_header(Engine& engine, Peer& peer) { give_back_header(engine, take_header(peer)); }

uint64_t take_header(Peer& peer) {
  const AskedHeader asked = std::exchange(peer.header, {});
  return asked.granted ? asked.length : 0;
}

void give_back_header(Engine& engine, uint64_t length) {
  engine.granted -= length;
  engine.headers -= length;
}

namespace {

/// How long a peer may have the memory that it was granted while others wait for it: it may pause, and each byte of its header takes a
/// while on a slow network.
uint64_t time_for_header(const Engine& engine, uint64_t length) {
  constexpr uint64_t kNsOfKiB = 1'000'000;  // about 1 MiB/s
  return engine.options().header_silence_ns + (length >> 10) * kNsOfKiB;
}

/// Other headers take the room. One that credit covers, too, waits for that instead; a peer that was granted memory and
/// does not fill it, or only bit by bit, delays no other for long.
void wait_for_room(Engine& engine, Peer& peer) {
  if (peer.header.length <= kHeaderOnCredit) {
    const uint64_t op = std::exchange(peer.header, {}).op;
    return send_fin(engine, peer, op, TW_ERR_LIMIT);
  }
  const uint64_t now = monotonic_ns();
  for (Peer* other : engine.peers()) {
    if (other->header.granted && now - other->header.since > time_for_header(engine, other->header.length))
      engine.doom(*other, TW_ERR_PEER_LOST, "the peer was granted memory for a header, and does not send it while others wait");
  }
  engine.pusher().wants(peer);
}

}  // namespace

void answer_for_header(Engine& engine, Peer& peer) {
  const uint64_t budget = engine.options().unexpected_budget, windows = engine.granted - engine.headers;
  const uint64_t left = budget > windows ? budget - windows : 0, length = peer.header.length, op = peer.header.op;
  if (length > left / 8) {  // as from_budget()
    peer.header = {};
    return send_fin(engine, peer, op, TW_ERR_LIMIT);
  }
  if (length > left - std::min(left, engine.headers)) return wait_for_room(engine, peer);
  peer.header.granted = true;
  peer.header.since = monotonic_ns();
  engine.granted += length;
  engine.headers += length;
  send_fin(engine, peer, op, TW_OK);
}

void on_am_ask(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes) {
  if (header.b <= kShortHeader || peer.header.length != 0) return engine.violation(peer, "a header that may not be asked for");
  peer.header = {header.a, header.b, false};
  answer_for_header(engine, peer);
}

void on_credit(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes) {
  constexpr uint64_t kSane = 1u << 30;
  int64_t& credit = header.id == kCreditStream ? peer.bytes_credit : peer.eager_credit;
  if (header.a > kSane || header.b > kSane || header.id > kCreditStream || credit > static_cast<int64_t>(kSane) ||
      peer.rts_credit > static_cast<int64_t>(kSane)) {
    return engine.violation(peer, "an impossible amount of credit");
  }
  credit += static_cast<int64_t>(header.a);
  peer.rts_credit += static_cast<int64_t>(header.b);
  if (!peer.ordered.empty() || !peer.bytes.empty()) engine.pusher().wants(peer);
}

}  // namespace thalweg::impl
