// SPDX-License-Identifier: Apache-2.0
// Active messages; see active.hpp. A descriptor is taken before its handler runs and given back when the handler neither
// kept nor fetched the payload, when it was fetched, or when it is released.
#include "protocols/active.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "base/log.hpp"
#include "protocols/active_header.hpp"
#include "protocols/bounce_buffer.hpp"
#include "protocols/dispatch.hpp"
#include "protocols/eager.hpp"
#include "protocols/flow.hpp"
#include "protocols/operation_routes.hpp"
#include "protocols/pipeline.hpp"
#include "protocols/rendezvous.hpp"

namespace thalweg::impl {

using Kind = tw_am_data::Kind;

// ------------------------------------------------------------------------------------------------ the table

ActiveTable::~ActiveTable() {
  for (tw_am_data* list : {kept_, spare_}) {
    while (list != nullptr) {
      tw_am_data* next = list->next;
      std::free(list->memory);
      std::free(list->header);
      delete list;
      list = next;
    }
  }
}

Status ActiveTable::set(uint16_t id, tw_am_handler handler, void* arg) {
  if (id >= kHandlers) return fail(TW_ERR_INVALID, "handler %u: ids are below %u", id, kHandlers);
  if (id >= table_.size()) table_.resize(std::max<size_t>(id + 1u, 64));
  table_[id] = {handler, arg};
  return TW_OK;
}

tw_am_data* ActiveTable::take() {
  tw_am_data* data = spare_;
  if (data != nullptr) {
    spare_ = data->next;
  } else {
    data = new (std::nothrow) tw_am_data();
    if (data == nullptr) return nullptr;
  }
  data->next = kept_;
  data->previous = nullptr;
  if (kept_ != nullptr) kept_->previous = data;
  kept_ = data;
  return data;
}

void ActiveTable::give_back(tw_am_data* data) {
  (data->previous != nullptr ? data->previous->next : kept_) = data->next;
  if (data->next != nullptr) data->next->previous = data->previous;
  std::free(data->memory);
  std::free(data->header);
  *data = tw_am_data{};
  data->next = spare_;
  spare_ = data;
}

void ActiveTable::lose(const Peer& peer) {
  for (tw_am_data* data = kept_; data != nullptr;) {
    tw_am_data* next = data->next;
    if (data->peer == &peer) {
      if (data->kind == Kind::arriving) {
        let_go(*data->engine, data->peer, data->cost + data->header_cost);
        give_back(data);  // no handler has seen it
      } else if (data->kind == Kind::rts) {
        data->kind = Kind::lost;
      }
    }
    data = next;
  }
}

void ActiveTable::orphan(const Peer& peer) {
  for (tw_am_data* data = kept_; data != nullptr; data = data->next) {
    if (data->peer == &peer) data->peer = nullptr;
  }
  for (Notification& kept : notifications) {
    if (kept.peer == &peer) kept.peer = nullptr;
  }
}

Status set_handler(Engine& engine, uint16_t id, tw_am_handler handler, void* arg) {
  const Engine::Guard guard(engine);
  return engine.active().set(id, handler, arg);
}

// ------------------------------------------------------------------------------------------------ sending

namespace {

Status step_am_single(OpRun& run) {
  const OpDesc& op = *run.op;
  Peer& peer = *op.peer;
  const bool reference = single_by_reference(peer.limits, op.layout == nullptr, op.length, op.length + op.header_length);
  // The link may read it after the call.
  if (reference && op.header_length != 0 && !keep_header(run)) {
    return fail(TW_ERR_NO_MEMORY, "no memory for the header of an active message");
  }
  if (op.layout != nullptr) run.cursor.reset(op.address, op.layout, op.length);
  run.pipeline.position = run.pipeline.end = op.length;
  run.then = complete_then;
  Piece piece{op.header, op.header_length, 0, op.length};
  piece.by_reference = reference;
  const uint64_t at = trace::moment();
  const Status status = send_piece(peer, run, am_header(Frame::am, op), piece);
  if (status != TW_OK) return status;
  peer.eager_credit -= eager_cost(op.length + op.header_length);
  if (at != 0) [[unlikely]]
    trace_sent(peer, trace::What::sent, op.tag, op.length, at);
  run.cancelable = false;
  run.stage = 1;
  return sent_all(run);
}

Status step_am_segmented(OpRun& run) {
  constexpr uint8_t kPayload = 1;
  const OpDesc& op = *run.op;
  Peer& peer = *op.peer;
  if (!long_header(op)) {
    return send_segments(*peer.engine, peer, run, am_header(Frame::am_first, op), op.header, op.header_length);
  }
  if (run.stage != kPayload) {
    const Status status = send_header(run, Frame::am_long);
    if (status != TW_OK) return status;
    begin_payload(run);
    run.stage = kPayload;
  }
  return send_rest(peer, run, op.header_length);
}

Status step_am_rendezvous(OpRun& run) {
  const OpDesc& op = *run.op;
  Peer& peer = *op.peer;
  if (!long_header(op)) {
    return send_rts(*peer.engine, peer, run, am_header(Frame::am_rts, op), op.header, op.header_length);
  }
  const Status status = send_header(run, Frame::am_long_rts);
  if (status != TW_OK) return status;
  await_receiver(peer, run);
  return TW_IN_PROGRESS;
}

}  // namespace

const Protocol kAmSegmented = {"segmented", Verb::am, step_am_segmented, nullptr};
const Protocol kAmRendezvous = {"rendezvous", Verb::am, step_am_rendezvous, nullptr};

namespace {

const Protocol kAmSingle = {"eager", Verb::am, step_am_single, nullptr};

/// Chooses when the link is up and again at every try, because credit comes and goes.
Status step_am(OpRun& run) {
  const OpDesc& op = *run.op;
  Peer& peer = *op.peer;
  const Message message = active_of(op);
  const MessageRoute route = active_route(peer.limits, message);
  const HeaderWay header = header_way(peer.limits, message);
  if ((!message.affordable && route != MessageRoute::frames) || header == HeaderWay::waits) return TW_AGAIN;
  const Protocol& choice = route == MessageRoute::single      ? kAmSingle
                           : route == MessageRoute::segmented ? kAmSegmented
                                                              : kAmRendezvous;
  Status status = header == HeaderWay::asked ? ask_for_header(run, choice) : choice.step(run);
  if (status != TW_AGAIN || run.stage != 0) run.protocol = &choice;
  return status;
}
const Protocol kAmRoute = {"route", Verb::am, step_am, nullptr};

/// The short form of a small contiguous message when nothing waits before it: no run. TW_AGAIN: take the long way.
Status try_am(Peer& peer, const OpDesc& op) {
  uint64_t body = op.length + op.header_length;
  if (op.layout != nullptr || (op.flags & (TW_OP_RENDEZVOUS | TW_OP_SYNC | kOpDevice | kOpLate)) != 0 ||
      body > peer.limits.copy || op.header_length > kHeaderOnCredit || peer.eager_credit < eager_cost(body) ||
      !peer.ordered.empty() || !peer.control.empty()) {
    return TW_AGAIN;
  }
  std::byte* to = peer.link->port->reserve(*peer.link, body);
  if (to == nullptr) return TW_AGAIN;
  if (op.header_length != 0) std::memcpy(to, op.header, op.header_length);
  if (op.length != 0) {
    std::memcpy(to + op.header_length, op.address, op.length);
    peer.tally.moved.count(Way::eager, op.length);
  }
  FrameHeader header = am_header(Frame::am, op);
  header.length = static_cast<uint32_t>(body);
  const uint64_t at = trace::moment();
  peer.link->port->commit(*peer.link, header);
  peer.eager_credit -= eager_cost(body);
  if (at != 0) [[unlikely]]
    trace_sent(peer, trace::What::sent, op.tag, op.length, at);
  return TW_OK;
}

}  // namespace

Status start_am(Engine& engine, const OpDesc& op, const Completion& completion) {
  if (Status s = check_unasked(op); is_error(s)) return s;
  if (try_am(*op.peer, op) == TW_OK) {
    if (completion.request != nullptr) *completion.request = TW_REQUEST_NONE;
    return TW_OK;
  }
  return engine.launch(op, completion, kAmRoute);
}

// ------------------------------------------------------------------------------------------------ receiving

namespace {

/// The payload is not needed any more: credit goes back, a sender that waits completes.
void settle(Engine& engine, tw_am_data& data) {
  Peer* peer = data.peer;
  bool alive = peer != nullptr && peer->link != nullptr;
  if (alive && data.kind == Kind::rts) {
    consumed_rts(engine, *peer);
    rendezvous_drop(engine, *peer, data.rts.rts.op);
  } else if (alive && data.cost != 0) {
    consumed(engine, *peer, data.cost);
  }
  if (peer != nullptr && data.kind == Kind::rts) --peer->held_messages;
  let_go(engine, peer, std::exchange(data.cost, 0));
  data.kind = Kind::ended;
}

/// A long header is not needed any more, nor is a copy of it kept with the message.
void settle_header(Engine& engine, tw_am_data& data) {
  std::free(std::exchange(data.header, nullptr));
  give_back_header(engine, std::exchange(data.header_grant, 0));
  Peer* peer = data.peer;
  const uint64_t cost = std::exchange(data.header_cost, 0);
  const bool asked = std::exchange(data.asked, false);
  if (asked && peer != nullptr) end_header(engine, *peer);
  let_go(engine, peer, cost);
  if (cost != 0 && peer != nullptr && peer->link != nullptr) consumed(engine, *peer, cost);
}

/// A borrowed payload becomes ours. False: no memory.
bool keep(tw_am_data& data) {
  data.memory = static_cast<std::byte*>(std::malloc(data.length != 0 ? data.length : 1));
  if (data.memory == nullptr) return false;
  if (data.length != 0) std::memcpy(data.memory, data.data, data.length);
  data.data = data.memory;
  data.kind = Kind::here;
  return true;
}

void run_handler(Engine& engine, Peer& peer, tw_am_data& data, const std::byte* header) {
  const ActiveTable::Entry* entry = engine.active().find(data.id);
  if (entry == nullptr) {
    ++engine.active().dropped;
    warn_once("am_without_handler", "an active message for id " + std::to_string(data.id) +
                                        " was dropped: register a handler with tw_am_register before peers send to it");
    settle_header(engine, data);
    settle(engine, data);
    return engine.active().give_back(&data);
  }
  if (data.kind != Kind::rts && data.length != 0) {  // as the sender counts them
    peer.tally.received.add();
    peer.tally.received_bytes.add(data.length);
  }
  tw_am_message message{peer.endpoint,
                        data.id,
                        header,
                        data.header_length,
                        data.kind == Kind::rts ? nullptr : static_cast<const void*>(data.data),
                        data.length,
                        &data};
  data.in_handler = true;
  trace::Span span(trace::What::handler);
  span.peer = peer.identity.worker;
  span.bytes = data.length;
  Status status = entry->handler(entry->arg, &message);
  span.finish();
  data.in_handler = false;
  if (data.kind != Kind::ended && status == TW_IN_PROGRESS) {
    std::free(std::exchange(data.header, nullptr));
    if (data.kind != Kind::borrowed || keep(data)) return;
    engine.doom(peer, TW_ERR_NO_MEMORY, "no memory to keep an active message");
    data.kind = Kind::lost;  // the handler has the descriptor: receiving it reports the loss
    return;
  }
  settle_header(engine, data);
  if (data.kind != Kind::ended) settle(engine, data);
  engine.active().give_back(&data);
}

constexpr const char* kNoMemory = "no memory for an active message";

/// held: what is held for it in all.
tw_am_data* open(Engine& engine, Peer& peer, const FrameHeader& header, Kind kind, uint64_t length, uint64_t held) {
  tw_am_data* data = engine.active().take();
  if (data == nullptr) {
    doom_without_memory(engine, peer, held, kNoMemory);
    return nullptr;
  }
  data->kind = kind;
  data->id = header.id;
  data->engine = &engine;
  data->peer = &peer;
  data->header_length = header.a;
  data->length = length;
  if (trace::on()) [[unlikely]]
    trace_arrived(peer, true, header.id, length);
  return data;
}

}  // namespace

void on_am(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body) {
  if (header.a > header.length) return engine.violation(peer, "a bad active message header");
  uint64_t cost = static_cast<uint64_t>(eager_cost(header.length));
  if (!hold(peer, cost)) return engine.violation(peer, "more eager messages than it was granted");
  tw_am_data* data = open(engine, peer, header, Kind::borrowed, header.length - header.a, cost);
  if (data == nullptr) return;
  data->cost = cost;
  std::byte copy[kShortHeader];  // handlers parse it
  std::byte* at = copy;
  if (header.a > kShortHeader) [[unlikely]] {
    at = data->header = static_cast<std::byte*>(std::malloc(header.a));
    if (at == nullptr) {
      engine.active().give_back(data);
      return doom_without_memory(engine, peer, cost, kNoMemory);
    }
    data->header_cost = header.a;
    data->cost -= header.a;
  }
  if (!body.take(at, header.a)) return;
  data->data = body.payload();
  run_handler(engine, peer, *data, at);
}

void on_am_first(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body) {
  FirstBody first;
  if (!body.take(&first) || header.a > kShortHeader || header.a > body.left() || first.length == 0 ||
      first.length < body.left() - header.a || first.length > peer.granted_bytes ||
      peer.assembly.kind != Assembly::Kind::none) {
    return engine.violation(peer, "a bad first part of an active message");
  }
  uint64_t cost = static_cast<uint64_t>(eager_cost(first.length + header.a));
  if (!hold(peer, cost)) return engine.violation(peer, "more eager messages than it was granted");
  tw_am_data* data = open(engine, peer, header, Kind::arriving, first.length, cost);
  if (data == nullptr) return;
  data->cost = cost;
  data->memory = static_cast<std::byte*>(std::malloc(header.a + first.length));
  if (data->memory == nullptr) return engine.doom(peer, TW_ERR_NO_MEMORY, kNoMemory);
  const uint64_t here = body.left();
  std::memcpy(data->memory, body.payload(), here);
  data->data = data->memory + header.a;
  peer.assembly = Assembly{Assembly::Kind::active, first.op, first.length, here - header.a, nullptr, nullptr, data};
  if (peer.assembly.arrived == first.length) {
    peer.assembly = Assembly{};
    am_arrived(engine, peer, *data);
  }
}

void on_am_long(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body) {
  const bool announced = static_cast<Frame>(header.type & kFrameTypeMask) == Frame::am_long_rts;
  FirstBody first;
  ReceivedRts rts;
  const uint64_t length = header.a;  // of the header
  if (!body.take(&first) || (announced && !take_rts(header, body, &rts)) || length <= kShortHeader || length > first.length ||
      (announced && length != first.length) || first.length - length > peer.granted_bytes || body.left() == 0 ||
      body.left() > first.length || peer.assembly.kind != Assembly::Kind::none) {
    return engine.violation(peer, "a bad first part of a long header");
  }
  const bool asked = peer.header.granted;
  // What was asked for comes next, and what was not is on credit.
  if (asked ? length != peer.header.length : peer.header.length != 0 || length > peer.granted_bytes) {
    return engine.violation(peer, "a long header that was not granted");
  }
  const uint64_t payload = first.length - length;
  const uint64_t whole = static_cast<uint64_t>(eager_cost(payload + (asked ? 0 : length)));
  const uint64_t header_cost = asked ? 0 : announced ? whole : length, cost = announced ? 0 : whole - header_cost;
  if (!hold(peer, header_cost + cost)) return engine.violation(peer, "more eager messages than it was granted");
  if (announced && !hold_rts(peer)) {
    let_go(engine, &peer, header_cost + cost);
    return engine.violation(peer, "more RTS messages than it was granted");
  }
  const uint64_t of_payload = announced ? rts.rts.length : payload;
  tw_am_data* data = open(engine, peer, header, Kind::arriving, of_payload, header_cost + cost);
  if (data == nullptr) return;
  data->has_rts = announced;
  data->rts = rts;
  data->asked = asked;
  data->cost = cost;
  data->header_cost = header_cost;
  data->header = static_cast<std::byte*>(std::malloc(length));
  data->data = data->memory = static_cast<std::byte*>(std::malloc(payload != 0 ? payload : 1));
  if (data->header == nullptr || data->memory == nullptr) {
    return engine.doom(peer, TW_ERR_NO_MEMORY, kNoMemory);
  }
  peer.assembly = Assembly{Assembly::Kind::active, first.op, first.length, 0, nullptr, nullptr, data};
  const size_t n = body.left();
  am_part(*data, 0, body.payload(), n);
  peer.assembly.arrived = n;
  if (n != first.length) return;
  peer.assembly = Assembly{};
  am_arrived(engine, peer, *data);
}

void am_part(tw_am_data& data, uint64_t at, const std::byte* body, size_t n) {
  const uint64_t ahead = data.header != nullptr ? data.header_length : 0;
  if (at < ahead) {
    const size_t of_header = static_cast<size_t>(std::min<uint64_t>(n, ahead - at));
    std::memcpy(data.header + at, body, of_header);
    at += of_header;
    body += of_header;
    n -= of_header;
  }
  if (n != 0) std::memcpy(const_cast<std::byte*>(data.data) + (at - ahead), body, n);
}

void am_arrived(Engine& engine, Peer& peer, tw_am_data& data) {
  data.kind = data.has_rts ? Kind::rts : Kind::here;
  if (std::exchange(data.asked, false)) data.header_grant = take_header(peer);
  run_handler(engine, peer, data, data.header != nullptr ? data.header : data.memory);
}

void am_cut_short(Engine& engine, tw_am_data& data) {
  settle_header(engine, data);
  settle(engine, data);
  engine.active().give_back(&data);
}

void on_am_rts(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body) {
  ReceivedRts rts;
  std::byte copy[kShortHeader];
  if (!take_rts(header, body, &rts) || header.a > kShortHeader || header.a != body.left() || !body.take(copy, header.a)) {
    return engine.violation(peer, "a bad active message RTS");
  }
  if (!hold_rts(peer)) return engine.violation(peer, "more RTS messages than it was granted");
  tw_am_data* data = open(engine, peer, header, Kind::rts, rts.rts.length, 0);
  if (data == nullptr) return;
  data->rts = rts;
  run_handler(engine, peer, *data, copy);
}

namespace {
void take_payload(Engine& engine, OpRun& run, const std::byte* payload, uint64_t length) {
  const OpDesc& op = *run.op;
  const uint64_t n = std::min(length, op.length);
  if (needs_bounce_buffer(op)) {
    if (!open_bounce_buffer(run, length)) return engine.complete(run, TW_ERR_NO_MEMORY);
  } else {
    run.cursor.reset(op.address, op.layout, op.length);
  }
  if (n != 0) unpack(run.cursor, payload, n);
  if (run.bounce_buffer != nullptr) return deliver_bounce_buffer(engine, run);
  engine.complete_received(run);
}
}  // namespace

/// What a handler kept: nothing of it is needed any more.
static void end_kept(Engine& engine, tw_am_data& data) {
  settle_header(engine, data);
  engine.active().give_back(&data);
}

static Status refuse_ended() { return fail(TW_ERR_HANDLE, "this payload was received or released already"); }

Status active_receive(tw_am_data* data, const OpDesc& op, const Completion& completion) {
  if (data->engine == nullptr) return refuse_ended();
  Engine& engine = *data->engine;
  const Engine::Guard guard(engine);
  if (data->kind == Kind::ended) return refuse_ended();
  OpRun* run = engine.acquire(op, completion);
  if (run == nullptr) return TW_ERR_LIMIT;
  engine.hand_out(*run, completion);
  Peer* peer = data->peer;
  run->info = {peer != nullptr ? peer->endpoint : nullptr, data->id, 0, data->length};
  if (data->kind == Kind::lost || (data->kind == Kind::rts && (peer == nullptr || peer->link == nullptr))) {
    engine.complete(*run, TW_ERR_PEER_LOST, "the sender was lost before its payload was received");
    let_go(engine, peer, std::exchange(data->cost, 0));
    data->kind = Kind::ended;
  } else if (data->kind == Kind::rts) {
    const ReceivedRts rts = data->rts;
    --peer->held_messages;
    consumed_rts(engine, *peer);
    data->kind = Kind::ended;
    engine.bind(*run, *peer);
    const Engine::InCall in_call(engine);
    rendezvous_receive(engine, *peer, *run, rts);
  } else {
    take_payload(engine, *run, data->data, data->length);
    settle(engine, *data);
  }
  if (!data->in_handler) end_kept(engine, *data);
  return TW_IN_PROGRESS;
}

Status active_release(tw_am_data* data) {
  if (data->engine == nullptr) return refuse_ended();
  Engine& engine = *data->engine;
  const Engine::Guard guard(engine);
  if (data->kind == Kind::ended) return refuse_ended();
  settle(engine, *data);
  if (!data->in_handler) end_kept(engine, *data);
  return TW_OK;
}

}  // namespace thalweg::impl
