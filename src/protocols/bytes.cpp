// SPDX-License-Identifier: Apache-2.0
// Byte streams; see bytes.hpp.
#include "protocols/bytes.hpp"

#include <algorithm>
#include <cstring>

#include "protocols/eager.hpp"
#include "protocols/flow.hpp"
#include "protocols/pipeline.hpp"

namespace thalweg::impl {

namespace {

constexpr size_t kChunk = 4096;

ByteStream& stream_of(Peer& peer) {
  if (!peer.byte_stream) peer.byte_stream = std::make_unique<ByteStream>();
  return *peer.byte_stream;
}

Status step_bytes(OpRun& run) {
  const OpDesc& op = *run.op;
  Peer& peer = *op.peer;
  Pipeline& pipeline = run.pipeline;
  if (run.stage == 0) {
    pipeline.position = 0;
    pipeline.end = op.length;
    run.then = complete_then;
    if (op.layout != nullptr) run.cursor.reset(op.address, op.layout, op.length);
  }
  while (pipeline.position < pipeline.end) {
    uint64_t left = pipeline.end - pipeline.position;
    const bool reference = by_reference(peer.limits, op.layout == nullptr, left);
    uint64_t most = std::min<uint64_t>(left, reference ? peer.limits.reference_fragment : peer.limits.fragment);
    size_t n = static_cast<size_t>(std::min(most, static_cast<uint64_t>(std::max<int64_t>(peer.bytes_credit, 0))));
    if (n == 0) return TW_AGAIN;
    Status status =
        send_piece(peer, run, make_header(Frame::bytes, 0, 0, 0), Piece{.position = pipeline.position, .length = n});
    if (status != TW_OK) return status;
    run.stage = 1;
    run.cancelable = false;
    peer.bytes_credit -= static_cast<int64_t>(n);
    pipeline.position += n;
  }
  return sent_all(run);
}
const Protocol kBytesSend = {"stream", Verb::bytes_send, step_bytes, nullptr};

void gave(Engine& engine, Peer& peer, uint64_t n) {
  peer.consumed_stream += n;
  if (peer.consumed_stream * 4 >= peer.granted_stream && peer.link != nullptr) give_back_stream(engine, peer);
}

/// n bytes more are in the receive; ends it when it has what it wants.
void filled(Engine& engine, Peer& peer, OpRun& run, size_t n) {
  peer.tally.stream_received.add(n);
  run.moved += n;
  run.info.length = run.moved;
  run.cancelable = false;  // what arrived would be lost
  gave(engine, peer, n);
  bool all = run.moved == run.op->length;
  if (all || (run.op->flags & TW_OP_WAIT_ALL) == 0) engine.complete(run, TW_OK);
}

void keep(ByteStream& stream, const std::byte* from, size_t n) {
  stream.kept += n;
  while (n != 0) {
    if (stream.chunks.empty() || stream.chunks.back().bytes.size() == stream.chunks.back().bytes.capacity()) {
      stream.chunks.emplace_back();
      stream.chunks.back().bytes.reserve(std::max(n, kChunk));
    }
    std::vector<std::byte>& bytes = stream.chunks.back().bytes;
    size_t fits = std::min(n, bytes.capacity() - bytes.size());
    bytes.insert(bytes.end(), from, from + fits);
    from += fits;
    n -= fits;
  }
}

/// Copies unexpected bytes to the receive: all that fits.
void drain(Engine& engine, Peer& peer, ByteStream& stream, OpRun& run) {
  size_t total = 0;
  while (!stream.chunks.empty() && run.moved + total < run.op->length) {
    ByteStream::Chunk& chunk = stream.chunks.front();
    size_t n = std::min<uint64_t>(chunk.bytes.size() - chunk.read, run.op->length - run.moved - total);
    std::memcpy(run.op->address + run.moved + total, chunk.bytes.data() + chunk.read, n);
    chunk.read += n;
    total += n;
    if (chunk.read == chunk.bytes.size()) stream.chunks.pop_front();
  }
  stream.kept -= total;
  if (total != 0) filled(engine, peer, run, total);
}

/// The receive that may be read into directly; null if unexpected bytes are before it.
OpRun* waiting(Peer& peer) {
  return peer.byte_stream && peer.byte_stream->kept == 0 ? peer.byte_stream->receivers.front() : nullptr;
}

}  // namespace

Status start_bytes_send(Engine& engine, const OpDesc& op, const Completion& completion) {
  return engine.launch(op, completion, kBytesSend);
}

Status start_bytes_receive(Engine& engine, const OpDesc& op, const Completion& completion) {
  Peer& peer = *op.peer;
  ByteStream& stream = stream_of(peer);
  if (is_error(peer.state) && stream.kept == 0) return fail(peer.state, "%s", peer.why.c_str());
  OpRun* run = engine.acquire(op, completion);
  if (run == nullptr) return TW_ERR_LIMIT;
  engine.hand_out(*run, completion);
  run->info = {peer.endpoint, 0, 0, 0};
  if (op.length == 0) {
    engine.complete(*run, TW_OK);
    return TW_IN_PROGRESS;
  }
  if (peer.link != nullptr) widen_stream(engine, peer);
  run->cancelable = true;
  engine.bind(*run, peer);
  bool first = stream.receivers.empty();
  stream.receivers.push_back(run);
  if (first && stream.kept != 0) {
    uint64_t name = engine.runs().number(*run);
    drain(engine, peer, stream, *run);
    run = engine.runs().find(name, peer);
    if (run != nullptr && is_error(peer.state)) engine.complete(*run, peer.state, peer.why);  // no more will come
  }
  return TW_IN_PROGRESS;
}

void on_bytes(Engine& engine, Peer& peer, const FrameHeader&, PeerBytes body) {
  ByteStream& stream = stream_of(peer);
  size_t n = body.left();
  while (n != 0) {
    OpRun* run = waiting(peer);
    if (run == nullptr) break;
    const size_t fits = static_cast<size_t>(std::min<uint64_t>(n, run->op->length - run->moved));
    std::memcpy(run->op->address + run->moved, body.payload(fits), fits);
    n -= fits;
    filled(engine, peer, *run, fits);
  }
  if (n == 0) return;
  if (stream.kept + n > peer.granted_stream) return engine.violation(peer, "more stream bytes than it was granted");
  keep(stream, body.payload(), n);
}

std::byte* bytes_destination(Engine&, Peer& peer, const FrameHeader& header) {
  OpRun* run = waiting(peer);
  if (run == nullptr || run->op->length - run->moved < header.length) return nullptr;
  peer.byte_stream->destination = run;
  run->cancelable = false;
  return run->op->address + run->moved;
}

void bytes_landed(Engine& engine, Peer& peer, const FrameHeader& header) {
  if (!peer.byte_stream || peer.byte_stream->destination == nullptr) return;
  OpRun* run = std::exchange(peer.byte_stream->destination, nullptr);
  filled(engine, peer, *run, header.length);
}

}  // namespace thalweg::impl
