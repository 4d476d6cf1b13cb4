// SPDX-License-Identifier: Apache-2.0
// Turns of a block transfer: a bounded part by loads, by frames, or into a device's window, from the local blocks themselves
// or from pinned memory that a device fills and empties.
#include <algorithm>
#include <cstring>

#include "protocols/blocks.hpp"
#include "protocols/one_sided.hpp"
#include "protocols/staging.hpp"

namespace thalweg::impl {
namespace {

bool is_put(const OpRun& run) { return run.op->verb == Verb::put_blocks; }

void acknowledged(Engine& engine, OpRun& run, Status status) {
  confirm(*run.peer, run);
  engine.complete(run, status);
}

/// A get could not be read at the target.
void refused(Engine& engine, OpRun& run, Status status) {
  confirm(*run.peer, run);
  engine.complete(run, is_error(status) ? status : TW_ERR_PROTOCOL);
}

/// A get's bytes have been scattered.
void scattered(Engine& engine, OpRun& run, Status status) {
  if (is_error(status)) return refused(engine, run, status);
  run.op->blocks->landed = true;
  blocks_arrived(engine, run);
}

Status carry(OpRun& run) {
  BlockTransfer& transfer = *run.op->blocks;
  if (transfer.way == BlocksRoute::loads) {
    const Status status = move_directly(run);
    if (status != TW_AGAIN) return status;
    transfer.tried |= bit_of(BlocksRoute::loads);
    take_route(transfer, blocks_of(*run.op));  // the owner's answer to frames gives the reason
  }
  if (!transfer.framed) {
    transfer.framed = true;
    transfer.arrived = run.moved;
    run.fin = is_put(run) ? acknowledged : refused;
    if (!is_put(run)) count_in(run, Counted::get);
  }
  if (!is_put(run)) transfer.packed = nullptr;  // asks for more than one chunk
  const Status status = is_put(run) ? send_blocks(*run.peer, run) : ask_blocks(*run.peer, run);
  if (status == TW_OK) note_frames(*run.peer, run);
  return status;
}

void use_packed(OpRun& run, const std::byte* bytes, size_t n) {
  BlockTransfer& transfer = *run.op->blocks;
  transfer.packed = const_cast<std::byte*>(bytes);
  transfer.packed_begin = run.moved;
  transfer.packed_end = run.moved + n;
}

/// What a device has gathered goes on to the target.
Status put_gathered(OpRun& run) {
  size_t n = 0;
  Status status = TW_OK;
  const std::byte* bytes = run.staging->look(run.moved, &n, &status);
  if (bytes == nullptr) return is_error(status) ? status : Status{TW_AGAIN};
  use_packed(run, bytes, n);
  status = carry(run);
  run.staging->taken(run.moved);
  return status;
}

/// What can be loaded from the target goes on to the device.
Status get_to_scatter(OpRun& run) {
  if (run.staging->full(run.moved)) return TW_AGAIN;
  size_t n = 0;
  Status status = TW_OK;
  const std::byte* room = run.staging->room(run.moved, &n, &status);
  if (room == nullptr) return status;
  use_packed(run, room, n);
  status = carry(run);
  if (!run.op->blocks->framed) run.staging->filled(run.moved, nullptr);
  return status;
}

/// A piece between the local blocks, which are host memory, and the chunk that a device copies from or to the peer's.
Status window_turn(OpRun& run) {
  constexpr uint64_t kTurn = 256u << 10;
  constexpr size_t kPieces = 256;
  const bool put = is_put(run);
  if (put && run.staging->full(run.moved)) return TW_AGAIN;
  size_t n = 0;
  Status status = TW_OK;
  const std::byte* at = put ? run.staging->room(run.moved, &n, &status) : run.staging->look(run.moved, &n, &status);
  if (at == nullptr) return is_error(status) ? status : Status{TW_AGAIN};
  BlockPiece pieces[kPieces];
  uint64_t bytes = 0;
  const uint64_t end = run.moved + std::min<uint64_t>(n, kTurn);
  const size_t count = gather_pieces(*run.op->blocks, run.moved, end, false, pieces, kPieces, &bytes);
  for (size_t i = 0; i < count; at += pieces[i++].length) {
    std::byte* const packed = const_cast<std::byte*>(at);
    std::memcpy(put ? packed : pieces[i].here, put ? pieces[i].here : packed, pieces[i].length);
  }
  run.moved += bytes;
  put ? run.staging->filled(run.moved, nullptr) : run.staging->taken(run.moved);
  return TW_OK;
}

}  // namespace

Status move_turn(OpRun& run) {
  const BlockTransfer& transfer = *run.op->blocks;
  if (transfer.way == BlocksRoute::window) return window_turn(run);
  if (run.staging == nullptr) return carry(run);
  if (is_put(run)) return put_gathered(run);
  return transfer.way == BlocksRoute::loads ? get_to_scatter(run) : carry(run);
}

Status settle_staging(OpRun& run) {
  BlockTransfer& transfer = *run.op->blocks;
  if (run.staging == nullptr) return TW_OK;
  if (run.work != 0) return TW_AGAIN;
  const Status status = run.staging->status();
  delete run.staging;
  run.staging = nullptr;
  transfer.packed = nullptr;
  transfer.drop_imports();
  return status;
}

void take_staged(Engine& engine, OpRun& run, const std::byte* bytes, uint64_t length) {
  BlockTransfer& transfer = *run.op->blocks;
  Peer& peer = *run.peer;
  while (length > 0) {
    size_t n = 0;
    Status status = TW_OK;
    std::byte* const room = run.staging->room(transfer.arrived, &n, &status);
    if (room == nullptr) return refused(engine, run, status);
    n = std::min<uint64_t>(n, length);
    std::memcpy(room, bytes, n);
    bytes += n;
    length -= n;
    transfer.arrived += n;
    const bool last = transfer.arrived == run.op->length;
    run.staging->filled(transfer.arrived, scattered);
    if (last) return;  // the run may have ended
  }
  engine.pusher().wants(peer);
}

}  // namespace thalweg::impl
