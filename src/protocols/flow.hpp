// SPDX-License-Identifier: Apache-2.0
// Credit-based flow control of unexpected traffic: eager messages, RTS messages, byte streams.
//
// Both sides count the same costs. A sender starts with the fixed first credit; on attach (and at the first receive from a
// byte stream) the receiver grants more, out of the worker's budget. Credit for what was matched or consumed is returned in
// quarters. A peer that sends past its grant breaks the protocol, so what a worker holds unmatched is bounded whatever a
// peer does. What a peer whose link has ended left stays counted until it is received, and while that is more than the
// budget no new link is kept: peers that come, send and go fill no memory. Memory for a long header that credit does not
// cover is requested, one per peer at a time, and counts against the rest of that budget until the header's handler has run,
// or until the message that the handler keeps ends.
#pragma once
#include <algorithm>

#include "protocols/engine.hpp"
#include "routes/messages.hpp"

namespace thalweg::impl {

inline constexpr uint64_t kMessageOverhead = 256;   // what keeping an unmatched message costs besides its payload
inline constexpr uint64_t kFirstEager = 64u << 10;  // bytes; also the most that one active message may cost that must be eager
/// The smallest window, of a worker with many endpoints. Up to a quarter of it may be consumed and not yet returned, and
/// what is left must take the largest message.
inline constexpr uint64_t kLeastEager = 96u << 10;
static_assert(kLeastEager - kLeastEager / 4 >= kFirstEager);
/// The longest header that may go on credit, which every window takes in the end.
inline constexpr uint64_t kHeaderOnCredit = kFirstEager - kMessageOverhead;
inline constexpr uint64_t kFirstRts = 512;
inline constexpr uint64_t kFirstStream = 64u << 10;
inline constexpr uint64_t kFullEager = 1u << 20, kFullEagerReference = 4u << 20;
inline constexpr uint64_t kFullStream = 1u << 20;
/// Of peers whose link has ended, however small the budget is.
inline constexpr uint64_t kLeastLeft = 1u << 20;
enum CreditSpace : uint16_t { kCreditMessages = 0, kCreditStream = 1 };

constexpr int64_t eager_cost(uint64_t payload) { return static_cast<int64_t>(payload + kMessageOverhead); }

inline bool long_header(const OpDesc& op) { return op.header_length > kShortHeader; }
/// Has the sender credit for its message, but for a long header?
inline bool affordable(const OpDesc& op) {
  return op.peer->eager_credit >= eager_cost(op.length + (long_header(op) ? 0 : op.header_length));
}
/// ... and for its header beside `payload` bytes?
inline bool header_affordable(const OpDesc& op, uint64_t payload) {
  return op.header_length <= kHeaderOnCredit && op.peer->eager_credit >= eager_cost(payload + op.header_length);
}
/// Of an active message: may it be sent eagerly, where TW_OP_EAGER demands it?
Status check_unasked(const OpDesc& op);

/// Sets the first credits and grants this side's share to the peer.
void open_credit(Engine& engine, Peer& peer);
/// The link ends: what is held of the peer is counted in Engine::left from now on.
void close_credit(Engine& engine, Peer& peer);
/// Have peers whose link has ended left as much as the budget? Then new links end at once.
inline bool overfull(const Engine& engine) { return engine.left > std::max(engine.options().unexpected_budget, kLeastLeft); }
/// More room for a byte stream that is read.
void widen_stream(Engine& engine, Peer& peer);
void give_back_messages(Engine& engine, Peer& peer);
void give_back_stream(Engine& engine, Peer& peer);
void on_credit(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body);

/// The peer has asked for memory for a long header and has no answer yet.
inline bool waits_for_header(const Peer& peer) { return peer.header.length != 0 && !peer.header.granted; }
/// Answers it when others' headers leave room.
void answer_for_header(Engine& engine, Peer& peer);
/// The memory is free again.
void end_header(Engine& engine, Peer& peer);
/// All of the header is here: so many bytes are its message's from now on, until give_back_header().
uint64_t take_header(Peer& peer);
void give_back_header(Engine& engine, uint64_t length);
void on_am_ask(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body);

/// An eager message of this cost was matched or dropped.
inline void consumed(Engine& engine, Peer& peer, uint64_t cost) {
  peer.consumed_bytes += cost;
  if (peer.consumed_bytes * 4 >= peer.granted_bytes) give_back_messages(engine, peer);
}
/// The same of a tagged one with so many bytes, which is counted.
inline void consumed_message(Engine& engine, Peer& peer, uint64_t bytes) {
  peer.tally.received.add();
  peer.tally.received_bytes.add(bytes);
  consumed(engine, peer, static_cast<uint64_t>(eager_cost(bytes)));
}
inline void consumed_rts(Engine& engine, Peer& peer) {
  if (++peer.consumed_messages * 4 >= kFirstRts) give_back_messages(engine, peer);
}
/// An eager message of this cost is held unmatched. False: past the grant.
inline bool hold(Peer& peer, uint64_t cost) {
  if (peer.held_bytes + cost > peer.granted_bytes) return false;
  peer.held_bytes += cost;
  return true;
}
/// ... and is no more. peer: null where its endpoint has ended.
inline void let_go(Engine& engine, Peer* peer, uint64_t cost) {
  if (peer != nullptr) peer->held_bytes -= cost;
  if (peer != nullptr && peer->link != nullptr) return;
  engine.granted -= cost;
  engine.left -= cost;
}
/// There is no memory for what was to be held.
inline void doom_without_memory(Engine& engine, Peer& peer, uint64_t cost, const char* why) {
  let_go(engine, &peer, cost);
  engine.doom(peer, TW_ERR_NO_MEMORY, why);
}
inline bool hold_rts(Peer& peer) { return ++peer.held_messages <= kFirstRts; }

}  // namespace thalweg::impl
