// SPDX-License-Identifier: Apache-2.0
// Blocks by frames: each names many pieces (key, offset, length) and stands alone, so the target keeps no state of a put but
// whether it failed so far, and none of a get but answers for which there was no room.
#include <algorithm>
#include <cstring>

#include "protocols/answer.hpp"
#include "protocols/blocks_staging.hpp"
#include "protocols/dispatch.hpp"
#include "protocols/one_sided.hpp"

namespace thalweg::impl {
namespace {

constexpr size_t kPieces = 40;    // of a frame: their names fit into what queue_fragment() leaves for prefixes
constexpr uint64_t kWindow = 16;  // fragments requested and not answered, per get

/// The most of a frame's blocks, bytes: what is sent by copy, and what a chunk of pinned memory takes at the target. A link may deliver
/// longer frames of any type, because those of other types go by reference.
uint64_t most_of(const Peer& peer) { return std::min<uint64_t>(peer.link->copy_max, DeviceQueues::kChunk); }

/// Where a frame of at most `limit` bytes ends: behind a whole block, if one fits, because a device moves equal pieces best.
uint64_t end_of_frame(const OpRun& run, uint64_t limit) {
  const uint64_t length = run.op->blocks->here->length, end = std::min(run.op->length, run.moved + limit);
  const uint64_t whole = end - end % length;
  return whole > run.moved ? whole : end;
}

/// The next pieces, named for the wire. TW_ERR_STALE: of another incarnation (posted while connecting).
Status name_pieces(const Peer& peer, OpRun& run, uint64_t limit, BlockPiece* pieces, BlockName* names, size_t* count,
                   uint64_t* bytes) {
  const uint64_t end = end_of_frame(run, limit);
  *count = gather_pieces(*run.op->blocks, run.moved, end, false, pieces, kPieces, bytes);
  for (size_t i = 0; i < *count; ++i) {
    const KeyBody& key = pieces[i].region->key;
    if (key.incarnation != peer.identity.incarnation) return TW_ERR_STALE;
    names[i] = {key.rkey, pieces[i].there, pieces[i].length};
  }
  return TW_OK;
}

/// The sum of the lengths; false when it is more than `limit`.
bool sum_lengths(const BlockName* names, size_t count, uint64_t limit, uint64_t* sum) {
  *sum = 0;
  for (size_t i = 0; i < count; ++i) {
    if (names[i].length > limit - *sum) return false;
    *sum += names[i].length;
  }
  return true;
}

/// Target: where the named pieces are, good while `reading` lives. The first that is refused ends it, and nothing moves.
struct Place {
  std::byte* address;
  uint64_t length;
  Device* device;  // null: host memory
};
Status resolve_all(const Registry& registry, const Registry::Reading& reading, const BlockName* names, size_t count,
                   uint32_t access, Place* places) {
  for (size_t i = 0; i < count; ++i) {
    const BlockName& name = names[i];
    Target target;
    const Status s = registry.resolve(reading, name.rkey, name.offset, name.length, access, &target);
    if (s != TW_OK) return s;
    if (!by_cpu(target.kind) && target.device == nullptr) return TW_ERR_UNSUPPORTED;
    places[i] = {target.address, name.length, target.device};
  }
  return TW_OK;
}

/// The packed bytes into the places of host memory, or out of them.
void move_host(const Place* places, size_t count, std::byte* packed, bool store) {
  for (size_t i = 0; i < count; packed += places[i++].length) {
    if (places[i].device == nullptr)
      std::memcpy(store ? places[i].address : packed, store ? packed : places[i].address, places[i].length);
  }
}

/// The same of device memory, waited for. Neighbours on one device go together.
Status move_device(DeviceQueues& queues, const Place* places, size_t count, std::byte* packed, bool store) {
  for (size_t i = 0, end = 0; i < count; i = end) {
    end = i + 1;
    const Place& place = places[i];
    if (place.device == nullptr) {
      packed += place.length;
      continue;
    }
    while (end < count && places[end].device == place.device) ++end;
    BlockPart parts[kPieces];
    size_t used = 0;
    uint64_t bytes = 0;
    for (size_t k = i; k < end; bytes += places[k++].length) {
      if (places[k].length != 0) parts[used++] = {reinterpret_cast<uint64_t>(places[k].address), places[k].length};
    }
    if (used == 0) continue;
    const std::span<const BlockPart> all(parts, used);
    const Status s = store ? store_parts(queues, *place.device, all, packed) : load_parts(queues, *place.device, all, packed);
    if (s != TW_OK) return s;
    packed += bytes;
  }
  return TW_OK;
}

/// All of them. The reading ends where one is of a device; engines without devices stay so.
Status move_all(Engine& engine, Registry::Reading& reading, const BlockName* names, const Place* places, size_t count,
                std::byte* packed, bool store) {
  move_host(places, count, packed, store);
  uint64_t rkeys[kPieces];
  size_t used = 0;
  for (size_t i = 0; i < count; ++i) {
    if (places[i].device == nullptr || (used != 0 && rkeys[used - 1] == names[i].rkey)) continue;
    rkeys[used++] = names[i].rkey;
  }
  if (used == 0) return TW_OK;
  return at_devices(engine.registry(), reading, std::span<const uint64_t>(rkeys, used),
                    [&] { return move_device(engine.devices(), places, count, packed, store); });
}

Status store_all(Engine& engine, const BlockName* names, size_t count, const std::byte* packed) {
  const Registry& registry = engine.registry();
  Registry::Reading reading(registry);
  Place places[kPieces];
  if (Status s = resolve_all(registry, reading, names, count, TW_MEMORY_WRITE, places); s != TW_OK) return s;
  return move_all(engine, reading, names, places, count, const_cast<std::byte*>(packed), true);
}

// ------------------------------------------------------------------------------------------------ answers to gets

/// What is wanted; the pieces' names, copied out of the frame, are the header of the OpDesc.
struct Answer {
  uint64_t op, position, bytes, count;
};

/// TW_OK: answered with blocks or with fin. TW_AGAIN: no room.
Status answer_blocks(Engine& engine, Peer& peer, const Answer& answer, const OpDesc& op) {
  Link& link = *peer.link;
  Status status;
  {
    Registry::Reading reading(engine.registry());
    Place places[kPieces];
    const auto* names = reinterpret_cast<const BlockName*>(op.header);
    status = resolve_all(engine.registry(), reading, names, answer.count, TW_MEMORY_READ, places);
    if (status == TW_OK) {
      std::byte* const room = link.port->reserve(link, answer.bytes);
      if (room == nullptr) return TW_AGAIN;
      status = move_all(engine, reading, names, places, answer.count, room, false);
      // The reserved frame must be sent: after a device's failure as zeros that are discarded.
      if (status != TW_OK) std::memset(room, 0, answer.bytes);
      const uint64_t op = status == TW_OK ? answer.op : TW_REQUEST_NONE;
      link.port->commit(link, make_header(Frame::blocks, answer.bytes, op, answer.position));
      if (status == TW_OK) return TW_OK;
    }
  }
  send_fin(engine, peer, answer.op, status);
  return TW_OK;
}

}  // namespace

Status send_blocks(Peer& peer, OpRun& run) {
  BlockPiece pieces[kPieces];
  BlockName names[kPieces];
  size_t count = 0;
  uint64_t bytes = 0;
  if (Status s = name_pieces(peer, run, queue_fragment(peer), pieces, names, &count, &bytes); s != TW_OK) return s;
  const size_t prefix = count * sizeof(BlockName);
  std::byte* room = peer.link->port->reserve(*peer.link, prefix + bytes);
  if (room == nullptr) return TW_AGAIN;
  std::memcpy(room, names, prefix);
  room += prefix;
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(room, pieces[i].here, pieces[i].length);
    room += pieces[i].length;
  }
  const uint8_t flags = run.op->blocks->begun ? 0 : kFrameFirst;
  run.op->blocks->begun = true;
  peer.link->port->commit(*peer.link, make_header(Frame::put_blocks, prefix + bytes, count, 0, flags));
  run.moved += bytes;
  return TW_OK;
}

Status ask_blocks(Peer& peer, OpRun& run) {
  if (run.moved - run.op->blocks->arrived >= kWindow * queue_fragment(peer)) return TW_AGAIN;
  BlockPiece pieces[kPieces];
  BlockName names[kPieces];
  size_t count = 0;
  uint64_t bytes = 0;
  if (Status s = name_pieces(peer, run, queue_fragment(peer), pieces, names, &count, &bytes); s != TW_OK) return s;
  const FrameHeader header =
      make_header(Frame::get_blocks, count * sizeof(BlockName), peer.engine->runs().wire_op(run), run.moved);
  const Status s = peer.link->port->send(*peer.link, header, names);
  if (s == TW_OK) run.moved += bytes;
  return s;
}

void on_put_blocks(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body) {
  BlockName names[kPieces];
  const size_t count = header.a;
  uint64_t ack, sum = 0;
  if (!take_ack(header, body, &ack) || count > kPieces || !body.take(names, count * sizeof(BlockName))) {
    return engine.violation(peer, "blocks too short for their own fields");
  }
  const uint64_t payload = body.left();
  if (payload > most_of(peer)) return engine.violation(peer, "a put of more blocks than a frame takes");
  if (!sum_lengths(names, count, payload, &sum) || sum != payload) {
    return engine.violation(peer, "blocks of other lengths than their frame");
  }
  note_put(peer, header, store_all(engine, names, count, body.payload()));
  conclude_put(engine, peer, header, ack);
}

void on_get_blocks(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body) {
  BlockName names[kPieces];
  const size_t count = header.length / sizeof(BlockName);
  uint64_t sum = 0;
  if (count == 0 || count > kPieces || header.length % sizeof(BlockName) != 0 || !body.take(names, header.length) ||
      !sum_lengths(names, count, most_of(peer), &sum) || sum == 0) {
    return engine.violation(peer, "a request for blocks that makes no sense");
  }
  const Answer answer{header.a, header.b, sum, count};
  OpDesc op;
  op.header = reinterpret_cast<const std::byte*>(names);
  op.header_length = static_cast<uint32_t>(header.length);
  Answering<Answer, Verb::get_blocks, answer_blocks>::give(engine, peer, answer, op);
}

void on_blocks(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body) {
  OpRun* run = engine.runs().answered(header.a, peer);
  if (run == nullptr || run->protocol != &kGetBlocks) return;
  BlockTransfer& transfer = *run->op->blocks;
  const uint64_t asked = run->moved - transfer.arrived, ahead = header.b - transfer.arrived;
  if (!transfer.framed || header.length == 0 || ahead > asked || header.length > asked - ahead) {
    return engine.violation(peer, "blocks that were not asked for");
  }
  if (ahead != 0) return;  // an earlier part could not be read there: the fin that says so is behind
  if (run->staging != nullptr) return take_staged(engine, *run, body.payload(), header.length);
  const uint64_t end = transfer.arrived + header.length;
  while (transfer.arrived < end) {
    BlockPiece pieces[kPieces];
    uint64_t bytes = 0;
    const size_t count = gather_pieces(transfer, transfer.arrived, end, false, pieces, kPieces, &bytes);
    for (size_t i = 0; i < count; ++i) {
      std::memcpy(pieces[i].here, body.payload(pieces[i].length), pieces[i].length);
    }
    transfer.arrived += bytes;
  }
  if (transfer.arrived == run->op->length) return blocks_arrived(engine, *run);
  engine.pusher().wants(peer);
}

}  // namespace thalweg::impl
