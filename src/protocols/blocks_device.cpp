// SPDX-License-Identifier: Apache-2.0
// Blocks of device memory: kernels of one device of this process take the pairs from lists in pinned memory, 65,536 pairs a
// launch, whatever the blocks' length (two H200: 364 GB/s with blocks of 4 KiB and of 64 KiB; one engine copy each: 70). The
// device must reach the blocks of both sides: it is the local blocks', or, where those are pinned, the peer's as seen from
// here. Where it does not, the way is a window or goes through the host.
#include <algorithm>
#include <cstring>

#include "base/log.hpp"
#include "devices/registry.hpp"
#include "protocols/blocks_staging.hpp"
#include "protocols/device_queues.hpp"
#include "protocols/one_sided.hpp"
#include "protocols/reach_device.hpp"

namespace thalweg::impl {
namespace {

constexpr uint64_t kPairs = DeviceQueues::kChunk / sizeof(BlockPair);

/// One launch: its list, and whose it is.
struct Launch {
  OpRun* run;
  Device* device;
  std::byte* list;
};

/// All of the peer's regions as one device of this process reaches them. Its imports are counted.
struct Reached {
  Device* device = nullptr;
  std::vector<uint64_t> addresses;
  std::vector<Mapping*> imports;
  DeviceUserLists users;
  Reached() = default;
  Reached(const Reached&) = delete;
  Reached& operator=(const Reached&) = delete;
  ~Reached() {
    for (Mapping* mapping : imports) --mapping->users;
  }
};

/// Where kernels of `device` reach the region's first byte. TW_OK, TW_AGAIN or an error: not this way.
Status reach_blocks(Peer& peer, RemoteRegion& region, Device& device, DeviceReach* out) {
  const Status status = reach_region(peer, region, device, out);
  if (status == TW_IN_PROGRESS) return TW_AGAIN;
  if (is_error(status) && status != TW_ERR_STALE) region.unreached.add(&device);
  // Unknown here, it may still be alive in another context of this process: that one's progress decides.
  if (status == TW_ERR_STALE && in_process(region))
    return fail(TW_ERR_UNSUPPORTED, "it is device memory of another context of this process");
  if (status != TW_OK || out->kernels) return status;
  region.unlaunched.add(&device);
  return fail(TW_ERR_UNREACHABLE, "the devices of these blocks do not reach each other");
}

/// TW_OK, TW_AGAIN or an error: not this way.
Status reach_all(OpRun& run, Reached* out) {
  const BlockTransfer& transfer = *run.op->blocks;
  const auto& regions = transfer.there->regions;
  out->device = transfer.here->device != nullptr ? transfer.here->device : device_of(*regions[0]);
  if (out->device == nullptr) {
    return fail(TW_ERR_UNREACHABLE, "the target's device is not visible in this process: let CUDA_VISIBLE_DEVICES name it");
  }
  for (RemoteRegion* region : regions) {
    DeviceReach reached;
    const Status status = reach_blocks(*run.peer, *region, *out->device, &reached);
    if (status != TW_OK) return status;
    out->addresses.push_back(reached.address);
    out->users.insert(out->users.end(), reached.users.begin(), reached.users.end());
    if (reached.mapping == nullptr) continue;
    ++reached.mapping->users;
    out->imports.push_back(reached.mapping);
  }
  return TW_OK;
}

void launched(Engine& engine, void* token, Status status) {
  const std::unique_ptr<Launch> launch(static_cast<Launch*>(token));
  OpRun& run = *launch->run;
  BlockTransfer& transfer = *run.op->blocks;
  engine.devices().give_chunk(*launch->device, launch->list);
  if (is_error(status)) transfer.failed = status;
  if (run.work == 1) transfer.drop_imports();
  if (!engine.work_over(run) || run.work != 0) return;
  count_out(run);
  run.moved = run.op->length;
  to_front(run);  // its signal and notification are next
}

Status launch_pairs(Engine& engine, OpRun& run, const Reached& reached, uint64_t from) {
  Device& device = *reached.device;
  BlockTransfer& transfer = *run.op->blocks;
  const bool put = run.op->verb == Verb::put_blocks;
  const uint64_t count = std::min(run.op->length / transfer.here->length - from, kPairs);
  std::byte* list = engine.devices().take_chunk(device);
  if (list == nullptr) return fail(TW_ERR_NO_MEMORY, "no pinned memory for a list of blocks");
  auto* pairs = reinterpret_cast<BlockPair*>(list);
  for (uint64_t i = 0; i < count; ++i) {
    const BlockChoice numbers = transfer.pairs[from + i];
    const BlockRange& mine = transfer.here->range_of(numbers.here, transfer.here_hint);
    const BlockRange& theirs = transfer.there->space.range_of(numbers.there, transfer.there_hint);
    const uint64_t here = BlockSpace::place(mine, numbers.here);
    const uint64_t there = reached.addresses[theirs.region] + BlockSpace::place(theirs, numbers.there);
    pairs[i] = put ? BlockPair{there, here} : BlockPair{here, there};
  }
  auto launch = std::make_unique<Launch>(Launch{&run, &device, list});
  const BlocksKernel kernel{reinterpret_cast<uint64_t>(list), count, transfer.here->length, {}, 0, 0};
  const Status status = engine.devices().submit(device, Kernel{kernel}, launched, launch.get(), reached.users);
  if (is_error(status)) {
    engine.devices().give_chunk(device, list);
    return status;
  }
  launch.release();
  ++run.work;
  return TW_OK;
}

/// Kernels between the blocks themselves. TW_IN_PROGRESS, or an error: none was launched.
Status launch_all(OpRun& run, Reached& reached) {
  BlockTransfer& transfer = *run.op->blocks;
  Peer& peer = *run.peer;
  Status status = TW_OK;
  for (uint64_t from = 0; status == TW_OK && from * transfer.here->length < run.op->length; from += kPairs) {
    status = launch_pairs(*peer.engine, run, reached, from);
  }
  if (run.work == 0) return status;
  transfer.imports.swap(reached.imports);
  transfer.failed = status;  // reported when the launched work is over
  if (!run.holds_regions) hold_regions(run);
  if (run.list != nullptr) run.list->remove(&run);
  count_in(run, Counted::device);
  return TW_IN_PROGRESS;
}

/// The way of a run that turns move.
void begin_turns(OpRun& run, Reached& reached) {
  BlockTransfer& transfer = *run.op->blocks;
  Engine& engine = *run.peer->engine;
  const bool put = run.op->verb == Verb::put_blocks, window = transfer.way == BlocksRoute::window;
  Device* const device = window ? reached.device : transfer.here->device;
  if (device == nullptr) return;   // frames of host memory here
  const bool out = put != window;  // of the device
  if (window) transfer.imports.swap(reached.imports);
  run.staging = new BlockStaging(engine, run, *device, out ? Staging::Direction::out : Staging::Direction::in,
                                 window ? std::move(reached.addresses) : std::vector<uint64_t>{},
                                 window ? std::move(reached.users) : DeviceUserLists{});
  run.extras = true;
}

}  // namespace

Status settle_route(OpRun& run) {
  BlockTransfer& transfer = *run.op->blocks;
  const Blocks facts = blocks_of(*run.op);
  Reached reached;
  const bool maps = (run.peer->link->features & kLinkMaps) != 0;
  if (facts.mixed && maps)
    warn_once("device.mixed-blocks",
              "blocks of device memory go through the host, because others of the same list are host "
              "memory: prepare them apart");
  if (asks_device(blocks_route(facts, transfer.tried))) {
    const Status status = reach_all(run, &reached);
    if (status == TW_AGAIN) return status;
    if (is_error(status)) transfer.tried |= bit_of(BlocksRoute::device) | bit_of(BlocksRoute::window);
    if (is_error(status) && status != TW_ERR_STALE && maps)
      warn_once("device.relayed-blocks", std::string("blocks of device memory go through the host: ") + last_error());
  }
  take_route(transfer, facts);
  if (transfer.way == BlocksRoute::device) {
    const Status launched = launch_all(run, reached);
    if (launched != TW_ERR_UNSUPPORTED) return launched;
    transfer.tried |= bit_of(BlocksRoute::device);  // a build without kernels
    for (RemoteRegion* region : transfer.there->regions) region->unlaunched.add(reached.device);
    take_route(transfer, facts);
  }
  begin_turns(run, reached);
  return TW_OK;
}

}  // namespace thalweg::impl
