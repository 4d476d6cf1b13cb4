// SPDX-License-Identifier: Apache-2.0
// Get by frames: the requester asks for one fragment after the other, a few at a time, the target answers each with one data
// frame. So the target keeps nothing but answers for which there was no room, and reads only memory whose key is alive.
#include <algorithm>
#include <vector>

#include "protocols/answer.hpp"
#include "protocols/dispatch.hpp"
#include "protocols/one_sided.hpp"
#include "protocols/pipeline.hpp"

namespace thalweg::impl {
namespace {

constexpr uint64_t kWindow = 16;  // fragments requested and not answered, per get

void arrived(Engine& engine, OpRun& run, Status status) {
  confirm(*run.peer, run);
  if (status == TW_OK) count_moved(*run.op, of_device(*run.op->remote) ? Way::staging : Way::frames);
  engine.complete(run, status);
}

/// Fin means that a fragment could not be read.
void refused(Engine& engine, OpRun& run, Status status) {
  confirm(*run.peer, run);
  engine.complete(run, is_error(status) ? status : TW_ERR_PROTOCOL);
}

Status ask(Peer& peer, OpRun& run) {
  const OpDesc& op = *run.op;
  uint64_t length = std::min<uint64_t>(op.length - run.moved, queue_fragment(peer)), skip = 0;
  std::byte body[sizeof(GetBody) + kWireLayout];
  size_t wire = 0;
  uint64_t offset = op.remote_offset + run.moved;
  if (op.remote_layout != nullptr) {
    wire = encode_part(*op.remote_layout, run.moved, &length, &skip, body + sizeof(GetBody));
    offset = op.remote_offset;
  }
  const GetBody fields{peer.engine->runs().wire_op(run), length, run.moved, skip};
  std::memcpy(body, &fields, sizeof fields);
  const size_t size = sizeof fields + wire;
  const Status s = peer.link->port->send(*peer.link, make_header(Frame::get, size, op.remote->key.rkey, offset), body);
  if (s == TW_OK) run.moved += length;
  return s;
}

Status step(OpRun& run) {
  Peer& peer = *run.peer;
  if (peer.link == nullptr) return TW_AGAIN;
  if (run.stage == 0) {
    if (run.op->length == 0) return TW_OK;
    if (run.op->remote->key.incarnation != peer.identity.incarnation) return TW_ERR_STALE;  // posted while connecting
    run.stage = 1;
    run.fin = refused;
    count_in(run, Counted::get);
    pipeline_in(*peer.engine, peer, run, 0, run.op->length, arrived);
  }
  if (run.moved - run.pipeline.arrived >= kWindow * queue_fragment(peer)) return TW_AGAIN;
  const Status s = ask(peer, run);
  // What came before the link broke is still read, straight into the buffer: the loss, which is reported behind it, ends the
  // run.
  if (is_error(s) && run.moved != 0) return TW_AGAIN;
  if (s != TW_OK) return s;
  note_frames(peer, run);
  return run.moved < run.op->length ? TW_AGAIN : TW_IN_PROGRESS;
}

// ------------------------------------------------------------------------------------------------ target

struct Answer {
  uint64_t rkey, offset, op, length, at, skip;
};

/// TW_OK: answered with data or with fin. TW_AGAIN: no room.
Status answer_get(Engine& engine, Peer& peer, const Answer& answer, const OpDesc& op) {
  const Layout* const layout = op.remote_layout;
  Link& link = *peer.link;
  const FrameHeader header = make_header(Frame::data, answer.length, answer.op, answer.at);
  Status status;
  {
    Registry::Reading reading(engine.registry());
    Target target;
    if (layout == nullptr) {
      status = engine.registry().resolve(reading, answer.rkey, answer.offset, answer.length, TW_MEMORY_READ, &target);
    } else {
      status = resolve_layout(engine.registry(), reading, answer.rkey, answer.offset, *layout, TW_MEMORY_READ, &target);
    }
    if (status == TW_OK) {
      if (target.device != nullptr) {
        std::vector<std::byte> bytes(answer.length);
        status = at_device(engine.registry(), reading, answer.rkey,
                           [&] { return load_from_device(engine, target, layout, answer.skip, bytes.data(), answer.length); });
        if (status == TW_OK) return link.port->send(link, header, bytes.data());
      } else {
        std::byte* room = link.port->reserve(link, answer.length);
        if (room == nullptr) return TW_AGAIN;
        LayoutCursor from(target.address, layout, layout != nullptr ? layout->bytes : answer.length);
        from.seek(answer.skip);
        pack(from, room, answer.length);
        link.port->commit(link, header);
        return TW_OK;
      }
    }
  }
  send_fin(engine, peer, answer.op, status);
  return TW_OK;
}

}  // namespace

const Protocol kGetFrames = {"get_frames", Verb::get, step, nullptr};

void on_get(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body) {
  GetBody fields;
  if (!body.take(&fields)) return engine.violation(peer, "a get too short for its own fields");
  if (fields.length > peer.link->copy_max) return engine.violation(peer, "a get of more than a frame");
  Layout* layout = nullptr;
  if (body.left() != 0) {
    if (is_error(decode(body, &layout))) return engine.violation(peer, "a layout that does not parse");
    if (body.left() != 0 || fields.skip > layout->bytes || fields.length > layout->bytes - fields.skip) {
      release(layout);
      return engine.violation(peer, "a get beyond its layout");
    }
  }
  const Answer answer{header.a, header.b, fields.op, fields.length, fields.at, layout != nullptr ? fields.skip : 0};
  OpDesc op;
  op.remote_layout = layout;
  Answering<Answer, Verb::get, answer_get>::give(engine, peer, answer, op);
  release(layout);
}

}  // namespace thalweg::impl
