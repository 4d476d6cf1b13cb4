// SPDX-License-Identifier: Apache-2.0
// Eager messages: the sender's steps, the receiver's frames. See eager.hpp.
#include "protocols/eager.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "protocols/active.hpp"
#include "protocols/bounce_buffer.hpp"
#include "protocols/device_queues.hpp"
#include "protocols/dispatch.hpp"
#include "protocols/flow.hpp"
#include "protocols/offers.hpp"
#include "protocols/operation_routes.hpp"
#include "protocols/pipeline.hpp"
#include "protocols/rendezvous.hpp"

namespace thalweg::impl {

// ------------------------------------------------------------------------------------------------ sending

Status Engine::try_send(Peer& peer, const void* buffer, size_t length, uint64_t tag, uint64_t immediate, uint8_t flags) {
  Guard guard(*this);
  return send_at_once(peer, buffer, length, tag, immediate, flags);
}

namespace {

/// Chooses when the link is up and again at every try, because credit comes and goes.
Status step_route(OpRun& run) {
  const Protocol& choice = select_send(*run.op);
  const Status status = choice.step(run);
  if (status != TW_AGAIN || run.stage != 0) run.protocol = &choice;
  return status;
}
const Protocol kRoute = {"route", Verb::send, step_route, nullptr};

Status step_single(OpRun& run) {
  const OpDesc& op = *run.op;
  Peer& peer = *op.peer;
  bool sync = (op.flags & TW_OP_SYNC) != 0;
  const uint64_t name = sync ? peer.engine->runs().wire_op(run) : 0;
  if (op.layout != nullptr) run.cursor.reset(op.address, op.layout, op.length);
  run.pipeline.position = run.pipeline.end = op.length;  // one piece, nothing left to queue
  run.then = complete_then;
  const uint64_t at = trace::moment();
  Status status =
      send_piece(peer, run, make_header(Frame::tagged, 0, op.tag, op.immediate, (sync ? kFrameSync : 0) | space_flag(op)),
                 Piece{.length = op.length,
                       .suffix = &name,
                       .suffix_length = sync ? sizeof name : 0,
                       .by_reference = single_by_reference(peer.limits, op.layout == nullptr, op.length, op.length)});
  if (status != TW_OK) return status;
  peer.eager_credit -= eager_cost(op.length);
  if (at != 0) [[unlikely]]
    trace_sent(peer, trace::What::sent, op.tag, op.length, at);
  run.cancelable = false;
  run.stage = 1;
  if (sync) count_sent(op);
  return sync ? TW_IN_PROGRESS : sent_all(run);
}

Status step_segmented(OpRun& run) {
  const OpDesc& op = *run.op;
  Peer& peer = *op.peer;
  return send_segments(*peer.engine, peer, run, make_header(Frame::tagged_first, 0, op.tag, op.immediate, space_flag(op)),
                       nullptr, 0);
}

}  // namespace

const Protocol kEagerSingle = {"eager", Verb::send, step_single, nullptr};
const Protocol kEagerSegmented = {"segmented", Verb::send, step_segmented, nullptr};

Status start_send(Engine& engine, const OpDesc& op, const Completion& completion) {
  const bool plain = (op.flags & (TW_OP_SYNC | kOpDevice | kOpLate)) == 0;
  if (op.layout == nullptr && plain && op.length <= op.peer->limits.copy) {
    Status status = engine.try_send(*op.peer, op.address, op.length, op.tag, op.immediate, space_flag(op));
    if (status != TW_AGAIN) {
      if (completion.request != nullptr) *completion.request = TW_REQUEST_NONE;
      return status;
    }
  }
  return engine.launch(op, completion, kRoute);
}

void complete_then(Engine& engine, OpRun& run, Status status) { engine.complete(run, status); }

Status sent_all(OpRun& run) {
  const bool stream = run.op->verb == Verb::bytes_send;
  if (stream && run.op->length != 0) {
    count_moved(*run.op, Way::frames);
    run.op->peer->tally.stream_sends.add();
    run.op->peer->tally.stream_sent.add(run.op->length);
  } else if (!stream) {
    count_sent(*run.op);
  }
  if (run.pipeline.in_flight == 0) return TW_OK;
  run.pipeline.kind = Pipeline::out;
  return TW_IN_PROGRESS;
}

Status send_segments(Engine&, Peer& peer, OpRun& run, FrameHeader first, const std::byte* header, size_t header_length) {
  const OpDesc& op = *run.op;
  if (run.stage == 0) {
    const bool reference = by_reference(peer.limits, op.layout == nullptr, op.length);
    std::byte prefix[sizeof(FirstBody) + kShortHeader];
    FirstBody body{peer.next_first, op.length};
    std::memcpy(prefix, &body, sizeof body);
    if (header_length != 0) std::memcpy(prefix + sizeof body, header, header_length);
    size_t prefix_length = sizeof body + header_length;
    // By reference the first frame carries no payload, so that all of it can be read straight into the receive. A whole
    // fragment beside the prefix where a frame holds it: a message of n fragments is n frames, without a small last one.
    const size_t room = std::min<size_t>(peer.limits.fragment, peer.limits.copy - prefix_length);
    size_t n = reference ? 0 : std::min<uint64_t>(op.length, room);
    begin_payload(run);
    const uint64_t at = trace::moment();
    Status status = send_piece(peer, run, first, Piece{prefix, prefix_length, 0, n, nullptr, 0, false});
    if (status != TW_OK) return status;
    if (at != 0) [[unlikely]]
      trace_sent(peer, trace::What::sent, op.tag, op.length, at);
    run.stage = 1;
    run.cancelable = false;
    run.pipeline.dest_op = peer.next_first++;
    run.pipeline.position = n;
    peer.eager_credit -= eager_cost(op.length + header_length);
  }
  return send_rest(peer, run, 0);
}

void begin_payload(OpRun& run) {
  const OpDesc& op = *run.op;
  if (op.layout != nullptr) run.cursor.reset(op.address, op.layout, op.length);
  run.pipeline.position = 0;
  run.pipeline.end = op.length;
  run.then = complete_then;
}

Status send_rest(Peer& peer, OpRun& run, uint64_t ahead) {
  Pipeline& pipeline = run.pipeline;
  const bool reference = by_reference(peer.limits, run.op->layout == nullptr, run.op->length);
  while (pipeline.position < pipeline.end) {
    uint32_t most = reference ? peer.limits.reference_fragment : peer.limits.fragment;
    size_t n = static_cast<size_t>(std::min<uint64_t>(pipeline.end - pipeline.position, most));
    Status status = send_piece(peer, run, make_header(Frame::data, 0, pipeline.dest_op, ahead + pipeline.position, kFrameMore),
                               Piece{.position = pipeline.position, .length = n});
    if (is_error(status) && by_calls(*run.op)) {
      const auto code = static_cast<uint64_t>(int64_t{status});
      peer.engine->send_control(peer, make_header(Frame::fin, 0, pipeline.dest_op, code, kFrameLast | kFrameMore), nullptr);
    }
    if (status != TW_OK) return status;
    pipeline.position += n;
  }
  return sent_all(run);
}

// ------------------------------------------------------------------------------------------------ receiving

namespace {

void answer_sync(Engine& engine, Peer& peer, uint64_t op) {
  if (op != 0) engine.send_control(peer, make_header(Frame::matched, 0, op, 0), nullptr);
}

/// Word by word, as the port has just stored them: a load of two at once would wait until both stores are in the cache.
inline tw_recv_info info_of(const Peer& peer, const FrameHeader& header, uint64_t length) {
  return {peer.endpoint, __atomic_load_n(&header.a, __ATOMIC_RELAXED), __atomic_load_n(&header.b, __ATOMIC_RELAXED), length};
}

/// A call costs more than a word.
inline void copy_body(std::byte* to, const std::byte* from, uint64_t n) {
  if (n == 8) {
    std::memcpy(to, from, 8);
  } else if (n != 0) {
    std::memcpy(to, from, n);
  }
}

/// The whole payload is at `body`, the buffer is host memory.
inline void deliver_to_host(Engine& engine, OpRun& run, const std::byte* body, uint64_t length) {
  const OpDesc& op = *run.op;
  uint64_t n = std::min(length, op.length);
  if (op.layout == nullptr) [[likely]] {
    copy_body(op.address, body, n);
  } else {
    run.cursor.reset(op.address, op.layout, op.length);
    unpack(run.cursor, body, n);
  }
  engine.complete_received(run);
}

void deliver(Engine& engine, OpRun& run, const std::byte* body, uint64_t length) {
  if (!needs_bounce_buffer(*run.op)) return deliver_to_host(engine, run, body, length);
  if (!open_bounce_buffer(run, length)) return engine.complete(run, TW_ERR_NO_MEMORY);
  if (const uint64_t n = std::min(length, run.op->length); n != 0) unpack(run.cursor, body, n);
  deliver_bounce_buffer(engine, run);
}

void keep_single(Engine& engine, Peer& peer, const FrameHeader& header, const std::byte* body, uint64_t length, uint64_t sync) {
  uint64_t cost = static_cast<uint64_t>(eager_cost(length));
  if (!hold(peer, cost)) return engine.violation(peer, "more eager messages than it was granted");
  tw_message* message = Matcher::make(length);
  if (message == nullptr) return doom_without_memory(engine, peer, cost, "no memory for an unmatched message");
  message->engine = &engine;
  message->peer = &peer;
  message->info = info_of(peer, header, length);
  message->cost = cost;
  message->sync_op = sync;
  message->arrived = length;
  if (length != 0) std::memcpy(message->payload(), body, length);
  engine.receives().matcher(header.flags).keep(*message);
}

/// A message in one frame for a receive into device memory, or one that waits for a stream.
[[gnu::noinline]] void on_tagged_for_device(Engine& engine, Peer& peer, const FrameHeader& header, const std::byte* payload,
                                            uint64_t length, uint64_t sync, OpRun* run) {
  if (!free_to_match(engine, peer, header.a, &run)) return;
  if (run == nullptr) return keep_single(engine, peer, header, payload, length, sync);
  run->info = info_of(peer, header, length);
  consumed_message(engine, peer, length);
  answer_sync(engine, peer, sync);
  deliver(engine, *run, payload, length);
}

/// Is this whole message for the receive that a thread waits for? Then it is delivered.
inline bool deliver_waited(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes& body) {
  WaitedReceive* const receive = engine.receives().waited();
  if (receive == nullptr || ((receive->tag ^ header.a) & receive->mask) != 0 ||
      (header.flags & (kFrameSync | kFrameGroup)) != 0)
    return false;
  engine.receives().set_waited(nullptr);
  engine.pause = true;
  receive->info = info_of(peer, header, header.length);
  consumed_message(engine, peer, header.length);
  copy_body(receive->address, body.payload(), std::min<uint64_t>(header.length, receive->length));
  receive->deliver(header.length);
  return true;
}

/// The bytes of a sole receive are there: it ends. Calls, if any, come last, so that the way of a short message saves no registers.
[[gnu::always_inline]] inline void end_sole(Engine& engine, OpRun& run, Peer& peer, const FrameHeader& header,
                                            uint64_t length) {
  run.info = info_of(peer, header, length);
  run.cancelable = false;
  engine.pause = true;
  engine.completions().deliver_in_progress(run, TW_OK);
  consumed_message(engine, peer, length);
}

[[gnu::noinline]] void deliver_sole_bytes(Engine& engine, OpRun& run, Peer& peer, const FrameHeader& header,
                                          const std::byte* body) {
  const uint64_t length = header.length;
  if (length != 0) std::memcpy(run.own.address, body, length);
  end_sole(engine, run, peer, header, length);
}

/// Is it for the only receive that is posted? What post_run() has made, and nothing has touched since, is in no list and of no peer.
[[gnu::always_inline]] inline bool deliver_sole(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes& body) {
  OpRun* const run = engine.receives().sole();
  if (run == nullptr || ((run->own.tag ^ header.a) & run->own.mask) != 0 || (header.flags & (kFrameSync | kFrameGroup)) != 0)
    return false;
  if (header.length > run->own.length || run->sink > SinkKind::callback || run->detached || run->extras) [[unlikely]]
    return false;  // it is matched like others
  engine.receives().set_sole(nullptr);
  if (header.length == sizeof(uint64_t)) [[likely]] {
    std::memcpy(run->own.address, body.payload(), sizeof(uint64_t));
    end_sole(engine, *run, peer, header, sizeof(uint64_t));
  } else {
    deliver_sole_bytes(engine, *run, peer, header, body.payload());
  }
  return true;
}

[[gnu::always_inline]] inline void on_tagged_to_match(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body) {
  uint64_t length = header.length, sync = 0;
  const bool asks = (header.flags & kFrameSync) != 0;
  if (asks) [[unlikely]] {
    if (length < sizeof sync) return engine.violation(peer, "a synchronous message without its op");
    length -= sizeof sync;
  }
  const std::byte* payload = body.payload(length);
  if (asks && !body.take(&sync)) [[unlikely]]
    return;
  Matcher& space = engine.receives().to_match(header.flags);
  OpRun* run = space.match(header.a, &peer);
  if (trace::on()) [[unlikely]]
    trace_arrived(peer, run != nullptr, header.a, length);
  if (run == nullptr) return keep_single(engine, peer, header, payload, length, sync);
  if (needs_bounce_buffer(*run->op)) [[unlikely]]
    return on_tagged_for_device(engine, peer, header, payload, length, sync, run);
  if (space.posted_count() == 0) engine.pause = true;
  run->info = info_of(peer, header, length);
  consumed_message(engine, peer, length);
  if (sync != 0) [[unlikely]]
    answer_sync(engine, peer, sync);
  deliver_to_host(engine, *run, payload, length);
}

[[gnu::noinline]] void on_tagged_otherwise(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body) {
  if (!deliver_waited(engine, peer, header, body)) on_tagged_to_match(engine, peer, header, std::move(body));
}

}  // namespace

void on_tagged(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body) {
  if (!deliver_sole(engine, peer, header, body)) on_tagged_otherwise(engine, peer, header, std::move(body));
}

void on_matched(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes) {
  OpRun* run = engine.runs().answered(header.a, peer);
  if (run == nullptr) return;
  const bool waits = run->protocol == &kEagerSingle && run->stage == 1 && (run->op->flags & TW_OP_SYNC) != 0;
  if (!waits || run->pipeline.in_flight != 0) return engine.violation(peer, "a match for what does not wait for one");
  engine.complete(*run, TW_OK);
}

std::byte* tagged_destination(Engine& engine, Peer& peer, const FrameHeader& header) {
  if ((header.flags & kFrameSync) != 0 || peer.destination != nullptr) return nullptr;
  OpRun* run = engine.receives().to_match(header.flags).peek(header.a, &peer);
  // on_frame does it.
  if (run == nullptr || run->op->layout != nullptr || needs_bounce_buffer(*run->op) || run->op->length < header.length)
    return nullptr;
  engine.receives().matcher(header.flags).withdraw(*run);
  if (trace::on()) [[unlikely]]
    trace_arrived(peer, true, header.a, header.length);
  run->cancelable = false;
  run->info = info_of(peer, header, header.length);
  engine.bind(*run, peer);
  peer.destination = run;
  return run->op->address;
}

void tagged_landed(Engine& engine, Peer& peer, const FrameHeader& header) {
  OpRun* run = peer.destination;
  if (run == nullptr) return;
  peer.destination = nullptr;
  consumed_message(engine, peer, header.length);
  engine.complete(*run, TW_OK);
}

// --- several frames

namespace {

/// n more bytes of the assembly are at `body`, or (null) at more_destination()'s address.
void feed(Engine& engine, Peer& peer, const std::byte* body, size_t n) {
  Assembly& assembly = peer.assembly;
  if (n != 0 && body != nullptr) {
    if (assembly.kind == Assembly::Kind::receive) {
      size_t wanted = static_cast<size_t>(std::min<uint64_t>(n, assembly.run->cursor.remaining()));
      if (wanted != 0) unpack(assembly.run->cursor, body, wanted);
    } else if (assembly.kind == Assembly::Kind::message) {
      std::memcpy(assembly.message->payload() + assembly.arrived, body, n);
    } else if (assembly.kind == Assembly::Kind::active) {
      am_part(*assembly.active, assembly.arrived, body, n);
    }
  }
  assembly.arrived += n;
  if (body == nullptr && assembly.kind == Assembly::Kind::receive) assembly.run->cursor.seek(assembly.arrived);  // landed
  if (assembly.kind == Assembly::Kind::message) assembly.message->arrived = assembly.arrived;
  if (assembly.arrived != assembly.length) return;
  Assembly done = assembly;
  assembly = Assembly{};
  if (done.kind == Assembly::Kind::receive) {
    consumed_message(engine, peer, done.length);
    if (engine.receives().matcher(*done.run->op).posted_count() == 0) engine.pause = true;
    if (done.run->bounce_buffer != nullptr) return deliver_bounce_buffer(engine, *done.run);
    engine.complete_received(*done.run);
  } else if (done.kind == Assembly::Kind::message) {
    done.message->kind = tw_message::Kind::here;
  } else if (done.kind == Assembly::Kind::active) {
    am_arrived(engine, peer, *done.active);
  } else {
    consumed_message(engine, peer, done.length);
  }
}

/// False: no memory; the peer ends, and the receive with it.
bool receive_assembly(Engine& engine, Peer& peer, OpRun& run) {
  run.cancelable = false;
  engine.bind(run, peer);
  if (needs_bounce_buffer(*run.op)) {
    if (!open_bounce_buffer(run, run.info.length)) {
      peer.assembly = {};
      engine.doom(peer, TW_ERR_NO_MEMORY, "no memory for a message to a device");
      return false;
    }
  } else {
    run.cursor.reset(run.op->address, run.op->layout, run.op->length);
  }
  peer.assembly.kind = Assembly::Kind::receive;
  peer.assembly.run = &run;
  return true;
}

/// The next piece belongs to the assembly and fits it.
bool continues(const Peer& peer, const FrameHeader& header) {
  const Assembly& assembly = peer.assembly;
  return assembly.kind != Assembly::Kind::none && header.a == assembly.op && header.b == assembly.arrived &&
         header.length <= assembly.length - assembly.arrived && header.length != 0;
}

}  // namespace

void on_tagged_first(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body) {
  FirstBody first;
  if (!body.take(&first) || first.length == 0 || first.length < body.left() || first.length > peer.granted_bytes ||
      peer.assembly.kind != Assembly::Kind::none) {
    return engine.violation(peer, "a bad first part of a message");
  }
  const size_t n = body.left();
  OpRun* run = engine.receives().to_match(header.flags).match(header.a, &peer);
  if (!free_to_match(engine, peer, header.a, &run)) return;
  if (trace::on()) [[unlikely]]
    trace_arrived(peer, run != nullptr, header.a, first.length);
  peer.assembly.op = first.op;
  peer.assembly.length = first.length;
  peer.assembly.arrived = 0;
  if (run != nullptr) {
    run->info = info_of(peer, header, first.length);
    if (!receive_assembly(engine, peer, *run)) return;
    return feed(engine, peer, body.payload(), n);
  }
  uint64_t cost = static_cast<uint64_t>(eager_cost(first.length));
  if (!hold(peer, cost)) return engine.violation(peer, "more eager messages than it was granted");
  tw_message* message = Matcher::make(first.length);
  if (message == nullptr) return doom_without_memory(engine, peer, cost, "no memory for an unmatched message");
  message->kind = tw_message::Kind::arriving;
  message->engine = &engine;
  message->peer = &peer;
  message->info = info_of(peer, header, first.length);
  message->cost = cost;
  peer.assembly.kind = Assembly::Kind::message;
  peer.assembly.message = message;
  engine.receives().matcher(header.flags).keep(*message);
  feed(engine, peer, body.payload(), n);
}

void on_more(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body) {
  if (!continues(peer, header)) return engine.violation(peer, "a part that continues no message");
  feed(engine, peer, body.payload(), header.length);
}

void cut_short(Engine& engine, Peer& peer, uint64_t op, Status why) {
  if (peer.assembly.kind == Assembly::Kind::none || peer.assembly.op != op) {
    return engine.violation(peer, "an end of a message that is not arriving");
  }
  const Assembly cut = peer.assembly;
  peer.assembly = Assembly{};
  if (cut.kind == Assembly::Kind::active) return am_cut_short(engine, *cut.active);
  if (cut.kind == Assembly::Kind::message) {
    cut.message->kind = tw_message::Kind::failed;
    cut.message->failure = is_error(why) ? why : TW_ERR_PROTOCOL;
    return;
  }
  consumed_message(engine, peer, cut.length);
  if (cut.kind == Assembly::Kind::receive) engine.complete(*cut.run, is_error(why) ? why : TW_ERR_PROTOCOL, kUndelivered);
}

std::byte* more_destination(Peer& peer, const FrameHeader& header) {
  if (!continues(peer, header)) return nullptr;  // on_frame names the violation
  const Assembly& assembly = peer.assembly;
  if (assembly.kind != Assembly::Kind::receive || assembly.run->op->layout != nullptr ||
      assembly.run->bounce_buffer != nullptr || assembly.arrived + header.length > assembly.run->op->length) {
    return nullptr;
  }
  return assembly.run->op->address + assembly.arrived;
}

void more_landed(Engine& engine, Peer& peer, const FrameHeader& header) {
  if (continues(peer, header)) feed(engine, peer, nullptr, header.length);
}

// --- one that was not matched when it came

void receive_unexpected(Engine& engine, OpRun& run, tw_message& message) {
  Peer* peer = message.peer;
  run.info = message.info;
  let_go(engine, peer, message.cost);  // of an RTS message: none
  switch (message.kind) {
    case tw_message::Kind::here:
      if (peer != nullptr && peer->link != nullptr) {
        consumed_message(engine, *peer, message.info.length);
        answer_sync(engine, *peer, message.sync_op);
      }
      deliver(engine, run, message.payload(), message.info.length);
      break;
    case tw_message::Kind::arriving:
      if (receive_assembly(engine, *peer, run))
        unpack(run.cursor, message.payload(), std::min<uint64_t>(message.arrived, run.op->length));
      break;
    case tw_message::Kind::rts:
      --peer->held_messages;
      engine.bind(run, *peer);
      consumed_rts(engine, *peer);
      rendezvous_receive(engine, *peer, run, message.rts);
      break;
    case tw_message::Kind::failed:
      if (peer != nullptr && peer->link != nullptr) consumed_message(engine, *peer, message.info.length);
      engine.complete(run, message.failure, kUndelivered);
      break;
    case tw_message::Kind::lost:
      engine.complete(run, TW_ERR_PEER_LOST, "the sender was lost before its message was received");
      break;
  }
  Matcher::destroy(&message);
}

}  // namespace thalweg::impl
