// SPDX-License-Identifier: Apache-2.0
// Block transfers: n pairs of blocks, chosen by index, as one operation of the endpoint's lane with one completion and one
// notification.
//
// The pairs become pieces (address here, region and offset there, length); neighbours on both sides are one piece. A turn of the
// lane moves a bounded part of them, so that a call of a million blocks holds nobody up. Ways, for the operation as a whole:
//   device  device memory: kernels move all of it at once, meanwhile the operation is out of the lane
//   loads   every region is mapped here, or of this process, or the kernel copies: the caller's turns move the bytes
//   frames  put_blocks frames carry many pieces each, get_blocks frames ask for many; the target's progress applies them
// What the pieces are behind (a fence, an import that is not answered) they wait for as other operations of the lane do.
//
// Stages: start -> move -> [get: wait for answers] -> signal -> notify -> [put with TW_OP_REMOTE: close -> wait for fin].
#pragma once
#include <atomic>
#include <memory>
#include <vector>

#include "memory/blocks.hpp"
#include "protocols/engine.hpp"

namespace thalweg::impl {

/// A peer's blocks, imported through its endpoint. Shared by the handle and operations under way; the last one gives the
/// regions back, under the lock of the peer's engine.
struct RemoteBlocks {
  BlockSpace space;  // BlockRange::region: index into regions
  std::vector<RemoteRegion*> regions;
  RemoteBlocks() = default;
  ~RemoteBlocks();
  RemoteBlocks(const RemoteBlocks&) = delete;
  RemoteBlocks& operator=(const RemoteBlocks&) = delete;
};

struct BlockChoice {
  uint32_t here, there;
};

/// What an operation on blocks carries beside its OpDesc. Counted: the caller until start() returns, then the run.
struct BlockTransfer {
  std::atomic<unsigned> references{1};
  bool loads = false;   // the way, from stage move on
  bool framed = false;  // frames carry blocks
  bool begun = false;   // put: the first frame is gone
  uint8_t notify = TW_NOTIFY_NONE;
  uint8_t notification_length = 0;
  uint16_t handler = 0;
  std::byte notification[TW_NOTIFICATION_MAX];
  std::shared_ptr<const BlockSpace> here;
  std::shared_ptr<const RemoteBlocks> there;
  std::unique_ptr<BlockChoice[]> pairs;
  uint64_t arrived = 0;           // get by frames: bytes
  std::vector<Mapping*> imports;  // counted while kernels run
  Status failed = TW_OK;          // of those
  const BlockRange *here_hint = nullptr, *there_hint = nullptr;
};
void release(BlockTransfer* transfer);

/// Bytes that are contiguous on both sides.
struct BlockPiece {
  std::byte* here;
  uint64_t there;  // offset in the region
  uint64_t length;
  RemoteRegion* region;
};
/// Pieces from packed position `from` on, up to position `end` and `most` of them; with one_region all in the region of the
/// first. *bytes: what they hold.
size_t gather_pieces(BlockTransfer& transfer, uint64_t from, uint64_t end, bool one_region, BlockPiece* pieces, size_t most,
                     uint64_t* bytes);

/// op.blocks is the transfer, op.length its bytes. Dispatch table.
Status start_blocks(Engine& engine, const OpDesc& op, const Completion& completion);
extern const Protocol kPutBlocks, kGetBlocks;

// --- blocks_direct.cpp: by loads and stores, or by the kernel
/// Nothing of the target's CPU is needed for any region.
bool can_move_directly(const OpDesc& op);
/// Moves a turn's worth from run.moved on. TW_OK, TW_AGAIN: not possible this way (any more), use frames; or an error.
Status move_directly(OpRun& run);

// --- blocks_device.cpp: by kernels of a device
bool on_devices(const BlockTransfer& transfer);
/// TW_ERR_UNSUPPORTED for a mixture that no kernel moves.
Status check_devices(const BlockTransfer& transfer);
/// TW_IN_PROGRESS: kernels move all of it, the run comes back to the lane; TW_AGAIN: an import is under way; or an error.
Status move_by_device(OpRun& run);

// --- blocks_frames.cpp
/// The next frame of a put or the next request of a get: TW_OK (run.moved has advanced), TW_AGAIN, or an error.
Status send_blocks(Peer& peer, OpRun& run);
Status ask_blocks(Peer& peer, OpRun& run);
/// All requested blocks of a get have arrived (blocks.cpp).
void blocks_arrived(Engine& engine, OpRun& run);
void on_put_blocks(Engine& engine, Peer& peer, const FrameHeader& header, const std::byte* body);
void on_get_blocks(Engine& engine, Peer& peer, const FrameHeader& header, const std::byte* body);
void on_blocks(Engine& engine, Peer& peer, const FrameHeader& header, const std::byte* body);

// --- blocks_notify.cpp
/// TW_OK: sent, TW_AGAIN: no room or no credit.
Status send_notification(Peer& peer, const BlockTransfer& transfer, uint8_t covers);
void on_notify(Engine& engine, Peer& peer, const FrameHeader& header, const std::byte* body);
/// tw_notification_next.
Status next_notification(Engine& engine, tw_notification* out);

}  // namespace thalweg::impl
