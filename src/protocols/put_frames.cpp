// SPDX-License-Identifier: Apache-2.0
// Put by frames: fragments in the endpoint's ordered queue, applied by the target's progress. Every frame stands alone
// (rkey, offset, and for a strided target the layout), so the target keeps no state of a put but whether it failed so far.
#include <algorithm>
#include <utility>

#include "protocols/dispatch.hpp"
#include "protocols/one_sided.hpp"
#include "protocols/pipeline.hpp"

namespace thalweg::impl {
namespace {

enum Stage : uint8_t { kData, kSignal, kSent };
constexpr uint32_t kInFlight = 8;  // pieces by reference

/// OpRun::state of one that the target answers.
struct Answered {
  uint64_t number;  // what the target answers to: outlives a send by reference
  bool here;
  Status answer;
};
static_assert(sizeof(Answered) <= sizeof(OpRun::state));
Answered& answered(OpRun& run) { return *reinterpret_cast<Answered*>(run.state); }
bool asks(const OpRun& run) { return (run.op->flags & TW_OP_REMOTE) != 0; }
/// Does its last fragment ask? A signal or notification behind it does, which comes later and covers it.
bool data_asks(const OpRun& run) { return asks(run) && !tells(*run.op); }

/// Out of the ordered queue: all of it has gone, and nothing is read from the buffer any more.
void sent(Engine& engine, OpRun& run, Status status) {
  if (!asks(run)) return engine.complete(run, status);
  if (!answered(run).here) return;
  if (is_error(answered(run).answer)) note_failure(*run.peer, run, answered(run).answer);
  engine.complete(run, answered(run).answer);
}

/// Whatever the peer answers, and whenever: its signal is sent, and the buffer is the run's until the link has read it.
void acknowledged(Engine& engine, OpRun& run, Status status) {
  confirm(*run.peer, run);
  run.fin = nullptr;
  answered(run).here = true;
  answered(run).answer = status;
  if (run.stage == kSent && run.pipeline.in_flight == 0) sent(engine, run, TW_OK);
}

/// One fragment. TW_OK (sent), TW_AGAIN, or an error.
Status send_fragment(Peer& peer, OpRun& run) {
  const OpDesc& op = *run.op;
  const uint64_t number = data_asks(run) ? peer.engine->runs().wire_op(run) : 0;
  const uint64_t left = op.length - run.moved;
  uint8_t flags = run.moved == 0 ? kFrameFirst : 0;
  Piece piece;
  piece.position = run.moved;
  if (op.remote_layout == nullptr) {
    const bool large = by_reference(peer.limits, op.layout == nullptr, left);
    piece.length = std::min<uint64_t>(left, large ? peer.limits.reference_fragment : queue_fragment(peer));
    const bool last = piece.length == left;
    if (last && data_asks(run)) {
      flags |= kFrameAck;
      answered(run).number = number;
      piece.prefix = &answered(run).number;
      piece.prefix_length = sizeof number;
    }
    const Status s =
        send_piece(peer, run, make_header(Frame::put, 0, op.remote->key.rkey, op.remote_offset + run.moved, flags), piece);
    if (s == TW_OK) run.moved += piece.length;
    return s;
  }
  std::byte prefix[8 + sizeof(PutLayoutBody) + kWireLayout];
  uint64_t length = std::min<uint64_t>(left, queue_fragment(peer)), skip = 0;
  const size_t wire = encode_part(*op.remote_layout, run.moved, &length, &skip, prefix + 16);
  const PutLayoutBody body{skip};
  std::memcpy(prefix + 8, &body, sizeof body);
  if (length == left && data_asks(run)) {
    flags |= kFrameAck;
    std::memcpy(prefix, &number, sizeof number);
  }
  const size_t unused = (flags & kFrameAck) != 0 ? 0 : 8;
  piece.prefix = prefix + unused;
  piece.prefix_length = 16 + wire - unused;
  piece.length = length;
  piece.by_reference = false;  // the prefix lives on this stack
  const Status s =
      send_piece(peer, run, make_header(Frame::put_layout, 0, op.remote->key.rkey, op.remote_offset, flags), piece);
  if (s == TW_OK) run.moved += length;
  return s;
}

Status step(OpRun& run) {
  Peer& peer = *run.peer;
  const OpDesc& op = *run.op;
  if (peer.link == nullptr) return TW_AGAIN;
  if (run.stage == kData) {
    if (run.pipeline.in_flight >= kInFlight) return TW_AGAIN;
    if (run.moved == 0) {
      if (op.remote->key.incarnation != peer.identity.incarnation) return TW_ERR_STALE;  // posted while connecting
      const bool all = tells(op) && (op.flags & TW_OP_AFTER_ALL) != 0;
      if (all && peer.one_sided.device != 0) return TW_AGAIN;  // its signal follows its data at once
      run.pipeline.begin = run.pipeline.position = 0;
      run.pipeline.end = 1;  // until the last piece: piece_sent must not end the run
      run.then = sent;
      if (asks(run)) {
        answered(run) = Answered{};
        run.fin = acknowledged;
      }
      if (op.layout != nullptr) run.cursor.reset(op.address, op.layout, op.length);
    }
    // Length 0 still travels: it may carry a signal or ask for an acknowledgement.
    if (Status s = send_fragment(peer, run); s != TW_OK) return s;
    if (run.moved < op.length) return TW_AGAIN;
    note_frames(peer, run);
    count_moved(op, of_device(*op.remote) ? Way::staging : Way::frames);
    run.stage = tells(op) ? kSignal : kSent;
    run.pipeline.position = run.pipeline.end;
  }
  if (run.stage == kSignal) {
    if (Status s = give_signal(run, true); s != TW_OK && s != TW_IN_PROGRESS) return s;
    run.stage = kSent;
  }
  if (run.pipeline.in_flight > 0 || (asks(run) && !answered(run).here)) return TW_IN_PROGRESS;
  return asks(run) ? answered(run).answer : Status{TW_OK};
}

}  // namespace

const Protocol kPutFrames = {"put_frames", Verb::put, step, nullptr};

void note_put(Peer& peer, const FrameHeader& header, Status status) {
  if ((header.flags & kFrameFirst) != 0) {
    peer.one_sided.put_failed = TW_OK;
    peer.one_sided.put_remembered = false;
  }
  if (is_error(status) && peer.one_sided.put_failed == TW_OK) peer.one_sided.put_failed = status;
}

/// An earlier fragment's failure is reported by the answer of the last one, if it has one, and then by no flush.
void conclude_put(Engine& engine, Peer& peer, const FrameHeader& header, uint64_t op) {
  OneSided& state = peer.one_sided;
  const bool answered = (header.flags & kFrameAck) != 0, failed_before = is_error(state.failed);
  if (answered && std::exchange(state.put_remembered, false)) state.failed = TW_OK;
  conclude(engine, peer, header, op, state.put_failed);
  if (!answered && !failed_before && is_error(state.failed)) state.put_remembered = true;
}

void on_put(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body) {
  uint64_t ack;
  if (!take_ack(header, body, &ack)) return engine.violation(peer, "a put too short for its own fields");
  const size_t length = body.left();
  Status status;
  {
    Registry::Reading reading(engine.registry());
    Target target;
    status = engine.registry().resolve(reading, header.a, header.b, length, TW_MEMORY_WRITE, &target);
    if (status == TW_OK && target.device != nullptr) {
      status = at_device(engine.registry(), reading, header.a,
                         [&] { return store_to_device(engine, target, nullptr, 0, body.payload(), length); });
    } else if (status == TW_OK) {
      if (length == 8) {
        std::memcpy(target.address, body.payload(), 8);  // one store, for a poller of the word
      } else if (length > 0) {
        std::memcpy(target.address, body.payload(), length);
      }
    }
  }
  note_put(peer, header, status);
  conclude_put(engine, peer, header, ack);
}

void on_put_layout(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body) {
  uint64_t ack;
  PutLayoutBody fields;
  if (!take_ack(header, body, &ack) || !body.take(&fields)) {
    return engine.violation(peer, "a put too short for its own fields");
  }
  Layout layout;
  if (is_error(decode_into(body, layout))) return engine.violation(peer, "a layout that does not parse");
  const size_t length = body.left();
  if (fields.skip > layout.bytes || length > layout.bytes - fields.skip) {
    return engine.violation(peer, "more bytes than the layout takes");
  }
  Status status;
  {
    Registry::Reading reading(engine.registry());
    Target base;
    status = resolve_layout(engine.registry(), reading, header.a, header.b, layout, TW_MEMORY_WRITE, &base);
    if (status == TW_OK && base.device != nullptr) {
      status = at_device(engine.registry(), reading, header.a,
                         [&] { return store_to_device(engine, base, &layout, fields.skip, body.payload(), length); });
    } else if (status == TW_OK) {
      LayoutCursor to(base.address, &layout, layout.bytes);
      to.seek(fields.skip);
      unpack(to, body.payload(), length);
    }
  }
  note_put(peer, header, status);
  conclude_put(engine, peer, header, ack);
}

}  // namespace thalweg::impl
