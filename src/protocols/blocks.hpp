// SPDX-License-Identifier: Apache-2.0
// Block transfers: n pairs of blocks, chosen by index, as one operation of the endpoint's ordered queue with one completion
// and one notification.
//
// The pairs become pieces (address here, region and offset there, length); neighbours on both sides are one piece. A turn of the
// ordered queue moves a bounded part of them, so that a call of a million blocks delays no other operation. Ways, for the
// operation as a whole (routes/blocks.hpp):
//   device  device memory at the peer, device or pinned memory here, and a device that reaches both: kernels move all of it at
//           once, meanwhile the operation is out of the ordered queue
//   window  device memory at the peer that a device here reaches, other memory here: turns move the bytes between here and
//           pinned memory, the device from there
//   loads   every region is mapped here, or of this process, or the kernel copies: the caller's turns move the bytes
//   frames  put_blocks frames carry many pieces each, get_blocks frames ask for many; the target's progress applies them
// With loads and frames, device memory here is gathered into pinned memory ahead of the turns, or scattered from there behind
// them (blocks_staging.hpp). The pieces wait for a fence or a pending import as other operations of the ordered queue do.
//
// Stages: start -> move -> [get: wait for answers] -> signal -> notify -> [put with TW_OP_REMOTE: close -> wait for fin].
//
// Notifications are sent in the order of the operations, though a get waits outside of the ordered queue for its answers and
// for devices that move them. An operation that reaches its notification before an earlier one was sent leaves the ordered
// queue and is sent by push_notices; except a put by frames, whose notification must follow them: it waits at the ordered
// queue's front, and earlier ones pass it.
#pragma once
#include <atomic>
#include <memory>
#include <vector>

#include "memory/blocks.hpp"
#include "protocols/engine.hpp"
#include "routes/blocks.hpp"

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
  BlocksRoute way = BlocksRoute::frames;  // once it is settled
  bool settled = false;
  uint32_t tried = 0;       // and failed: bits
  Way moved_by = Way::any;  // what it counts as
  bool framed = false;      // frames carry blocks
  bool begun = false;       // put: the first frame was sent
  bool landed = false;      // get by frames into staging: all of it is on the device
  uint8_t notify = TW_NOTIFY_NONE;
  uint8_t notification_length = 0;
  uint16_t handler = 0;
  std::byte notification[TW_NOTIFICATION_MAX];
  std::shared_ptr<const BlockSpace> here;
  std::shared_ptr<const RemoteBlocks> there;
  std::unique_ptr<BlockChoice[]> pairs;
  uint64_t arrived = 0;                                     // get by frames: bytes
  std::vector<Mapping*> imports;                            // counted while a device uses them
  Status failed = TW_OK;                                    // reported when no device work is under way any more
  OpRun *notice_before = nullptr, *notice_after = nullptr;  // neighbours in OneSided::notices
  bool noticing = false;                                    // is in there
  const BlockRange *here_hint = nullptr, *there_hint = nullptr;
  std::byte* packed = nullptr;  // packed bytes [packed_begin, packed_end) in pinned memory, instead of the local blocks
  uint64_t packed_begin = 0, packed_end = 0;
  BlockTransfer() = default;
  ~BlockTransfer() { drop_imports(); }
  BlockTransfer(const BlockTransfer&) = delete;
  BlockTransfer& operator=(const BlockTransfer&) = delete;
  void drop_imports();
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
/// first, and up to the end of what is staged. *bytes: what they hold.
size_t gather_pieces(BlockTransfer& transfer, uint64_t from, uint64_t end, bool one_region, BlockPiece* pieces, size_t most,
                     uint64_t* bytes);

/// op.blocks is the transfer, op.length its bytes. Dispatch table.
Status start_blocks(Engine& engine, const OpDesc& op, const Completion& completion);
extern const Protocol kPutBlocks, kGetBlocks;

/// The input of the routes' table. What only a trial can decide counts as possible.
Blocks blocks_of(const OpDesc& op);
/// One more of the peer's regions. device: of the blocks here, null: that of the region would move them. mapped: this CPU
/// reaches it.
void add_region(Blocks& facts, RemoteRegion& region, const Device* device, bool mapped);
/// Null: the kernel copies to and from the region, which this CPU does not reach.
const char* why_not_copied(RemoteRegion& region);
/// The best one that has not failed is taken.
void take_route(BlockTransfer& transfer, const Blocks& facts);

// --- blocks_direct.cpp: by loads and stores, or by the kernel
/// Moves a turn's worth from run.moved on. TW_OK, TW_AGAIN: not possible this way (any more), use frames; or an error.
Status move_directly(OpRun& run);

// --- blocks_device.cpp
/// Takes the way of all of it. TW_OK: turns move it; TW_IN_PROGRESS: kernels move all of it, the run comes back to the
/// ordered queue; TW_AGAIN: an import is under way; or an error.
Status settle_route(OpRun& run);

// --- blocks_turns.cpp: a turn's worth of bytes, through staging where the run has it
/// Is the run a transfer between this CPU and a device's window, until its signal and notification?
inline bool in_window(const OpRun& run) {
  return run.op->blocks != nullptr && run.staging != nullptr && run.op->blocks->way == BlocksRoute::window;
}
/// By the transfer's way. TW_OK: run.moved has advanced, TW_AGAIN, or an error.
Status move_turn(OpRun& run);
/// All of it was moved: TW_OK when it is on the device, too; TW_AGAIN, or an error.
Status settle_staging(OpRun& run);
/// Get: packed bytes that have come by frames, into staging. The last ones end the run, or let it go on.
void take_staged(Engine& engine, OpRun& run, const std::byte* bytes, uint64_t length);

// --- blocks_frames.cpp
/// The next frame of a put or the next request of a get: TW_OK (run.moved has advanced), TW_AGAIN, or an error.
Status send_blocks(Peer& peer, OpRun& run);
Status ask_blocks(Peer& peer, OpRun& run);
/// All requested blocks of a get are where they belong (blocks.cpp).
void blocks_arrived(Engine& engine, OpRun& run);
void on_put_blocks(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body);
void on_get_blocks(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body);
void on_blocks(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body);

/// Sends the notifications that wait outside of the ordered queue and whose turn it is. Returns how many.
unsigned push_notices(Engine& engine, Peer& peer);
/// Is there one?
bool notices_wait(const Peer& peer);
/// At the ordered queue's front, with all its frames sent: its notification waits for earlier ones.
bool behind_notices(const OpRun& run);

// --- blocks_notify.cpp
/// The run's notification is behind those of all that came before it, until it was sent or the run has ended.
void enter_notices(OpRun& run);
void leave_notices(OpRun& run);
/// TW_OK: sent, TW_AGAIN: no room or no credit.
Status send_notification(Peer& peer, const BlockTransfer& transfer, uint8_t covers);
void on_notify(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body);
/// Target: one of `length` bytes, copied from the frame, goes to its handler or the queue; failed: it is dropped, its credit
/// goes back.
void take_notification(Engine& engine, Peer& peer, uint16_t id, const void* data, size_t length, bool failed);
/// tw_worker_next_notification.
Status next_notification(Engine& engine, tw_notification* out);

}  // namespace thalweg::impl
