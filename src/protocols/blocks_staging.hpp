// SPDX-License-Identifier: Apache-2.0
// Blocks of device memory through pinned memory: a device gathers chosen blocks into a packed chunk, or scatters a chunk to
// them, by one kernel for all of them. At the initiator chunk by chunk, ahead of the consumer of the bytes (Staging); at the
// target of frames at once.
#pragma once
#include <span>

#include "protocols/blocks.hpp"
#include "protocols/staging.hpp"

namespace thalweg::impl {

/// A part of one block, or neighbours, of device memory.
struct BlockPart {
  uint64_t address, length;
};

/// Packed bytes of a block transfer's one side, which a device reaches: the local one, or the peer's at `addresses`.
class BlockStaging final : public Staging {
 public:
  /// addresses: of each of the peer's regions; empty: of the local blocks. kernels: may kernels of the device touch them?
  BlockStaging(Engine& engine, OpRun& run, Device& device, Direction direction, std::vector<uint64_t> addresses,
               DeviceUserLists users = {});

 private:
  uint64_t chunk_of(uint64_t position) const override;
  Status copy(std::byte* chunk, uint64_t begin, uint64_t end, DeviceQueues::Done done, void* token) override;
  uint64_t place_of(uint64_t pair);
  const std::vector<uint64_t> addresses_;
  const BlockRange* hint_ = nullptr;
};

/// Target of frames: the parts from, or into, packed bytes of this process, done when it returns. At most
/// DeviceQueues::kChunk bytes.
Status store_parts(DeviceQueues& queues, Device& device, std::span<const BlockPart> parts, const std::byte* packed);
Status load_parts(DeviceQueues& queues, Device& device, std::span<const BlockPart> parts, std::byte* packed);

}  // namespace thalweg::impl
