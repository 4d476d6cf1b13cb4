// SPDX-License-Identifier: Apache-2.0
// Pipelines of pieces; see pipeline.hpp.
//
// A phase begins with one of the stream_* functions and ends in finish(): pipeline.kind goes back to none first, because
// `then` may begin the next phase or complete the run. Between the two the run is in peer.pipelines while it has pieces to
// push; pieces sent by reference may outlive that, the last piece_sent ends the phase then.
#include "protocols/pipeline.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/platform/string_copy.hpp"
#include "protocols/bounce.hpp"
#include "protocols/dispatch.hpp"
#include "protocols/eager.hpp"
#include "protocols/one_sided.hpp"
#include "protocols/rendezvous.hpp"
#include "protocols/staging.hpp"
#include "trace/trace.hpp"

namespace thalweg::impl {

namespace {

constexpr size_t kCopyPiece = 256u << 10;  // of a mapped copy: some ten microseconds
constexpr size_t kKernelPiece = 1u << 20;  // of a kernel copy
constexpr uint32_t kInFlight = 8;          // pieces by reference and run
constexpr size_t kRuns = 16;
/// With so many bytes on their way in, what is copied out leaves the caches before anybody reads it. Measured: below,
/// reading the message afterwards costs more than is saved.
constexpr uint64_t kBeyondCaches = 4u << 20;

void finish(Engine& engine, OpRun& run, Status status) {
  if (run.list != nullptr) run.list->remove(&run);
  if (run.staging != nullptr) run.staging->end();
  engine.incoming.end(run);
  run.then(engine, run, status);
}

bool on_device(const OpRun& run) { return (run.op->flags & kOpDevice) != 0; }

void begin(Engine& engine, OpRun& run, Pipeline::Kind kind, uint64_t offset, uint64_t length, Then then) {
  Pipeline& pipeline = run.pipeline;
  pipeline.kind = kind;
  pipeline.flags = 0;
  pipeline.contiguous = run.op->layout == nullptr && !on_device(run);
  pipeline.in_flight = 0;
  pipeline.begin = pipeline.position = offset;
  pipeline.end = offset + length;
  pipeline.arrived = 0;
  run.then = then;
  if (on_device(run)) {
    const bool out = kind == Pipeline::out || kind == Pipeline::push;
    stage(engine, run, out ? Staging::Direction::out : Staging::Direction::in, offset, offset + length);
  } else if (!pipeline.contiguous) {
    run.cursor.reset(run.op->address, run.op->layout, run.op->length);
    if (offset != 0) run.cursor.seek(offset);
  }
}

void queue_turns(Engine& engine, Peer& peer, OpRun& run) {
  if (run.list != nullptr) run.list->remove(&run);
  peer.pipelines.push_back(&run);
  engine.pusher().wants(peer);
}

/// The token for on_sent(): the run's number, because the run may have ended by then and its slot be another one's.
void* token_of(const Peer& peer, const OpRun& run) { return reinterpret_cast<void*>(peer.engine->runs().number(run)); }

Status send_reference(Peer& peer, OpRun& run, FrameHeader header, const Piece& piece) {
  iovec pieces[2];
  size_t count = 0;
  if (piece.prefix_length != 0) pieces[count++] = {const_cast<void*>(piece.prefix), piece.prefix_length};
  pieces[count++] = {run.op->address + piece.position, piece.length};
  Status status = peer.link->port->send_reference(*peer.link, header, pieces, count, token_of(peer, run));
  if (status != TW_IN_PROGRESS) return status;
  ++run.pipeline.in_flight;
  return TW_OK;
}

/// The next piece from staging; TW_IN_PROGRESS also while it is still on its way there.
Status staged_turn(Engine& engine, Peer& peer, OpRun& run) {
  Pipeline& pipeline = run.pipeline;
  size_t n = 0;
  Status status = TW_OK;
  const std::byte* bytes = run.staging->look(pipeline.position, &n, &status);
  if (bytes == nullptr && pipeline.in_flight == 0) run.staging->taken(pipeline.position);
  // Not before the link has read what it has of the chunks: others get them next.
  const bool failed = is_error(status) && pipeline.in_flight == 0;
  if (failed) return finish(engine, run, status), TW_OK;
  if (bytes == nullptr && run.staging->bounce() != nullptr && run.work == 0) {
    peer.pipelines.remove(&run);
    if (pipeline.in_flight == 0) run.staging->wait_for_chunk();  // else on_taken() queues it again
    return TW_OK;
  }
  if (bytes == nullptr) return TW_IN_PROGRESS;
  if (run.staging->bounce() != nullptr) {
    status = send_named(engine, peer, run, make_header(Frame::data_at, 0, pipeline.dest_op, pipeline.position), bytes, n);
  } else {
    const bool reference = by_reference(peer.limits, true, n) && pipeline.in_flight < kInFlight;
    n = std::min<size_t>(n, reference ? peer.limits.reference_fragment : peer.limits.fragment);
    const FrameHeader header = make_header(Frame::data, n, pipeline.dest_op, pipeline.position, pipeline.flags);
    const iovec piece{const_cast<std::byte*>(bytes), n};
    status = reference ? peer.link->port->send_reference(*peer.link, header, &piece, 1, token_of(peer, run))
                       : peer.link->port->send(*peer.link, header, bytes);
    if (status == TW_IN_PROGRESS) ++pipeline.in_flight;
  }
  if (status < 0 || status == TW_AGAIN) return status == TW_AGAIN ? TW_AGAIN : (finish(engine, run, status), TW_OK);
  pipeline.position += n;
  if (pipeline.in_flight == 0) run.staging->taken(pipeline.position);  // else the link still reads the chunks
  if (pipeline.position != pipeline.end) return TW_IN_PROGRESS;
  if (pipeline.in_flight == 0) {
    finish(engine, run, TW_OK);
  } else {
    peer.pipelines.remove(&run);  // piece_sent ends it
  }
  return TW_OK;
}

Status out_turn(Engine& engine, Peer& peer, OpRun& run) {
  if (run.staging != nullptr) return staged_turn(engine, peer, run);
  Pipeline& pipeline = run.pipeline;
  uint64_t left = pipeline.end - pipeline.position;
  const bool reference = by_reference(peer.limits, pipeline.contiguous, left);
  size_t n = static_cast<size_t>(std::min<uint64_t>(left, reference ? peer.limits.reference_fragment : peer.limits.fragment));
  Status status = send_piece(peer, run, make_header(Frame::data, 0, pipeline.dest_op, pipeline.position, pipeline.flags),
                             Piece{.position = pipeline.position, .length = n});
  if (status != TW_OK) return status == TW_AGAIN ? TW_AGAIN : (finish(engine, run, status), TW_OK);
  pipeline.position += n;
  if (pipeline.position != pipeline.end && pipeline.in_flight < kInFlight) return TW_IN_PROGRESS;
  if (pipeline.in_flight == 0) {
    finish(engine, run, TW_OK);
  } else {
    peer.pipelines.remove(&run);  // piece_sent queues it again, or ends it
  }
  return TW_OK;
}

/// One kernel copy of up to n bytes, of the local side or of `room`. Bytes moved or an error.
int64_t kernel_copy(Peer& peer, OpRun& run, size_t n, std::byte* room) {
  Pipeline& pipeline = run.pipeline;
  iovec local[kRuns];
  size_t count = 1;
  size_t covered = n;
  if (room != nullptr) {
    local[0] = {room, n};
  } else if (pipeline.contiguous) {
    local[0] = {run.op->address + pipeline.position, n};
  } else {
    LayoutCursor::Run runs[kRuns];
    LayoutCursor ahead = run.cursor;
    count = gather_runs(ahead, n, runs, kRuns);
    covered = 0;
    for (size_t i = 0; i < count; ++i) {
      local[i] = {runs[i].address, runs[i].length};
      covered += runs[i].length;
    }
  }
  iovec remote{reinterpret_cast<void*>(pipeline.other.address + pipeline.position), covered};
  Port& port = *peer.link->port;
  int64_t moved = pipeline.kind == Pipeline::pull ? port.read_peer(*peer.link, local, count, &remote, 1)
                                                  : port.write_peer(*peer.link, local, count, &remote, 1);
  if (moved > static_cast<int64_t>(covered)) moved = static_cast<int64_t>(covered);
  if (moved > 0 && !pipeline.contiguous && room == nullptr) run.cursor.seek(pipeline.position + static_cast<uint64_t>(moved));
  return moved == 0 ? int64_t{TW_ERR_IO} : moved;
}

/// Where the other side's packed offset 0 is mapped now; null with *status when it is not (any more).
std::byte* reach(Peer& peer, const Pipeline& pipeline, Status* status) {
  if (pipeline.other.segment == 0) return reinterpret_cast<std::byte*>(pipeline.other.address);
  Mapping* mapping = nullptr;
  *status = peer.link->port->import(*peer.link, pipeline.other.segment, &mapping);
  if (*status == TW_IN_PROGRESS) *status = TW_ERR_STALE;
  if (*status != TW_OK) return nullptr;
  uint64_t offset = pipeline.other.segment_offset;
  if (mapping->revoked) {
    *status = mapping->why;
    return nullptr;
  }
  if (offset > mapping->length || pipeline.end > mapping->length - offset) {
    *status = TW_ERR_OUT_OF_BOUNDS;
    return nullptr;
  }
  return mapping->address + offset;
}

/// The next piece, by this process's own loads and stores or by the kernel. While it runs the other side keeps its memory.
Status copy_piece(Peer& peer, OpRun& run) {
  Pipeline& pipeline = run.pipeline;
  trace::Span span(trace::What::copy);
  span.peer = peer.identity.worker;
  size_t left = pipeline.end - pipeline.position;
  std::byte* room = nullptr;
  if (run.staging != nullptr) {
    size_t n = 0;
    Status status = TW_OK;
    room = run.staging->room(pipeline.position, &n, &status);
    if (room == nullptr) return status;
    left = std::min(left, n);
  }
  if (pipeline.other.by_kernel) {
    int64_t moved = kernel_copy(peer, run, std::min(left, kKernelPiece), room);
    if (moved < 0) return static_cast<Status>(moved);
    span.bytes = static_cast<uint64_t>(moved);
    pipeline.position += static_cast<uint64_t>(moved);
    return TW_OK;
  }
  Status status = TW_OK;
  std::byte* other = reach(peer, pipeline, &status);
  if (other == nullptr) return status;
  size_t n = std::min(left, kCopyPiece);
  std::byte* there = other + pipeline.position;
  std::byte* here = room != nullptr ? room : run.op->address + pipeline.position;
  bool pull = pipeline.kind == Pipeline::pull;
  if (pipeline.contiguous || room != nullptr) {
    pull ? std::memmove(here, there, n) : std::memmove(there, here, n);
  } else {
    pull ? unpack(run.cursor, there, n) : pack(run.cursor, there, n);
  }
  span.bytes = n;
  pipeline.position += n;
  return TW_OK;
}

Status copy_turn(Engine& engine, Peer& peer, OpRun& run) {
  Link& link = *peer.link;
  Status status = TW_ERR_PEER_LOST;
  if (link.port->enter_peer(link)) {
    status = copy_piece(peer, run);
    link.port->leave_peer(link);
  }
  const bool last = run.pipeline.position == run.pipeline.end;
  if (status == TW_OK && run.staging != nullptr) {
    if (last && run.list != nullptr) run.list->remove(&run);
    run.staging->filled(run.pipeline.position, finish);
    return last ? TW_OK : TW_IN_PROGRESS;
  }
  if (status == TW_OK && !last) return TW_IN_PROGRESS;
  finish(engine, run, status);
  return TW_OK;
}

void copy_begin(Engine& engine, Peer& peer, OpRun& run, Pipeline::Kind kind, const Elsewhere& other, uint64_t offset,
                uint64_t length, Then then) {
  begin(engine, run, kind, offset, length, then);
  run.pipeline.other = other;
  if (length == 0) return finish(engine, run, TW_OK);
  // The first piece goes at once: most transfers have one, and turns are for what is left.
  if (copy_turn(engine, peer, run) == TW_IN_PROGRESS) queue_turns(engine, peer, run);
}

/// Into as many chunks as it takes; what fills one goes on to the device.
Status to_staging(OpRun& run, uint64_t position, const std::byte* body, size_t length) {
  while (length != 0) {
    size_t n = 0;
    Status status = TW_OK;
    std::byte* room = run.staging->room(position, &n, &status);
    if (room == nullptr) return status;
    n = std::min(n, length);
    std::memcpy(room, body, n);
    position += n;
    body += n;
    length -= n;
    if (length != 0) run.staging->filled(position, finish);
  }
  return TW_OK;
}

}  // namespace

Status send_piece(Peer& peer, OpRun& run, FrameHeader header, const Piece& piece) {
  Link& link = *peer.link;
  size_t body = piece.prefix_length + piece.length + piece.suffix_length;
  header.length = static_cast<uint32_t>(body);
  bool contiguous = run.op->layout == nullptr;
  if (piece.by_reference && piece.suffix_length == 0 && by_reference(peer.limits, contiguous, piece.length)) {
    return send_reference(peer, run, header, piece);
  }
  if (contiguous && body == piece.length) return link.port->send(link, header, run.op->address + piece.position);
  std::byte* room = link.port->reserve(link, body);
  if (room == nullptr) return TW_AGAIN;
  if (piece.prefix_length != 0) std::memcpy(room, piece.prefix, piece.prefix_length);
  std::byte* payload = room + piece.prefix_length;
  if (piece.length != 0) {
    if (contiguous) {
      link.body_copy.copy(payload, run.op->address + piece.position, piece.length);
    } else {
      pack(run.cursor, payload, piece.length);
      if (const Status status = calls_failed(run.op->layout); is_error(status)) [[unlikely]]
        return status;  // nothing goes
    }
  }
  if (piece.suffix_length != 0) std::memcpy(payload + piece.length, piece.suffix, piece.suffix_length);
  link.port->commit(link, header);
  return TW_OK;
}

void pipeline_out(Engine& engine, Peer& peer, OpRun& run, uint64_t dest_op, uint64_t offset, uint64_t length, Then then,
                  uint8_t flags) {
  begin(engine, run, Pipeline::out, offset, length, then);
  run.pipeline.dest_op = dest_op;
  run.pipeline.flags = flags;
  if (length == 0) return finish(engine, run, TW_OK);
  queue_turns(engine, peer, run);
}

void pipeline_in(Engine& engine, Peer&, OpRun& run, uint64_t offset, uint64_t length, Then then) {
  begin(engine, run, Pipeline::in, offset, length, then);
  engine.incoming.expect(length);
  if (length == 0) finish(engine, run, TW_OK);
}

void pipeline_pull(Engine& engine, Peer& peer, OpRun& run, const Elsewhere& other, uint64_t offset, uint64_t length,
                   Then then) {
  copy_begin(engine, peer, run, Pipeline::pull, other, offset, length, then);
}

void pipeline_push(Engine& engine, Peer& peer, OpRun& run, const Elsewhere& other, uint64_t offset, uint64_t length,
                   Then then) {
  copy_begin(engine, peer, run, Pipeline::push, other, offset, length, then);
}

Status pipeline_turn(Engine& engine, Peer& peer, OpRun& run) {
  switch (run.pipeline.kind) {
    case Pipeline::out:
      return out_turn(engine, peer, run);
    case Pipeline::relay:
      return relay_turn(engine, peer, run);
    default:
      return copy_turn(engine, peer, run);
  }
}

OpRun* data_target(Engine& engine, Peer& peer, const FrameHeader& header, uint64_t length) {
  OpRun* run = engine.runs().answered(header.a, peer);
  if (run == nullptr || run->pipeline.kind != Pipeline::in) return nullptr;  // ended meanwhile: not an error
  const Pipeline& pipeline = run->pipeline;
  const uint64_t asked = run->protocol == &kGetFrames ? run->moved : pipeline.end;
  if (header.b != pipeline.begin + pipeline.arrived || length > asked - header.b || length == 0) {
    engine.violation(peer, "data outside of what was asked for, or out of order");
    return nullptr;
  }
  return run;
}

void store_data(Engine& engine, OpRun& run, uint64_t position, const std::byte* bytes, size_t length) {
  if (!run.pipeline.contiguous) return unpack(run.cursor, bytes, length);
  if (engine.incoming.bytes() >= kBeyondCaches) return streaming_copy(run.op->address + position, bytes, length);
  std::memcpy(run.op->address + position, bytes, length);
}

void data_arrived(Engine& engine, OpRun& run, uint64_t n) {
  Pipeline& pipeline = run.pipeline;
  pipeline.arrived += n;
  const bool last = pipeline.arrived >= pipeline.end - pipeline.begin;
  if (run.staging != nullptr) {
    if (last && receives(run)) run.stage = kHere;
    return run.staging->filled(pipeline.begin + pipeline.arrived, finish);
  }
  if (last) finish(engine, run, TW_OK);
}

void fail_arrival(Engine& engine, OpRun& run, Status status) { finish(engine, run, status); }

void named_arrived(Engine& engine, OpRun& run, uint64_t address, Mapping& mapping, const PieceBody& piece) {
  const uint64_t begin = run.pipeline.begin + run.pipeline.arrived, end = begin + piece.length;
  run.pipeline.arrived += piece.length;
  const Status status = run.staging->land(address, mapping, begin, end, piece.op, finish);
  if (status == TW_ERR_PROTOCOL) return engine.violation(*run.peer, "more pieces at a time than it has chunks");
  if (is_error(status)) finish(engine, run, status);
}

void on_data(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body) {
  if ((header.flags & kFrameMore) != 0) return on_more(engine, peer, header, std::move(body));
  OpRun* run = data_target(engine, peer, header, header.length);
  if (run == nullptr) return;
  if (run->staging != nullptr) {
    if (const Status status = to_staging(*run, header.b, body.payload(), header.length); is_error(status)) {
      return finish(engine, *run, status);
    }
  } else {
    store_data(engine, *run, header.b, body.payload(), header.length);
  }
  data_arrived(engine, *run, header.length);
}

std::byte* data_destination(Engine& engine, Peer& peer, const FrameHeader& header) {
  if ((header.flags & kFrameMore) != 0) return more_destination(peer, header);
  OpRun* run = data_target(engine, peer, header, header.length);
  if (run == nullptr) return nullptr;
  if (run->staging != nullptr) {
    size_t n = 0;
    Status status = TW_OK;
    std::byte* room = run->staging->room(header.b, &n, &status);
    return n >= header.length ? room : nullptr;
  }
  return run->pipeline.contiguous ? run->op->address + header.b : nullptr;
}

void data_landed(Engine& engine, Peer& peer, const FrameHeader& header) {
  if ((header.flags & kFrameMore) != 0) return more_landed(engine, peer, header);
  if (OpRun* run = data_target(engine, peer, header, header.length)) data_arrived(engine, *run, header.length);
}

void piece_sent(Engine& engine, OpRun& run, Status status) {
  if (run.pipeline.in_flight == 0) return;
  --run.pipeline.in_flight;
  if (is_error(status)) return;  // the loss of the link follows and ends the run
  if (run.peer == nullptr) return;
  if (run.list != nullptr) return engine.pusher().wants(*run.peer);
  if (run.pipeline.position != run.pipeline.end) return queue_turns(engine, *run.peer, run);
  if (run.pipeline.in_flight == 0) finish(engine, run, TW_OK);
}

}  // namespace thalweg::impl
