// SPDX-License-Identifier: Apache-2.0
// Large transfers in pieces: data frames out, data frames in, and copies (mapped, or by the kernel) in or out. Each moves
// one piece per turn of its peer, so that small messages never wait for more than one piece. A run is in one phase at a
// time (run.pipeline.kind); run.then(engine, run, status) is called once when the phase ends, and may start the next phase
// or complete the run. The run must be bound to the peer. On a loss of the peer `then` is not called: Engine::fail ends it.
#pragma once
#include "protocols/engine.hpp"
#include "protocols/wire.hpp"

namespace thalweg::impl {

/// Sends packed bytes [offset, offset + length) of run.op's local side (address, layout) as data frames for `dest_op`
/// of the other side, header.b counting from the packed start. `then` when the source may be reused. Large contiguous
/// pieces go by reference where the link does that. flags: extra FrameFlag bits of every frame.
void pipeline_out(Engine& engine, Peer& peer, OpRun& run, uint64_t dest_op, uint64_t offset, uint64_t length, Then then,
                  uint8_t flags = 0);

/// Takes packed bytes [offset, offset + length) of run.op's local side from data frames addressed to wire_op(run), which
/// come in order (anything else breaks the protocol). `then` when all of them have arrived. length 0 calls `then` at once.
void pipeline_in(Engine& engine, Peer& peer, OpRun& run, uint64_t offset, uint64_t length, Then then);

/// Copies packed bytes [offset, offset + length) of run.op's local side from (pull) or to (push) the other side's contiguous
/// memory, a piece per turn. A kernel copy or a mapping that fails ends the phase with its error: fall back to frames.
void pipeline_pull(Engine& engine, Peer& peer, OpRun& run, const Elsewhere& other, uint64_t offset, uint64_t length, Then then);
void pipeline_push(Engine& engine, Peer& peer, OpRun& run, const Elsewhere& other, uint64_t offset, uint64_t length, Then then);

/// Moves one piece of a run queued in peer.pipelines. TW_OK: the phase has nothing more to queue (taken out of the list),
/// TW_IN_PROGRESS: one piece moved, TW_AGAIN: no room.
Status pipeline_turn(Engine& engine, Peer& peer, OpRun& run);

/// A piece of the local side to be sent as one frame: `prefix`, then `length` bytes at packed offset `position`, then
/// `suffix`. With a layout run.cursor must be at `position`; it advances. The prefix must live as long as the run when large
/// pieces may go by reference (contiguous, no suffix).
struct Piece {
  const void* prefix = nullptr;
  size_t prefix_length = 0;
  uint64_t position = 0;
  size_t length = 0;
  const void* suffix = nullptr;
  size_t suffix_length = 0;
  bool by_reference = true;  // allowed
};
/// By the cheapest way of the link. A layout of callbacks packs each byte once: what is sent here goes. header.length is
/// filled in. TW_OK (run.pipeline.in_flight tells whether the source may be reused), TW_AGAIN (nothing happened), or an
/// error.
Status send_piece(Peer& peer, OpRun& run, FrameHeader header, const Piece& piece);

// Frames.
void on_data(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body);
std::byte* data_destination(Engine& engine, Peer& peer, const FrameHeader& header);
void data_landed(Engine& engine, Peer& peer, const FrameHeader& header);
/// A piece sent by reference, or named, is free again.
void piece_sent(Engine& engine, OpRun& run, Status status);

// --- shared with bounce.cpp, whose frames name the bytes
/// The run that data of `length` bytes is for, with its range checked; null: skip it (or the peer broke the rules).
OpRun* data_target(Engine& engine, Peer& peer, const FrameHeader& header, uint64_t length);
/// Into a run's host memory.
void store_data(Engine& engine, OpRun& run, uint64_t position, const std::byte* bytes, size_t length);
void data_arrived(Engine& engine, OpRun& run, uint64_t length);
/// Data for a run's device, which reaches them at `address` in `mapping`.
void named_arrived(Engine& engine, OpRun& run, uint64_t address, Mapping& mapping, const PieceBody& piece);
/// What should arrive cannot.
void fail_arrival(Engine& engine, OpRun& run, Status status);

}  // namespace thalweg::impl
