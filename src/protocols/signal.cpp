// SPDX-License-Identifier: Apache-2.0
// Signals: touched by a release store or an atomic add where the word is mapped, else by a frame behind what they cover.
#include "protocols/dispatch.hpp"
#include "protocols/one_sided.hpp"

namespace thalweg::impl {
namespace {

Status step_frames(OpRun& run) {
  Peer& peer = *run.peer;
  if (peer.link == nullptr) return TW_AGAIN;
  const bool acknowledge = (run.op->flags & TW_OP_REMOTE) != 0;
  const uint64_t number = acknowledge ? peer.engine->wire_op(run) : 0;
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
  if (peer.state == TW_OK && region.mapped == nullptr && !region.unmappable) {
    if (region.key.incarnation != peer.identity.incarnation) return map_region(region);
    if (region.key.segment != 0 && !of_device(region)) map_region(region);  // asks, when nobody did yet
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

Status signal_after_data(const OpDesc& op) {
  if (op.signal == nullptr || touch_now(op, overtakes(op))) return TW_OK;
  OpDesc signal;
  signal.verb = Verb::signal;
  signal.flags = op.flags & (TW_OP_AFTER_ALL | kOpPart);
  signal.peer = op.peer;
  signal.signal = op.signal;
  signal.signal_op = op.signal_op;
  signal.signal_value = op.signal_value;
  const Status s = launch_one_sided(*op.peer->engine, signal, Completion{}, kDeferred);
  return is_error(s) ? s : TW_OK;  // the data is where it belongs; the frame goes its way
}

Status give_signal(OpRun& run, bool framed) {
  Peer& peer = *run.peer;
  const OpDesc& op = *run.op;
  const bool all = (op.flags & TW_OP_AFTER_ALL) != 0;
  if (touch_now(op, framed || (all && !settled(peer)))) return TW_OK;
  const int covers = (all ? kFrameCoversAll : 0) | (framed ? kFrameCovers : 0);
  const Status s = send_signal(peer, op, static_cast<uint8_t>(covers), nullptr);
  // A frame of its own: what acknowledges the data does not acknowledge the signal.
  if (s == TW_OK) peer.one_sided.silent = ++peer.one_sided.framed;
  return s;
}

Status send_signal(Peer& peer, const OpDesc& op, uint8_t flags, const uint64_t* ack) {
  const KeyBody& key = op.signal->key;
  if (key.incarnation != peer.identity.incarnation) return TW_ERR_STALE;  // posted while connecting
  if (ack != nullptr) flags |= kFrameAck;
  const FrameHeader header = make_header(Frame::signal, ack != nullptr ? 8 : 0, key.rkey, op.signal_value, flags, op.signal_op);
  return peer.link->port->send(*peer.link, header, ack);
}

Status start_signal(Engine& engine, const OpDesc& op, const Completion& completion) {
  if (Status s = check_signal(op); is_error(s)) return s;
  if (completion.request != nullptr) *completion.request = TW_REQUEST_NONE;
  return touch_now(op, overtakes(op)) ? Status{TW_OK} : launch_one_sided(engine, op, completion, kDeferred);
}

void on_signal(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body) {
  uint64_t ack;
  if (!take_ack(header, body, &ack)) return engine.violation(peer, "a signal too short for its own fields");
  if (header.id > TW_SIGNAL_ADD) return engine.violation(peer, "a signal of unknown kind");
  Status status = TW_OK;
  // Who waits for this signal must not be told of data that is not there.
  if ((header.flags & kFrameCovers) != 0) status = peer.one_sided.put_failed;
  if ((header.flags & kFrameCoversAll) != 0 && status == TW_OK) status = peer.one_sided.failed;
  if (status == TW_OK) {
    const Registry::Reading reading(engine.registry());
    Target target;
    status = engine.registry().resolve(reading, header.a, 0, 8, kAccessSignal, &target);
    if (status == TW_OK && reinterpret_cast<uintptr_t>(target.address) % 8 != 0) status = TW_ERR_MISALIGNED;
    if (status == TW_OK && target.device != nullptr) {
      status = signal_on_device(engine, target, header.id, header.b);
    } else if (status == TW_OK) {
      touch_signal(reinterpret_cast<uint64_t*>(target.address), header.id, header.b);
    }
  }
  conclude(engine, peer, header, ack, status);
}

}  // namespace thalweg::impl
