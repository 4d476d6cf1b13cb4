// SPDX-License-Identifier: Apache-2.0
// Blocks moved by this process: straight copies where the other side is mapped or of this process, batches of the kernel's
// copies otherwise.
#include <algorithm>
#include <cstring>

#include "base/platform/string_copy.hpp"
#include "protocols/blocks.hpp"
#include "protocols/one_sided.hpp"

namespace thalweg::impl {
namespace {

constexpr uint64_t kCopyTurn = 256u << 10;  // some ten microseconds
constexpr uint64_t kKernelTurn = 1u << 20;
constexpr uint64_t kBeyondCaches = 4u << 20;  // of a transfer: its blocks leave the caches before anybody reads them
constexpr size_t kPieces = 512;               // of a turn: at most IOV_MAX

/// By this CPU: it is mapped here, or of this process.
bool reachable(const RemoteRegion& region) { return region.mapped != nullptr || in_process(region); }

Status copy_pieces(const OpRun& run, const BlockPiece* pieces, size_t count) {
  RemoteRegion& region = *pieces[0].region;
  const bool put = run.op->verb == Verb::put_blocks;
  const Registry::Reading reading(run.peer->engine->registry());
  Status status = TW_OK;
  std::byte* there =
      reach(region, 0, 0, static_cast<int64_t>(region.key.length), put ? TW_MEMORY_WRITE : TW_MEMORY_READ, &reading, &status);
  if (there == nullptr) return frames_decide(status) || status == TW_OK ? TW_AGAIN : status;
  const auto side = [&](const BlockPiece& piece, bool from) { return put == from ? piece.here : there + piece.there; };
  if (run.op->length < kBeyondCaches || in_process(region)) {
    for (size_t i = 0; i < count; ++i) std::memmove(side(pieces[i], false), side(pieces[i], true), pieces[i].length);
    return TW_OK;
  }
  for (size_t i = 0; i < count; ++i) {
    if (i + 1 < count) prefetch_piece(side(pieces[i + 1], true), pieces[i + 1].length);
    streaming_piece(side(pieces[i], false), side(pieces[i], true), pieces[i].length);
  }
  streaming_fence();
  return TW_OK;
}

/// *bytes: what was moved, which may be less.
Status copy_by_kernel(const OpRun& run, const BlockPiece* pieces, size_t count, uint64_t* bytes) {
  RemoteRegion& region = *pieces[0].region;
  Link& link = *run.peer->link;
  iovec local[kPieces], remote[kPieces];
  for (size_t i = 0; i < count; ++i) {
    local[i] = {pieces[i].here, pieces[i].length};
    remote[i] = {reinterpret_cast<void*>(region.key.base + pieces[i].there), pieces[i].length};
  }
  if (!link.port->enter_peer(link)) return fail(TW_ERR_PEER_LOST, "the peer has ended the connection");
  Status status = check_alive(region);
  int64_t moved = 0;
  if (status == TW_OK) {
    moved = run.op->verb == Verb::put_blocks ? link.port->write_peer(link, local, count, remote, count)
                                             : link.port->read_peer(link, local, count, remote, count);
  }
  link.port->leave_peer(link);
  if (status != TW_OK) return status;
  if (moved == TW_ERR_PEER_LOST) return fail(TW_ERR_PEER_LOST, "the peer's process is gone");
  if (moved <= 0) return TW_AGAIN;  // forbidden, or not mapped (any more): the owner's answer to a frame tells which
  *bytes = static_cast<uint64_t>(moved);
  return TW_OK;
}

}  // namespace

Status move_directly(OpRun& run) {
  BlockTransfer& transfer = *run.op->blocks;
  BlockPiece pieces[kPieces];
  const uint64_t length = transfer.packed != nullptr ? transfer.packed_end : run.op->length;
  uint64_t position = run.moved, left = kCopyTurn;
  while (left > 0 && position < length) {
    uint64_t bytes = 0;
    const uint64_t end = std::min(length, position + left);
    size_t count = gather_pieces(transfer, position, end, true, pieces, kPieces, &bytes);
    RemoteRegion& region = *pieces[0].region;
    if (region.mapping != nullptr && region.mapping->revoked) return map_region(region);  // says that it is stale
    Status status;
    if (reachable(region)) {
      status = copy_pieces(run, pieces, count);
    } else {
      if (left == kCopyTurn) {  // a system call takes more at once
        count = gather_pieces(transfer, position, std::min(length, position + kKernelTurn), true, pieces, kPieces, &bytes);
      }
      status = copy_by_kernel(run, pieces, count, &bytes);
    }
    if (status != TW_OK) return status;
    position += bytes;
    run.moved = position;
    left -= std::min(left, bytes);
  }
  return TW_OK;
}

}  // namespace thalweg::impl
