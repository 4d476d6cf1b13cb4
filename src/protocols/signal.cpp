// SPDX-License-Identifier: Apache-2.0
// Signals: touched by a release store or an atomic add where the word is mapped, else by a frame behind what they cover.
#include <utility>

#include "protocols/blocks.hpp"
#include "protocols/dispatch.hpp"
#include "protocols/flow.hpp"
#include "protocols/one_sided.hpp"

namespace thalweg::impl {
namespace {

Status step_frames(OpRun& run) {
  Peer& peer = *run.peer;
  if (peer.link == nullptr) return TW_AGAIN;
  const bool acknowledge = (run.op->flags & TW_OP_REMOTE) != 0;
  const uint64_t number = acknowledge ? peer.engine->runs().wire_op(run) : 0;
  const uint8_t covers = (run.op->flags & TW_OP_AFTER_ALL) != 0 ? kFrameCoversAll : 0;
  run.fin = on_confirmed;
  if (Status s = send_signal(peer, *run.op, covers, acknowledge ? &number : nullptr); s != TW_OK) return s;
  note_frames(peer, run);
  return acknowledge ? TW_IN_PROGRESS : TW_OK;
}

}  // namespace

const Protocol kSignalFrames = {"signal_frames", Verb::signal, step_frames, nullptr};

Status check_signal(const OpDesc& op) {
  RemoteRegion& region = *op.signal;
  Peer& peer = *op.peer;
  if (is_error(peer.state)) return fail(peer.state, "%s", peer.why.c_str());
  if (region.revoked || (region.mapping != nullptr && region.mapping->revoked)) return map_region(region);
  if ((region.key.access & kAccessSignal) == 0 || region.key.length < 8) {
    return fail(TW_ERR_PERMISSION, "this key is not one of a signal; use what tw_signal_export wrote");
  }
  if (op.signal_op != region.key.device) {
    return fail(TW_ERR_INVALID, "the signal was created to be %s; use the same signal_op",
                region.key.device == TW_SIGNAL_ADD ? "added to" : "set");
  }
  if (peer.state == TW_OK && region.mapped == nullptr && !unmappable_now(region)) {
    if (region.key.incarnation != peer.identity.incarnation) return map_region(region);
    if (region.key.segment != 0 && !of_device(region)) map_region(region);  // requests the import unless that was done
  }
  return TW_OK;
}

bool touch_now(const OpDesc& op, bool behind) {
  if (access_route(signal_access_of(op, behind)) != AccessRoute::mapped) return false;
  const auto touch = [&op](const Registry::Reading* reading) {
    Status status = TW_OK;
    std::byte* word = reach(*op.signal, 0, 0, 8, kAccessSignal, reading, &status);
    if (word != nullptr) touch_and_wake(*op.peer, word, op.signal_op, op.signal_value);
    return word != nullptr;
  };
  if (op.signal->mapped != nullptr) return touch(nullptr);
  const Registry::Reading reading(op.peer->engine->registry());
  return touch(&reading);
}

bool overtakes(const OpDesc& op) { return behind_fence(op) || ((op.flags & TW_OP_AFTER_ALL) != 0 && unconfirmed(*op.peer)); }

Status signal_after_data(const OpDesc& op, const Completion& completion) {
  if (!tells(op) || touch_now(op, overtakes(op))) return TW_OK;
  OpDesc signal;
  signal.verb = Verb::signal;
  signal.flags = op.flags & (TW_OP_AFTER_ALL | kOpPart);
  signal.peer = op.peer;
  take_signal(op, &signal);
  if ((op.flags & TW_OP_REMOTE) != 0) {
    signal.flags |= TW_OP_REMOTE;
    signal.atomic_op = static_cast<uint8_t>(Verb::put);
    signal.length = op.length;
    return launch_one_sided(*op.peer->engine, signal, completion, kDeferred);
  }
  const Status s = launch_one_sided(*op.peer->engine, signal, Completion{}, kDeferred);
  return is_error(s) ? s : TW_OK;  // the data is where it belongs; the frame goes its way
}

Status give_signal(OpRun& run, bool framed) {
  Peer& peer = *run.peer;
  const OpDesc& op = *run.op;
  const bool all = (op.flags & TW_OP_AFTER_ALL) != 0;
  if (touch_now(op, framed || (all && !settled(peer)))) return TW_OK;
  const int covers = (all ? kFrameCoversAll : 0) | (framed ? kFrameCovers : 0);
  const bool asks = (op.flags & TW_OP_REMOTE) != 0 && op.blocks == nullptr;  // of blocks a frame behind it asks
  const uint64_t number = asks ? peer.engine->runs().wire_op(run) : 0;
  if (Status s = send_signal(peer, op, static_cast<uint8_t>(covers), asks ? &number : nullptr); s != TW_OK) return s;
  // A frame of its own: what acknowledges the data does not acknowledge the signal.
  const uint64_t sequence = ++peer.one_sided.framed;
  if (!asks) {
    peer.one_sided.silent = sequence;
    return TW_OK;
  }
  run.sequence = sequence;
  if (!framed) run.fin = on_confirmed;
  return TW_IN_PROGRESS;
}

namespace {

/// The notification, and the signal with it. TW_AGAIN also while the peer has granted too little.
Status send_notice(Peer& peer, const OpDesc& op, uint8_t flags, const uint64_t* ack) {
  const int64_t cost = eager_cost(sizeof op.immediate);
  if (peer.eager_credit < cost) return TW_AGAIN;
  struct {
    uint64_t ack;
    NoticeBody notice;
  } body{};
  static_assert(sizeof body == sizeof(uint64_t) + sizeof(NoticeBody));
  body.notice = {op.immediate, op.signal != nullptr ? op.signal_op : kNoSignal, {}};
  if (ack != nullptr) body.ack = *ack;
  const size_t skip = ack != nullptr ? 0 : sizeof body.ack;
  const FrameHeader header = make_header(Frame::notice, sizeof body - skip, op.signal != nullptr ? op.signal->key.rkey : 0,
                                         op.signal_value, flags, static_cast<uint16_t>(op.tag));
  const Status s = peer.link->port->send(*peer.link, header, reinterpret_cast<const std::byte*>(&body) + skip);
  if (s == TW_OK) peer.eager_credit -= cost;
  return s;
}

}  // namespace

Status send_signal(Peer& peer, const OpDesc& op, uint8_t flags, const uint64_t* ack) {
  // Posted while connecting.
  if (op.signal != nullptr && op.signal->key.incarnation != peer.identity.incarnation) return TW_ERR_STALE;
  if (ack != nullptr) flags |= kFrameAck;
  if ((op.flags & kOpNotify) != 0) return send_notice(peer, op, flags, ack);
  const KeyBody& key = op.signal->key;
  const FrameHeader header = make_header(Frame::signal, ack != nullptr ? 8 : 0, key.rkey, op.signal_value, flags, op.signal_op);
  return peer.link->port->send(*peer.link, header, ack);
}

Status start_signal(Engine& engine, const OpDesc& op, const Completion& completion) {
  if (op.signal != nullptr) {
    if (Status s = check_signal(op); is_error(s)) return s;
  }
  if (completion.request != nullptr) *completion.request = TW_REQUEST_NONE;
  return touch_now(op, overtakes(op)) ? Status{TW_OK} : launch_one_sided(engine, op, completion, kDeferred);
}

Status covered(const Peer& peer, uint8_t flags) {
  if ((flags & kFrameCovers) != 0 && is_error(peer.one_sided.put_failed)) return peer.one_sided.put_failed;
  return (flags & kFrameCoversAll) != 0 ? peer.one_sided.failed : Status{TW_OK};
}

namespace {

Status touch_word(Engine& engine, const FrameHeader& header, uint32_t op) {
  Registry::Reading reading(engine.registry());
  Target target;
  const Status status = engine.registry().resolve(reading, header.a, 0, 8, kAccessSignal, &target);
  if (status != TW_OK) return status;
  if (reinterpret_cast<uintptr_t>(target.address) % 8 != 0) return TW_ERR_MISALIGNED;
  if (target.device != nullptr) {
    return at_device(engine.registry(), reading, header.a, [&] { return signal_on_device(engine, target, op, header.b); });
  }
  touch_signal(reinterpret_cast<uint64_t*>(target.address), op, header.b);
  return TW_OK;
}

/// A put's failure is reported by the answer to its signal, if it has one, and then by no flush.
void conclude_signal(Engine& engine, Peer& peer, const FrameHeader& header, uint64_t ack, Status status) {
  const bool answers_put = (header.flags & kFrameAck) != 0 && (header.flags & kFrameCovers) != 0;
  if (answers_put && std::exchange(peer.one_sided.put_remembered, false)) peer.one_sided.failed = TW_OK;
  conclude(engine, peer, header, ack, status);
}

}  // namespace

void on_signal(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body) {
  uint64_t ack;
  if (!take_ack(header, body, &ack)) return engine.violation(peer, "a signal too short for its own fields");
  if (header.id > TW_SIGNAL_ADD) return engine.violation(peer, "a signal of unknown kind");
  Status status = covered(peer, header.flags);
  if (status == TW_OK) status = touch_word(engine, header, header.id);
  conclude_signal(engine, peer, header, ack, status);
}

void on_notice(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body) {
  uint64_t ack;
  NoticeBody notice;
  if (!take_ack(header, body, &ack) || !body.take(&notice) || body.left() != 0)
    return engine.violation(peer, "a notification of another length than its fields");
  if (notice.signal_op > TW_SIGNAL_ADD && notice.signal_op != kNoSignal)
    return engine.violation(peer, "a signal of unknown kind");
  Status status = covered(peer, header.flags);
  if (status == TW_OK && notice.signal_op != kNoSignal) status = touch_word(engine, header, notice.signal_op);
  conclude_signal(engine, peer, header, ack, status);  // first: a handler may close the endpoint
  take_notification(engine, peer, header.id, &notice.immediate, sizeof notice.immediate, is_error(status));
}

}  // namespace thalweg::impl
