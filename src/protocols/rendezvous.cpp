// SPDX-License-Identifier: Apache-2.0
// The rendezvous protocol; see rendezvous.hpp for the frames.
//
// The receiver's run goes through phases (run.then): pulling its part of the payload, or taking data frames. When it asked
// the sender to push the second half, two parts are open at once: Receiving.open counts them. A part that fails (the kernel
// forbids it, a mapping is gone) is asked for again as data frames, which always work. The sender's run waits behind its
// RTS, serves one cts at a time, and completes with the cts that carried kFrameLast or with fin.
#include "protocols/rendezvous.hpp"

#include <algorithm>
#include <cstring>

#include "base/told_status.hpp"
#include "devices/device.hpp"
#include "memory/registry.hpp"
#include "protocols/bounce.hpp"
#include "protocols/dispatch.hpp"
#include "protocols/eager.hpp"
#include "protocols/flow.hpp"
#include "protocols/match.hpp"
#include "protocols/offers.hpp"
#include "protocols/operation_routes.hpp"
#include "protocols/pipeline.hpp"
#include "protocols/staging.hpp"
#include "protocols/tracing.hpp"

namespace thalweg::impl {

namespace {

/// OpRun::state of a receive.
struct Receiving {
  RtsBody rts;
  uint32_t split;  // in units of kSplit: this end copies [0, split), the sender [split, wanted)
  uint8_t open;    // parts under way
  bool pull_failed, push_failed;
  Way way;  // of the parts
};
static_assert(sizeof(Receiving) <= sizeof(OpRun::state));

Receiving& receiving(OpRun& run) { return *reinterpret_cast<Receiving*>(run.state); }
uint64_t split_at(OpRun& run) { return std::min(receiving(run).split * kSplit, wanted(run)); }

bool find_segment(Engine& engine, const OpDesc& op, uint64_t* segment, uint64_t* offset) {
  return engine.options().registry != nullptr && op.layout == nullptr &&
         engine.registry().find_segment(op.address, op.length, segment, offset);
}

/// Room first, because a claim cannot be taken back.
Status send_claiming_rts(Peer& peer, FrameHeader* frame, const std::byte* body, const Claim& claim) {
  Port& port = *peer.link->port;
  std::byte* const to = port.reserve(*peer.link, frame->length);
  if (to == nullptr) return TW_AGAIN;
  if (take_claim(peer, claim)) frame->id = static_cast<uint16_t>(claim.entry + 1);
  std::memcpy(to, body, frame->length);
  port.commit(*peer.link, *frame);
  return TW_OK;
}

}  // namespace

// ------------------------------------------------------------------------------------------------ the sender

size_t describe_rts(Engine& engine, Peer& peer, OpRun& run, FrameHeader* frame, std::byte* body) {
  const OpDesc& op = *run.op;
  RtsBody rts{engine.runs().wire_op(run), op.length, 0, 0, 0};
  DeviceBody device{};
  size_t used = sizeof rts;
  if ((op.flags & (kOpDevice | kOpLate)) == 0) {
    if (op.layout == nullptr && (peer.link->features & (kLinkSingleCopy | kLinkSameProcess)) != 0) {
      rts.address = reinterpret_cast<uint64_t>(op.address);
    }
    if ((peer.link->features & kLinkMaps) != 0) find_segment(engine, op, &rts.segment, &rts.segment_offset);
  }
  if (describe_device(engine, run, &rts, &device)) {
    frame->flags |= kFrameDevice;
    std::memcpy(body + used, &device, sizeof device);
    used += sizeof device;
  }
  std::memcpy(body, &rts, sizeof rts);
  return used;
}

void await_receiver(Peer& peer, OpRun& run) {
  --peer.rts_credit;
  peer.tally.announced.add();
  peer.tally.announced_bytes.add(run.op->length);
  run.stage = kRtsSent;
  run.cancelable = false;
  run.fin = [](Engine& e, OpRun& r, Status) {
    // A receiver that ends early (truncated, dropped) does not concern the sender, unless its memory is still read.
    if (r.pipeline.kind != Pipeline::none || r.stage == kServing)
      return e.violation(*r.peer, "an end in the middle of a transfer");
    e.complete(r, TW_OK);
  };
}

Status send_rts(Engine& engine, Peer& peer, OpRun& run, FrameHeader frame, const std::byte* header, size_t header_length) {
  const OpDesc& op = *run.op;
  if (peer.rts_credit <= 0) return TW_AGAIN;
  std::byte body[kMostRts + kShortHeader];
  const size_t used = describe_rts(engine, peer, run, &frame, body);
  if (header_length != 0) std::memcpy(body + used, header, header_length);
  frame.length = static_cast<uint32_t>(used + header_length);
  Claim claim;
  const bool tagged = op.verb == Verb::send;
  const bool offered = tagged && (op.flags & kOpGroup) == 0;  // receives of groups are not
  const SendingRts sending_rts(peer, op, offered);
  const bool claims = offered && find_claim(engine, peer, op, &claim);
  const uint64_t at = trace::moment();
  const Status status = claims ? send_claiming_rts(peer, &frame, body, claim) : peer.link->port->send(*peer.link, frame, body);
  if (status != TW_OK) return status;
  if (at != 0) [[unlikely]]
    trace_sent(peer, trace::What::announced, op.tag, op.length, at);
  await_receiver(peer, run);
  if (frame.id != 0 && tagged) device_push_claimed(engine, run, claim);
  return TW_IN_PROGRESS;
}

namespace {

Status step_send(OpRun& run) {
  const OpDesc& op = *run.op;
  Peer& peer = *op.peer;
  return send_rts(*peer.engine, peer, run, make_header(Frame::tagged_rts, 0, op.tag, op.immediate, space_flag(op)), nullptr, 0);
}

void push_done(Engine& engine, OpRun& run, Status status) { send_fin(engine, *run.peer, run.peer_op, status); }

template <bool kLast>
void frames_sent(Engine& engine, OpRun& run, Status status) {
  if (is_error(status)) return give_up(engine, run, run.pipeline.dest_op, status);
  if (kLast) engine.complete(run, status);
}

void start_push(Engine& engine, Peer& peer, OpRun& run, const CtsBody& cts) {
  Elsewhere other;
  run.peer_op = cts.op;
  if (cts.segment != 0) {
    // Packed offset 0 would be `offset` before the part's first byte.
    other.segment = cts.segment;
    other.segment_offset = cts.segment_offset - cts.offset;
    Mapping* mapping = nullptr;
    bool there = cts.segment_offset >= cts.offset && (peer.link->features & kLinkMaps) != 0 &&
                 peer.link->port->import(*peer.link, cts.segment, &mapping) == TW_OK;
    if (!there) return send_fin(engine, peer, cts.op, TW_ERR_UNSUPPORTED);
  } else {
    other.address = cts.address - cts.offset;
    other.by_kernel = !same_process(*peer.link);
    if (other.by_kernel && (peer.link->features & kLinkSingleCopy) == 0) {
      return send_fin(engine, peer, cts.op, TW_ERR_UNSUPPORTED);
    }
  }
  pipeline_push(engine, peer, run, other, cts.offset, cts.length, push_done);
}

}  // namespace

const Protocol kRendezvousSend = {"rendezvous", Verb::send, step_send, nullptr};

void on_cts(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body) {
  CtsBody cts;
  if (!body.take(&cts)) return engine.violation(peer, "a short cts frame");
  OpRun* run = engine.runs().answered(header.a, peer);
  if (run == nullptr) return;
  bool sends = (run->op->verb == Verb::send || run->op->verb == Verb::am) && run->stage == kRtsSent && run->fin != nullptr;
  if (!sends || run->pipeline.kind != Pipeline::none || cts.length == 0 || cts.offset > run->op->length ||
      cts.length > run->op->length - cts.offset) {
    return engine.violation(peer, "a cts for what was not announced");
  }
  const bool device = (header.flags & kFrameDevice) != 0, last = (header.flags & kFrameLast) != 0;
  const bool frames = !device && cts.address == 0 && cts.segment == 0;
  // Each byte is packed once, and in order.
  if (by_calls(*run->op) && (!frames || !last || cts.offset != 0)) {
    return engine.violation(peer, "a cts for more than the frames of a message that is packed by calls");
  }
  if (device || (run->op->flags & kOpLate) != 0) return device_serve(engine, peer, *run, cts, device ? &body : nullptr, last);
  if (!frames) return start_push(engine, peer, *run, cts);
  start_frames(engine, peer, *run, cts, last);
}

void start_frames(Engine& engine, Peer& peer, OpRun& run, const CtsBody& cts, bool last) {
  pipeline_out(engine, peer, run, cts.op, cts.offset, cts.length, last ? frames_sent<true> : frames_sent<false>);
  if (last && cts.segment_offset != 0 && names_pieces(by_calls(*run.op))) name_pieces(engine, peer, run, cts.segment_offset);
}

void give_up(Engine& engine, OpRun& run, uint64_t op, Status status) {
  const auto code = static_cast<uint64_t>(int64_t{status});
  engine.send_control(*run.peer, make_header(Frame::fin, 0, op, code, kFrameLast), nullptr);
  engine.complete(run, status, last_error());
}

// ------------------------------------------------------------------------------------------------ the receiver

void send_fin(Engine& engine, Peer& peer, uint64_t op, Status status) {
  engine.send_control(peer, make_header(Frame::fin, 0, op, static_cast<uint64_t>(int64_t{status})), nullptr);
}

void rendezvous_drop(Engine& engine, Peer& peer, uint64_t op) { send_fin(engine, peer, op, TW_OK); }

bool take_rts(const FrameHeader& header, PeerBytes& body, ReceivedRts* out) {
  out->near_device = (header.flags & kFrameDevice) != 0;
  // No buffer is longer; users compute with what they are told.
  return body.take(&out->rts) && out->rts.length <= kLongestMessage && (!out->near_device || body.take(&out->device));
}

namespace {

void send_cts(Engine& engine, Peer& peer, OpRun& run, uint64_t rts_op, uint64_t offset, uint64_t length, const CtsBody& where,
              uint8_t flags) {
  CtsBody cts = where;
  cts.op = engine.runs().wire_op(run);
  cts.offset = offset;
  cts.length = length;
  engine.send_control(peer, make_header(Frame::cts, sizeof cts, rts_op, 0, flags), &cts);
}

/// The sender completes by itself: the cts carried kFrameLast.
template <Way kWay>
void frames_done(Engine& engine, OpRun& run, Status status) {
  is_error(status) ? engine.complete(run, status) : received_by(engine, run, kWay);
}

}  // namespace

void received_by(Engine& engine, OpRun& run, Way way) {
  if (run.peer != nullptr) {
    EndpointTally& tally = run.peer->tally;
    const uint64_t bytes = wanted(run);
    tally.moved.count(way, bytes);
    tally.fetched.add();
    tally.fetched_bytes.add(bytes);
    tally.received.add();
    tally.received_bytes.add(bytes);
  }
  engine.complete_received(run);
}

void ask_for_frames(Engine& engine, Peer& peer, OpRun& run, uint64_t rts_op, uint64_t from, uint64_t to, bool staged,
                    uint64_t forms) {
  run.stage = kAsked;
  pipeline_in(engine, peer, run, from, to - from, staged ? frames_done<Way::staging> : frames_done<Way::frames>);
  CtsBody where{};
  where.segment_offset = forms;
  send_cts(engine, peer, run, rts_op, from, to - from, where, kFrameLast);
}

namespace {

void part_over(Engine& engine, OpRun& run) {
  Receiving& state = receiving(run);
  if (--state.open != 0) return;
  Peer& peer = *run.peer;
  if (state.pull_failed || state.push_failed) {
    const uint64_t split = split_at(run), pulled = run.pipeline.position;  // what is here is not unpacked again
    ask_for_frames(engine, peer, run, state.rts.op, state.pull_failed ? pulled : split,
                   state.push_failed ? wanted(run) : split);
    return;
  }
  send_fin(engine, peer, state.rts.op, TW_OK);
  received_by(engine, run, state.way);
}

void pull_done(Engine& engine, OpRun& run, Status status) {
  if (is_error(status)) receiving(run).pull_failed = true;
  part_over(engine, run);
}

/// fin from the sender: its half is pushed.
void push_reported(Engine& engine, OpRun& run, Status status) {
  Receiving& state = receiving(run);
  run.fin = nullptr;
  if (is_error(status)) state.push_failed = true;
  part_over(engine, run);
}

}  // namespace

bool choose_pull(Peer& peer, const OpDesc& into, const RtsBody& rts, Elsewhere* other) {
  Link& link = *peer.link;
  Message message{link.features, rts.length, false, rts.address != 0, rts.segment != 0};
  message.unpacked = by_calls(into);
  uint32_t failed = 0;
  for (;;) {
    const MessageRoute route = rts_route(peer.limits, message, failed);
    failed |= bit_of(route);
    if (route == MessageRoute::frames) return false;
    *other = Elsewhere{};
    if (route == MessageRoute::kernel || same_process(link)) {
      other->address = rts.address;
      other->by_kernel = route == MessageRoute::kernel;
      return true;
    }
    Mapping* mapping = nullptr;
    // A mapping in the making is not waited for: another way is quicker this once.
    if (link.port->import(link, rts.segment, &mapping) != TW_OK) continue;
    other->segment = rts.segment;
    other->segment_offset = rts.segment_offset;
    return true;
  }
}

namespace {

/// How many bytes this end copies, and where the sender copies the rest to.
uint64_t share_with_sender(Engine& engine, Peer& peer, OpRun& run, const Elsewhere& pull, CtsBody* where) {
  const Link& link = *peer.link;
  ReceiveBuffer into{run.op->layout == nullptr, false};
  if (!pull.by_kernel && !same_process(link))
    into.library = find_segment(engine, *run.op, &where->segment, &where->segment_offset);
  const MessageRoute route = pull.by_kernel ? MessageRoute::kernel : MessageRoute::direct;
  const uint64_t part = receivers_part(peer.limits, link.features, route, wanted(run), into);
  if (pull.by_kernel) {
    where->address = reinterpret_cast<uint64_t>(run.op->address) + part;
  } else {
    where->segment_offset += part;
  }
  return part;
}

}  // namespace

void rendezvous_receive(Engine& engine, Peer& peer, OpRun& run, const ReceivedRts& received_rts) {
  run.cancelable = false;
  if (peer.link == nullptr) return;  // lost inside a call of ours: the end of this progress ends the run
  const RtsBody& rts = received_rts.rts;
  uint64_t length = wanted(run);
  if (length == 0) {
    send_fin(engine, peer, rts.op, TW_OK);
    return engine.complete_received(run);
  }
  if (received_rts.near_device || (run.op->flags & (kOpDevice | kOpLate)) != 0) {
    return device_receive(engine, peer, run, received_rts);
  }
  if (!receive_by_cpu(engine, peer, run, rts)) ask_for_frames(engine, peer, run, rts.op, 0, length);
}

bool receive_by_cpu(Engine& engine, Peer& peer, OpRun& run, const RtsBody& announced) {
  const RtsBody rts = announced;  // which may lie in the run's state
  Elsewhere other;
  if (!choose_pull(peer, *run.op, rts, &other)) return false;
  const uint64_t length = wanted(run);
  CtsBody where{};
  const uint64_t split = share_with_sender(engine, peer, run, other, &where);
  Receiving& state = receiving(run);
  state = Receiving{rts, 0, 1, false, false, Way::any};
  state.way = other.by_kernel ? Way::kernel : Way::mapped;
  state.split = split == length ? UINT32_MAX : static_cast<uint32_t>(split / kSplit);
  if (split != length) {
    state.open = 2;
    run.fin = push_reported;
    send_cts(engine, peer, run, rts.op, split, length - split, where, 0);
  }
  pipeline_pull(engine, peer, run, other, 0, split, pull_done);
  return true;
}

void on_tagged_rts(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body) {
  ReceivedRts rts;
  if (!take_rts(header, body, &rts)) return engine.violation(peer, "a short RTS, or one of more bytes than a buffer can have");
  const bool claims = header.id != 0;
  OpRun* run = claims ? take_claimed(engine, peer, header, rts.rts.length)
                      : engine.receives().to_match(header.flags).match(header.a, &peer);
  if (claims ? run == nullptr : !free_to_match(engine, peer, header.a, &run)) return;
  if (trace::on()) [[unlikely]]
    trace_arrived(peer, run != nullptr, header.a, rts.rts.length);
  if (run != nullptr) {
    run->info = {peer.endpoint, header.a, header.b, rts.rts.length};
    engine.bind(*run, peer);
    consumed_rts(engine, peer);
    return claims ? device_claimed(engine, peer, *run, rts) : rendezvous_receive(engine, peer, *run, rts);
  }
  if (!hold_rts(peer)) return engine.violation(peer, "more RTS messages than it was granted");
  tw_message* message = Matcher::make(0);
  if (message == nullptr) return engine.doom(peer, TW_ERR_NO_MEMORY, "no memory for an unmatched message");
  message->kind = tw_message::Kind::rts;
  message->engine = &engine;
  message->peer = &peer;
  message->info = {peer.endpoint, header.a, header.b, rts.rts.length};
  message->rts = rts;
  engine.receives().matcher(header.flags).keep(*message);
}

void on_fin(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes) {
  const Status status = told_outcome(static_cast<int64_t>(header.b));
  if ((header.flags & kFrameMore) != 0) return cut_short(engine, peer, header.a, status);
  OpRun* run = engine.runs().answered(header.a, peer);
  if (run == nullptr) return;
  if ((header.flags & kFrameLast) != 0) {
    if (!receives(*run) || run->stage != kAsked) return engine.violation(peer, "an end of what was not asked for");
    if (run->staging != nullptr) run->staging->end();  // a bounce buffer's chunk does not wait for the user's release
    return engine.complete(*run, is_error(status) ? status : TW_ERR_PROTOCOL, kUndelivered);
  }
  if (run->fin == nullptr) return engine.violation(peer, "an end of what does not wait for one");
  run->fin(engine, *run, status);
}

}  // namespace thalweg::impl
