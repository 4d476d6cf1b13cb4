// SPDX-License-Identifier: Apache-2.0
// Gathering and scattering blocks through chunks; see blocks_staging.hpp.
#include "protocols/blocks_staging.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "routes/device_copies.hpp"

namespace thalweg::impl {
namespace {

using Parts = std::span<const BlockPart>;

uint64_t bytes_of(Parts parts) {
  return std::accumulate(parts.begin(), parts.end(), uint64_t{0},
                         [](uint64_t sum, const BlockPart& p) { return sum + p.length; });
}

/// One kernel for all parts, as pairs of one length, listed in the chunk behind the bytes. False: by an engine.
bool as_kernel(std::byte* chunk, Parts parts, bool gather, BlocksKernel* kernel) {
  uint64_t unit = 0;
  for (const BlockPart& part : parts) unit = std::gcd(unit, part.length);
  const uint64_t bytes = bytes_of(parts), begin = (bytes + alignof(BlockPair) - 1) & ~uint64_t{alignof(BlockPair) - 1};
  const uint64_t count = bytes / unit;
  const bool room = begin + count * sizeof(BlockPair) <= DeviceQueues::kChunk;
  if (gather_by({parts.size(), count, room}) != CopyBy::kernel) return false;
  auto* pair = reinterpret_cast<BlockPair*>(chunk + begin);
  *kernel = {reinterpret_cast<uint64_t>(pair), count, unit, {}, 0, 0};
  uint64_t packed = reinterpret_cast<uint64_t>(chunk);
  for (const BlockPart& part : parts) {
    for (uint64_t at = 0; at < part.length; at += unit, packed += unit) {
      *pair++ = gather ? BlockPair{packed, part.address + at} : BlockPair{part.address + at, packed};
    }
  }
  return true;
}

/// The parts out of (gather) or into device memory: enqueue(kernel) or enqueue(copies).
template <class Enqueue>
Status move_parts(std::byte* chunk, Parts parts, bool gather, const Enqueue& enqueue) {
  BlocksKernel kernel{};
  if (as_kernel(chunk, parts, gather, &kernel)) {
    const Status status = enqueue(Kernel{kernel});
    if (status != TW_ERR_UNSUPPORTED) return status;  // else: a build without kernels
  }
  std::vector<Copy> copies;
  copies.reserve(parts.size());
  uint64_t packed = reinterpret_cast<uint64_t>(chunk);
  for (const BlockPart& part : parts) {
    copies.push_back(gather ? Copy{packed, part.address, part.length} : Copy{part.address, packed, part.length});
    packed += part.length;
  }
  return enqueue(std::span<const Copy>(copies));
}

/// As one frame has them, waited for.
Status move_now(DeviceQueues& queues, Device& device, Parts parts, std::byte* chunk, bool gather) {
  return move_parts(chunk, parts, gather, [&](const auto& work) { return queues.run(device, work); });
}

}  // namespace

BlockStaging::BlockStaging(Engine& engine, OpRun& run, Device& device, Direction direction, std::vector<uint64_t> addresses,
                           DeviceUserLists users)
    : Staging(engine, run, device, CopySide{0, nullptr}, direction, 0, run.op->length, std::move(users)),
      addresses_(std::move(addresses)) {}

/// Whole blocks, with room for the list of them, unless they are too long for that.
uint64_t BlockStaging::chunk_of(uint64_t) const {
  const uint64_t length = run_.op->blocks->here->length;
  if (length > DeviceQueues::kChunk / 2) return DeviceQueues::kChunk;
  return DeviceQueues::kChunk / (length + sizeof(BlockPair)) * length;
}

uint64_t BlockStaging::place_of(uint64_t pair) {
  const BlockTransfer& transfer = *run_.op->blocks;
  const BlockChoice numbers = transfer.pairs[pair];
  if (addresses_.empty()) return BlockSpace::place(transfer.here->range_of(numbers.here, hint_), numbers.here);
  const BlockRange& range = transfer.there->space.range_of(numbers.there, hint_);
  return addresses_[range.region] + BlockSpace::place(range, numbers.there);
}

Status BlockStaging::copy(std::byte* chunk, uint64_t begin, uint64_t end, DeviceQueues::Done done, void* token) {
  const uint64_t length = run_.op->blocks->here->length;
  std::vector<BlockPart> parts;
  for (uint64_t at = begin, n = 0; at < end; at += n) {
    const uint64_t within = at % length, address = place_of(at / length) + within;
    n = std::min(length - within, end - at);
    BlockPart* const last = parts.empty() ? nullptr : &parts.back();
    if (last != nullptr && last->address + last->length == address) {
      last->length += n;
    } else {
      parts.push_back({address, n});
    }
  }
  DeviceQueues& queues = engine_.devices();
  return move_parts(chunk, parts, direction_ == Direction::out,
                    [&](const auto& work) { return queues.submit(*device_, work, done, token, users_); });
}

Status store_parts(DeviceQueues& queues, Device& device, Parts parts, const std::byte* packed) {
  std::byte* const chunk = queues.take_chunk(device);
  if (chunk == nullptr) return TW_ERR_NO_MEMORY;
  std::memcpy(chunk, packed, bytes_of(parts));
  const Status status = move_now(queues, device, parts, chunk, false);
  queues.give_chunk(device, chunk);
  return status;
}

Status load_parts(DeviceQueues& queues, Device& device, Parts parts, std::byte* packed) {
  std::byte* const chunk = queues.take_chunk(device);
  if (chunk == nullptr) return TW_ERR_NO_MEMORY;
  const Status status = move_now(queues, device, parts, chunk, true);
  if (status == TW_OK) std::memcpy(packed, chunk, bytes_of(parts));
  queues.give_chunk(device, chunk);
  return status;
}

}  // namespace thalweg::impl
