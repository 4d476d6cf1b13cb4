// SPDX-License-Identifier: Apache-2.0
// The life of a block transfer; see blocks.hpp.
#include "protocols/blocks.hpp"

#include <algorithm>

#include "protocols/one_sided.hpp"
#include "protocols/reach_device.hpp"

namespace thalweg::impl {
namespace {

enum Stage : uint8_t { kStart, kMove, kAnswers, kSignal, kNotify, kClose, kSent };

bool is_put(const OpRun& run) { return run.op->verb == Verb::put_blocks; }

Status start(OpRun& run) {
  BlockTransfer& transfer = *run.op->blocks;
  for (RemoteRegion* region : transfer.there->regions) {
    if (Status s = settle_import(region); s != TW_OK) return s;
  }
  const Blocks facts = blocks_of(*run.op);
  if (facts.fenced && asks_devices(facts)) return TW_AGAIN;  // kernels cannot follow frames
  if (Status s = settle_import(run.op->signal); s != TW_OK) return s;
  const bool behind = front_fenced(*run.peer) || (run.op->flags & TW_OP_AFTER_ALL) != 0;
  if (behind && run.peer->one_sided.device != 0) return TW_AGAIN;  // what devices still move has left the ordered queue
  if (transfer.notify != TW_NOTIFY_NONE) enter_notices(run);
  run.stage = kMove;
  return TW_OK;
}

/// A failure waits for the device work of earlier turns: until then the run's buffers are in use.
Status move(OpRun& run) {
  BlockTransfer& transfer = *run.op->blocks;
  Status status = transfer.failed;
  if (!is_error(status)) status = transfer.settled ? move_turn(run) : settle_route(run);
  if (!is_error(status) || run.work == 0) return status;
  transfer.failed = status;
  return TW_AGAIN;
}

/// Frames that follow the data must not notify of refused blocks.
uint8_t covers(const OpRun& run) {
  if ((run.op->flags & TW_OP_AFTER_ALL) != 0) return kFrameCoversAll;
  return run.op->blocks->framed && is_put(run) ? kFrameCovers : 0;
}

bool first_notice(const OpRun& run) { return run.peer->one_sided.notices.first == &run; }

/// TW_IN_PROGRESS: it is behind earlier ones and waits outside of the ordered queue; a fence waits for it there.
Status notify(OpRun& run) {
  const BlockTransfer& transfer = *run.op->blocks;
  if (transfer.notify == TW_NOTIFY_NONE) return TW_OK;
  if (!first_notice(run)) {
    if (transfer.framed && is_put(run)) return TW_AGAIN;  // the target judges by the put's frames: nothing else's come between
    if (run.counted == Counted::no) count_in(run, Counted::get);
    return TW_IN_PROGRESS;
  }
  const Status status = send_notification(*run.peer, transfer, covers(run));
  if (status == TW_OK) leave_notices(run);
  return status;
}

/// An empty frame behind the blocks asks how they went.
Status close(Peer& peer, OpRun& run) {
  const uint64_t number = peer.engine->runs().wire_op(run);
  return peer.link->port->send(*peer.link, make_header(Frame::put_blocks, sizeof number, 0, 0, kFrameAck), &number);
}

/// One move of the run to its next stage or through a turn of data; the caller repeats. TW_OK: went on.
Status advance(OpRun& run) {
  Peer& peer = *run.peer;
  const OpDesc& op = *run.op;
  BlockTransfer& transfer = *op.blocks;
  Status s = TW_OK;
  switch (run.stage) {
    case kStart:
      return start(run);
    case kMove:
      if (run.moved < op.length || is_error(transfer.failed)) s = move(run);
      if (s != TW_OK || run.moved < op.length) return s;
      if (transfer.framed && !is_put(run)) {
        const bool here = run.staging != nullptr ? transfer.landed : transfer.arrived == op.length;
        run.stage = here ? kSignal : kAnswers;
        if (here) count_out(run);
        if (here) count_moved(op, transfer.moved_by);
        return TW_OK;
      }
      s = settle_staging(run);
      if (s != TW_OK) return s;
      count_moved(op, transfer.moved_by);
      run.stage = kSignal;
      return s;
    case kSignal:
      if (op.signal != nullptr) s = give_signal(run, transfer.framed);
      break;
    case kNotify:
      s = notify(run);
      break;
    case kClose:
      if (transfer.framed && is_put(run) && (op.flags & TW_OP_REMOTE) != 0) s = close(peer, run);
      break;
    default:
      return TW_IN_PROGRESS;
  }
  if (s == TW_OK) ++run.stage;
  return s;
}

Status step(OpRun& run) {
  Peer& peer = *run.peer;
  if (peer.link == nullptr) return TW_AGAIN;
  const BlockTransfer& transfer = *run.op->blocks;
  const uint64_t moved = run.moved;
  while (run.stage < kSent && run.stage != kAnswers) {
    const Status s = advance(run);
    if (s != TW_OK) return s;
    if (run.stage == kMove && run.moved != moved) return TW_AGAIN;  // a turn: others first
  }
  if (run.stage == kAnswers) return TW_IN_PROGRESS;  // blocks_arrived goes on
  const bool answered = transfer.framed && is_put(run) && (run.op->flags & TW_OP_REMOTE) != 0;
  if (answered) return TW_IN_PROGRESS;
  if (transfer.framed && !is_put(run)) confirm(peer, run);
  return TW_OK;
}

/// Every region is alive as far as is known here, and its key allows the access.
Status check_regions(const OpDesc& op) {
  const uint32_t access = op.verb == Verb::put_blocks ? TW_MEMORY_WRITE : TW_MEMORY_READ;
  for (RemoteRegion* region : op.blocks->there->regions) {
    OpDesc whole;
    whole.peer = op.peer;
    whole.remote = region;
    whole.length = region->key.length;
    if (Status s = check_target(whole, access); is_error(s)) return s;
  }
  return TW_OK;
}

}  // namespace

const char* why_not_copied(RemoteRegion& region) {
  if (in_process(region)) return "it is memory of another context of this process";
  OpDesc there;
  there.peer = region.peer;
  there.remote = &region;
  return why_no_single_copy(there);
}

Blocks blocks_of(const OpDesc& op) {
  const BlockTransfer& transfer = *op.blocks;
  Blocks facts;
  facts.get = op.verb == Verb::get_blocks;
  facts.length = op.length;
  facts.forced = op.peer->engine->options().way;
  facts.device_here = transfer.here->device != nullptr;
  facts.pinned_here = transfer.here->pinned;
  facts.fenced = front_fenced(*op.peer) && !settled(*op.peer);
  facts.mapped = true;
  bool hosts = false;
  for (RemoteRegion* region : transfer.there->regions) {
    hosts = hosts || !of_device(*region);
    add_region(facts, *region, transfer.here->device, region->mapped != nullptr || known_here(*region));
  }
  facts.mixed = facts.device_there && hosts;
  return facts;
}

void add_region(Blocks& facts, RemoteRegion& region, const Device* device, bool mapped) {
  if (of_device(region)) {
    facts.device_there = true;
    if (device == nullptr) device = device_of(region);
    if (region.unreached.has(device) || region.unlaunched.has(device))
      facts.why_not_reached = "no device of this process reaches the peer's blocks";
  } else if (!mapped) {
    facts.mapped = false;
    if (const char* const why = why_not_copied(region); why != nullptr) facts.why_not_direct = why;
  }
}

void take_route(BlockTransfer& transfer, const Blocks& facts) {
  transfer.way = blocks_route(facts, transfer.tried);
  transfer.moved_by = way_of(facts, transfer.way);
  transfer.settled = true;
}

RemoteBlocks::~RemoteBlocks() {
  for (RemoteRegion* region : regions) release_region(region);
}

void BlockTransfer::drop_imports() {
  for (Mapping* mapping : imports) --mapping->users;
  imports.clear();
}

void release(BlockTransfer* transfer) {
  if (transfer != nullptr && transfer->references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete transfer;
}

size_t gather_pieces(BlockTransfer& transfer, uint64_t from, uint64_t end, bool one_region, BlockPiece* pieces, size_t most,
                     uint64_t* bytes) {
  const BlockSpace &here = *transfer.here, &there = transfer.there->space;
  const uint64_t length = here.length;
  uint64_t pair = from / length, within = from % length, at = from;
  size_t count = 0;
  if (transfer.packed != nullptr) end = std::min(end, transfer.packed_end);
  for (; at < end; ++pair, within = 0) {
    const BlockChoice numbers = transfer.pairs[pair];
    const BlockRange& theirs = there.range_of(numbers.there, transfer.there_hint);
    std::byte* address = transfer.packed != nullptr ? transfer.packed + (at - transfer.packed_begin) : nullptr;
    if (address == nullptr) {
      const BlockRange& mine = here.range_of(numbers.here, transfer.here_hint);
      address = reinterpret_cast<std::byte*>(BlockSpace::place(mine, numbers.here) + within);
    }
    const uint64_t offset = BlockSpace::place(theirs, numbers.there) + within;
    RemoteRegion* region = transfer.there->regions[theirs.region];
    const uint64_t n = std::min(length - within, end - at);
    BlockPiece* last = count > 0 ? &pieces[count - 1] : nullptr;
    if (last != nullptr && one_region && last->region != region) break;
    if (last != nullptr && last->region == region && last->here + last->length == address &&
        last->there + last->length == offset) {
      last->length += n;
    } else if (count < most) {
      pieces[count++] = {address, offset, n, region};
    } else {
      break;
    }
    at += n;
  }
  *bytes = at - from;
  return count;
}

Status start_blocks(Engine& engine, const OpDesc& op, const Completion& completion) {
  if (completion.request != nullptr) *completion.request = TW_REQUEST_NONE;
  if (Status s = check_regions(op); is_error(s)) return s;
  if (op.signal != nullptr) {
    if (Status s = check_signal(op); is_error(s)) return s;
  }
  return launch_one_sided(engine, op, completion, op.verb == Verb::put_blocks ? kPutBlocks : kGetBlocks);
}

void blocks_arrived(Engine& engine, OpRun& run) {
  if (run.stage != kAnswers) return;  // more is to be asked for: the ordered queue goes on by itself
  Peer& peer = *run.peer;
  confirm(peer, run);
  count_moved(*run.op, run.op->blocks->moved_by);
  if (run.op->blocks->notify == TW_NOTIFY_NONE) return engine.complete(run, TW_OK);
  run.stage = kNotify;
  engine.pusher().wants(peer);
}

bool notices_wait(const Peer& peer) {
  const OpRun* const run = peer.one_sided.notices.first;
  return run != nullptr && run->stage == kNotify && run->list == nullptr;
}

bool behind_notices(const OpRun& run) {
  return run.protocol == &kPutBlocks && run.stage == kNotify && run.op->blocks->noticing && !first_notice(run);
}

unsigned push_notices(Engine& engine, Peer& peer) {
  unsigned events = 0;
  for (; notices_wait(peer) && peer.link != nullptr && !peer.doomed; ++events) {
    OpRun& run = *peer.one_sided.notices.first;
    const Status status = run.protocol->step(run);
    if (status == TW_AGAIN) break;
    if (is_error(status)) note_failure(peer, run, status);
    engine.complete(run, status);
  }
  return events;
}

const Protocol kPutBlocks = {"put_blocks", Verb::put_blocks, step, nullptr};
const Protocol kGetBlocks = {"get_blocks", Verb::get_blocks, step, nullptr};

}  // namespace thalweg::impl
