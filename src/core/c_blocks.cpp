// SPDX-License-Identifier: Apache-2.0
// C interface: prepared blocks, their keys, put and get of blocks by index, notifications.
#include <algorithm>
#include <cstring>
#include <new>

#include "core/c_checks.hpp"
#include "memory/placement.hpp"
#include "protocols/active.hpp"
#include "protocols/blocks.hpp"

using namespace thalweg::impl;

/// C handle of imported blocks.
struct tw_remote_blocks {
  std::shared_ptr<RemoteBlocks> blocks;
};

namespace {

constexpr tw_blocks_options kBlocksDefaults = TW_BLOCKS_OPTIONS_INIT;

// ------------------------------------------------------------------------------------------------ preparing

/// All ranges of a handle lie on one device, or none does.
Status note_device(BlockSpace& space, const void* address) {
  BufferInfo info;
  const bool known = find_device(reinterpret_cast<uint64_t>(address), &info) == TW_OK;
  Device* const device = known && !by_cpu(info.kind) ? info.device : nullptr;
  if (!known) {
    if (const Status status = check_host_memory(address, 1); is_error(status)) return status;
  }
  const bool pinned = known && by_cpu(info.kind), first = space.ranges.empty();
  if (!first && device != space.device) {
    return fail(TW_ERR_UNSUPPORTED,
                "the ranges of prepared blocks lie on one device, or all in host memory: prepare them apart");
  }
  space.device = device;
  space.pinned = pinned && (first || space.pinned);
  return TW_OK;
}

Status add_range(BlockSpace& space, const tw_block_range& given) {
  BlockRange range;
  range.stride = given.stride;
  range.count = given.count;
  if (given.memory != nullptr) {
    if (Status s = check(given.memory); is_error(s)) return s;
    if (Status s = note_device(space, given.memory->address); is_error(s)) return s;
    range.begin = reinterpret_cast<uintptr_t>(given.memory->address);
    return space.add(range, given.offset, given.memory->length);
  }
  if (given.address == nullptr) return fail(TW_ERR_INVALID, "a range of blocks needs a memory or an address");
  if (Status s = note_device(space, given.address); is_error(s)) return s;
  range.begin = reinterpret_cast<uintptr_t>(given.address);
  return space.add(range, given.offset, UINT64_MAX - range.begin);
}

/// A memory, and the part of it that the ranges touch: offsets of its first byte and behind its last.
struct Part {
  tw_memory* memory;
  uint64_t begin, end;
};

uint64_t offset_in(const tw_memory& memory, const BlockRange& range) {
  return range.begin - reinterpret_cast<uintptr_t>(memory.address);
}

/// Each memory once.
std::vector<Part> parts_of(const tw_blocks& blocks) {
  std::vector<Part> parts;
  for (size_t i = 0; i < blocks.memories.size(); ++i) {
    const BlockRange& range = blocks.space->ranges[i];
    const uint64_t begin = offset_in(*blocks.memories[i], range);
    const uint64_t end = begin + (range.count - 1) * range.stride + blocks.space->length;
    const auto at = std::find_if(parts.begin(), parts.end(), [&](const Part& p) { return p.memory == blocks.memories[i]; });
    if (at == parts.end()) {
      parts.push_back({blocks.memories[i], begin, end});
    } else {
      at->begin = std::min(at->begin, begin);
      at->end = std::max(at->end, end);
    }
  }
  return parts;
}

/// One key for each memory, of the part that the ranges touch. Its rkeys are revoked when anything fails.
Status export_memories(const tw_blocks& blocks, uint32_t access, BlockKey* out) {
  const BlockSpace& space = *blocks.space;
  const std::vector<Part> parts = parts_of(blocks);
  out->space.length = space.length;
  for (const Part& part : parts) {
    KeyBody key{};
    const uint32_t granted = access != 0 ? access : part.memory->access;
    const Status s = part.memory->registry->export_range(part.memory, part.begin, part.end - part.begin, granted, &key);
    if (is_error(s)) return s;
    out->keys.push_back(key);
  }
  for (size_t i = 0; i < space.ranges.size(); ++i) {
    const auto at = std::find_if(parts.begin(), parts.end(), [&](const Part& p) { return p.memory == blocks.memories[i]; });
    BlockRange range = space.ranges[i];
    const uint64_t offset = offset_in(*at->memory, range) - at->begin;
    range.begin = 0;
    range.region = static_cast<uint32_t>(at - parts.begin());
    if (Status s = out->space.add(range, offset, at->end - at->begin); is_error(s)) return s;
  }
  return TW_OK;
}

size_t count_memories(const tw_blocks& blocks) {
  std::vector<tw_memory*> memories = blocks.memories;
  std::sort(memories.begin(), memories.end());
  return static_cast<size_t>(std::unique(memories.begin(), memories.end()) - memories.begin());
}

/// Engine locked.
Status import_blocks(tw_endpoint& endpoint, BlockKey& key, tw_remote_blocks** out) {
  auto blocks = std::make_shared<RemoteBlocks>();
  for (const KeyBody& body : key.keys) {
    RemoteRegion* region = nullptr;
    if (Status s = import_region(*endpoint.peer, body, &region); is_error(s)) return s;
    blocks->regions.push_back(region);
  }
  blocks->space = std::move(key.space);
  endpoint.regions.insert(blocks->regions.begin(), blocks->regions.end());
  *out = new tw_remote_blocks{std::move(blocks)};
  return TW_OK;
}

// ------------------------------------------------------------------------------------------------ moving

/// Checks every index and keeps the pairs.
Status take_pairs(const uint64_t* here, const uint64_t* there, size_t n, BlockTransfer* transfer) {
  const uint64_t most_here = transfer->here->count, most_there = transfer->there->space.count;
  transfer->pairs.reset(new (std::nothrow) BlockChoice[n]);
  if (transfer->pairs == nullptr) return fail(TW_ERR_NO_MEMORY, "no memory for %zu pairs of blocks", n);
  bool bad = false;
  for (size_t i = 0; i < n; ++i) {
    const uint64_t a = here != nullptr ? here[i] : i, b = there != nullptr ? there[i] : i;
    bad |= a >= most_here || b >= most_there;
    transfer->pairs[i] = {static_cast<uint32_t>(a), static_cast<uint32_t>(b)};
  }
  if (!bad) return TW_OK;
  return fail(TW_ERR_OUT_OF_BOUNDS, "a block's number is too large: there are %llu here and %llu at the peer",
              static_cast<unsigned long long>(most_here), static_cast<unsigned long long>(most_there));
}

Status take_notification(const tw_blocks_options& options, BlockTransfer* transfer) {
  if (options.notify > TW_NOTIFY_HANDLER) return fail(TW_ERR_INVALID, "notify is %u, not one of TW_NOTIFY_*", options.notify);
  if (options.notify == TW_NOTIFY_NONE) {
    if (options.notification_length == 0) return TW_OK;
    return fail(TW_ERR_INVALID, "a notification needs notify: TW_NOTIFY_QUEUE or TW_NOTIFY_HANDLER");
  }
  if (options.notification_length > TW_NOTIFICATION_MAX) {
    return fail(TW_ERR_LIMIT, "a notification has at most %d bytes; send what is longer as a message", TW_NOTIFICATION_MAX);
  }
  if (options.notification_length != 0 && options.notification == nullptr) {
    return fail(TW_ERR_INVALID, "the notification is NULL");
  }
  if (options.notify == TW_NOTIFY_HANDLER && options.handler >= ActiveTable::kHandlers) {
    return fail(TW_ERR_INVALID, "handler %u: ids are below %u", options.handler, ActiveTable::kHandlers);
  }
  transfer->notify = static_cast<uint8_t>(options.notify);
  transfer->handler = static_cast<uint16_t>(options.handler);
  transfer->notification_length = static_cast<uint8_t>(options.notification_length);
  if (options.notification_length != 0) {
    std::memcpy(transfer->notification, options.notification, options.notification_length);
  }
  return TW_OK;
}

Status take_signal(const tw_endpoint& endpoint, const tw_blocks_options& options, OpDesc* op) {
  if (options.signal == nullptr) return TW_OK;
  if (op->verb == Verb::get_blocks) return fail(TW_ERR_INVALID, "a get has no signal; tell the owner by a notification");
  op->signal = region_of(options.signal);
  op->signal_op = static_cast<uint8_t>(options.signal_op);
  op->signal_value = options.signal_value;
  if (op->signal->peer == &*endpoint.peer) return TW_OK;
  return fail(TW_ERR_INVALID, "the signal was imported through another endpoint, or through one that is closed");
}

struct Arguments {
  tw_blocks* local;
  const uint64_t* local_index;
  tw_remote_blocks* remote;
  const uint64_t* remote_index;
  size_t n;
};

Status check_sides(const tw_endpoint& endpoint, const Arguments& a) {
  if (a.local == nullptr || a.remote == nullptr) return fail(TW_ERR_INVALID, "the local or remote blocks are NULL");
  if (Status s = a.local->born.check("blocks"); is_error(s)) return s;
  const RemoteBlocks& remote = *a.remote->blocks;
  if (remote.regions[0]->peer != &*endpoint.peer) {
    return fail(remote.regions[0]->peer == nullptr ? TW_ERR_STALE : TW_ERR_INVALID,
                "the remote blocks were imported through another endpoint, or through one that is closed");
  }
  if (a.local->space->length == remote.space.length) return TW_OK;
  return fail(TW_ERR_INVALID, "blocks of %llu bytes here and %llu at the peer; prepare both sides alike",
              static_cast<unsigned long long>(a.local->space->length), static_cast<unsigned long long>(remote.space.length));
}

Status take_length(const Arguments& a, OpDesc* op) {
  constexpr uint64_t kMost = uint64_t{1} << 62;
  if (a.n > BlockSpace::kBlocks) return fail(TW_ERR_LIMIT, "2^32 pairs of blocks or more; move them in several operations");
  const uint64_t each = a.local->space->length;
  if (!__builtin_mul_overflow(a.n, each, &op->length) && op->length <= kMost) return TW_OK;
  return fail(TW_ERR_LIMIT, "%zu blocks of %llu bytes are more than 2^62 bytes; move them in several operations", a.n,
              static_cast<unsigned long long>(each));
}

Status move_blocks(Verb verb, tw_endpoint* endpoint, const Arguments& a, const tw_blocks_options* given, tw_request* request) {
  const Enter enter(endpoint);
  if (is_error(enter.status())) return enter.status();
  if (request != nullptr) *request = TW_REQUEST_NONE;
  Engine& engine = *endpoint->worker->engine;
  const Engine::Guard guard(engine);
  if (Status s = check_sides(*endpoint, a); is_error(s)) return s;
  const Options<tw_blocks_options> options(given, kBlocksDefaults);
  if (Status s = options.status(); is_error(s)) return s;
  OpDesc op;
  op.verb = verb;
  op.flags = options->flags & ~kOpInternal;
  op.peer = &*endpoint->peer;
  if (Status s = take_length(a, &op); is_error(s)) return s;
  if (Status s = take_signal(*endpoint, *options, &op); is_error(s)) return s;
  op.blocks = new (std::nothrow) BlockTransfer;
  if (op.blocks == nullptr) return fail(TW_ERR_NO_MEMORY, "no memory for an operation on blocks");
  op.blocks->here = a.local->space;
  op.blocks->there = a.remote->blocks;
  Status status = take_notification(*options, op.blocks);
  if (status == TW_OK) status = take_pairs(a.local_index, a.remote_index, a.n, op.blocks);
  if (status == TW_OK) status = start_with_sink(*endpoint->worker, op, *options, request);
  release(op.blocks);
  endpoint->worker->posted();
  return status;
}

}  // namespace

extern "C" {

tw_status tw_blocks_create(tw_context* context, const tw_block_range* ranges, size_t range_count, size_t length,
                           tw_blocks** blocks) {
  if (Status s = check(context); is_error(s)) return s;
  if (blocks == nullptr || ranges == nullptr || range_count == 0) {
    return fail(TW_ERR_INVALID, "preparing blocks needs at least one range and a place for the handle");
  }
  auto space = std::make_shared<BlockSpace>();
  auto made = std::make_unique<tw_blocks>();
  space->length = length;
  for (size_t i = 0; i < range_count; ++i) {
    if (Status s = add_range(*space, ranges[i]); is_error(s)) return s;
    made->memories.push_back(ranges[i].memory);
  }
  made->space = std::move(space);
  *blocks = made.release();
  return TW_OK;
}

void tw_blocks_destroy(tw_blocks* blocks) { delete blocks; }
uint64_t tw_blocks_count(const tw_blocks* blocks) { return blocks == nullptr ? 0 : blocks->space->count; }
size_t tw_blocks_length(const tw_blocks* blocks) { return blocks == nullptr ? 0 : blocks->space->length; }

tw_status tw_blocks_export(tw_blocks* blocks, uint32_t access, void* key, size_t* key_length) {
  if (blocks == nullptr || key_length == nullptr) return fail(TW_ERR_INVALID, "the blocks or the key's length are NULL");
  if (Status s = blocks->born.check("blocks"); is_error(s)) return s;
  if ((access & ~uint32_t{TW_MEMORY_ALL}) != 0) {
    return fail(TW_ERR_INVALID, "access 0x%x has bits beside TW_MEMORY_READ, _WRITE and _ATOMIC", access);
  }
  for (const tw_memory* memory : blocks->memories) {
    if (memory == nullptr) return fail(TW_ERR_INVALID, "blocks of a plain address cannot be exported; register the memory");
  }
  const size_t capacity = *key_length;
  *key_length = block_key_length(count_memories(*blocks), blocks->memories.size());
  if (key == nullptr) return TW_OK;
  if (capacity < *key_length) return fail(TW_ERR_TRUNCATED, "this key takes %zu bytes", *key_length);
  BlockKey made;
  Status status = export_memories(*blocks, access, &made);
  if (status == TW_OK) status = write_block_key(made, key);
  if (is_error(status)) {
    for (const KeyBody& body : made.keys) blocks->memories[0]->registry->revoke(body.rkey);
  }
  return status;
}

tw_status tw_blocks_import(tw_endpoint* endpoint, const void* key, size_t key_length, tw_remote_blocks** remote) {
  const Enter enter(endpoint);
  if (is_error(enter.status())) return enter.status();
  if (remote == nullptr) return fail(TW_ERR_INVALID, "the place for the remote blocks is NULL");
  BlockKey parsed;
  if (Status s = parse_block_key(key, key_length, &parsed); is_error(s)) return s;
  const Engine::Guard guard(*endpoint->worker->engine);
  return import_blocks(*endpoint, parsed, remote);
}

void tw_remote_blocks_release(tw_remote_blocks* remote) {
  if (remote == nullptr) return;
  Peer* peer = remote->blocks->regions[0]->peer;
  if (peer == nullptr) {
    delete remote;
    return;
  }
  tw_endpoint* endpoint = peer->endpoint;
  if (endpoint->worker->born.forked()) return;
  const Engine::Guard guard(*endpoint->worker->engine);
  for (RemoteRegion* region : remote->blocks->regions) endpoint->regions.erase(region);
  delete remote;
}

uint64_t tw_remote_blocks_count(const tw_remote_blocks* remote) { return remote == nullptr ? 0 : remote->blocks->space.count; }
size_t tw_remote_blocks_length(const tw_remote_blocks* remote) { return remote == nullptr ? 0 : remote->blocks->space.length; }

tw_status tw_put_blocks(tw_endpoint* endpoint, tw_blocks* local, const uint64_t* local_index, tw_remote_blocks* remote,
                        const uint64_t* remote_index, size_t n, const tw_blocks_options* options, tw_request* request) {
  return move_blocks(Verb::put_blocks, endpoint, {local, local_index, remote, remote_index, n}, options, request);
}

tw_status tw_get_blocks(tw_endpoint* endpoint, tw_blocks* local, const uint64_t* local_index, tw_remote_blocks* remote,
                        const uint64_t* remote_index, size_t n, const tw_blocks_options* options, tw_request* request) {
  return move_blocks(Verb::get_blocks, endpoint, {local, local_index, remote, remote_index, n}, options, request);
}

tw_status tw_worker_next_notification(tw_worker* worker, tw_notification* notification) {
  const Enter enter(worker);
  if (is_error(enter.status())) return enter.status();
  if (notification == nullptr) return fail(TW_ERR_INVALID, "the place for the notification is NULL");
  if (worker->engine->completions().notifies_queue()) return TW_AGAIN;
  return next_notification(*worker->engine, notification);
}

}  // extern "C"
