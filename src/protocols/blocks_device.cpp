// SPDX-License-Identifier: Apache-2.0
// Blocks of device memory: kernels of one device of this process take the pairs from lists in pinned memory, 65,536 pairs a launch,
// whatever the blocks' length (two H200: 364 GB/s with blocks of 4 KiB and of 64 KiB; one engine copy each: 70). The device must
// reach the blocks of both sides: it is the local blocks', or, where those are pinned, the peer's as seen from here.
#include <algorithm>
#include <cstring>

#include "devices/registry.hpp"
#include "protocols/blocks.hpp"
#include "protocols/device_lane.hpp"
#include "protocols/one_sided.hpp"
#include "protocols/reach_device.hpp"

namespace thalweg::impl {
namespace {

constexpr uint64_t kPairs = DeviceLane::kChunk / sizeof(BlockPair);

/// One launch: its list, and whose it is.
struct Launch {
  OpRun* run;
  Device* device;
  std::byte* list;
};

Device* copier(const BlockTransfer& transfer) {
  if (transfer.here->device != nullptr) return transfer.here->device;
  return transfer.here->pinned ? device_of(*transfer.there->regions[0]) : nullptr;
}

/// Where kernels of `device` reach the region's first byte. TW_OK, TW_AGAIN or an error.
Status reach_blocks(Peer& peer, const RemoteRegion& region, Device& device, DeviceReach* out) {
  const Status status = reach_region(peer, region, device, out);
  if (status == TW_IN_PROGRESS) return TW_AGAIN;
  if (status == TW_ERR_UNSUPPORTED) {
    return fail(TW_ERR_UNREACHABLE,
                "no device here reaches the peer's blocks: pool or managed memory, or another machine; put and get take those");
  }
  if (status != TW_OK || out->kernels) return status;
  return fail(TW_ERR_UNREACHABLE, "the devices of these blocks do not reach each other");
}

void drop_imports(BlockTransfer& transfer) {
  for (Mapping* mapping : transfer.imports) --mapping->users;
  transfer.imports.clear();
}

void launched(Engine& engine, void* token, Status status) {
  const std::unique_ptr<Launch> launch(static_cast<Launch*>(token));
  OpRun& run = *launch->run;
  BlockTransfer& transfer = *run.op->blocks;
  engine.devices().give_chunk(*launch->device, launch->list);
  if (is_error(status)) transfer.failed = status;
  if (run.work == 1) drop_imports(transfer);
  if (!engine.work_over(run) || run.work != 0) return;
  Peer& peer = *run.peer;
  --peer.one_sided.device;
  run.moved = run.op->length;
  peer.one_sided.lane.push_front(&run);  // its signal and notification are next
  engine.wants_push(peer);
}

Status launch_pairs(Engine& engine, OpRun& run, Device& device, const std::vector<uint64_t>& regions, uint64_t from) {
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
    const uint64_t there = regions[theirs.region] + BlockSpace::place(theirs, numbers.there);
    pairs[i] = put ? BlockPair{there, here} : BlockPair{here, there};
  }
  auto launch = std::make_unique<Launch>(Launch{&run, &device, list});
  const BlocksKernel kernel{reinterpret_cast<uint64_t>(list), count, transfer.here->length, {}, 0, 0};
  const Status status = engine.devices().submit(device, Kernel{kernel}, launched, launch.get());
  if (is_error(status)) {
    engine.devices().give_chunk(device, list);
    return status;
  }
  launch.release();
  ++run.work;
  return TW_OK;
}

}  // namespace

bool on_devices(const BlockTransfer& transfer) {
  const auto of = [](const RemoteRegion* region) { return of_device(*region); };
  return transfer.here->device != nullptr || std::any_of(transfer.there->regions.begin(), transfer.there->regions.end(), of);
}

Status check_devices(const BlockTransfer& transfer) {
  const auto of = [](const RemoteRegion* region) { return of_device(*region); };
  const auto& regions = transfer.there->regions;
  const bool local = transfer.here->device != nullptr || transfer.here->pinned;
  if (local && std::all_of(regions.begin(), regions.end(), of)) return TW_OK;
  return fail(
      TW_ERR_UNSUPPORTED,
      "blocks of device memory move between devices, or between a peer's device and pinned memory here; use puts and gets "
      "for other host memory");
}

Status move_by_device(OpRun& run) {
  BlockTransfer& transfer = *run.op->blocks;
  Peer& peer = *run.peer;
  Engine& engine = *peer.engine;
  Device* device = copier(transfer);
  if (device == nullptr) return fail(TW_ERR_UNREACHABLE, "no device of this process reaches the peer's blocks");
  std::vector<uint64_t> addresses;
  std::vector<Mapping*> imports;
  for (RemoteRegion* region : transfer.there->regions) {
    DeviceReach reached;
    const Status status = reach_blocks(peer, *region, *device, &reached);
    if (status != TW_OK) {
      for (Mapping* held : imports) --held->users;
      return status;
    }
    addresses.push_back(reached.address);
    if (reached.mapping == nullptr) continue;
    ++reached.mapping->users;
    imports.push_back(reached.mapping);
  }
  transfer.imports = std::move(imports);
  Status status = TW_OK;
  for (uint64_t from = 0; status == TW_OK && from * transfer.here->length < run.op->length; from += kPairs) {
    status = launch_pairs(engine, run, *device, addresses, from);
  }
  if (run.work == 0) {
    drop_imports(transfer);
    return status;
  }
  transfer.failed = status;  // told when what was launched is over
  if (!run.holds_regions) hold_regions(run);
  if (run.list != nullptr) run.list->remove(&run);
  ++peer.one_sided.device;
  return TW_IN_PROGRESS;
}

}  // namespace thalweg::impl
