// SPDX-License-Identifier: Apache-2.0
// The memory of a collective's call, and scratch memory that a group keeps for the next calls.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/schedule.hpp"
#include "devices/device.hpp"
#include "memory/device_allocation.hpp"

namespace thalweg::impl {

/// One buffer as steps use it.
struct Buffer {
  std::byte* address = nullptr;
  uint64_t length = 0;
  bool on_device = false;  // only queues of info.device touch it
  BufferInfo info;
};
/// Looks up where it lies. TW_ERR_OUT_OF_BOUNDS, or host memory that is not mapped.
Status describe_buffer(const void* address, uint64_t length, Buffer* out);

struct FreeAligned {
  void operator()(std::byte* memory) const;
};
using AlignedBytes = std::unique_ptr<std::byte, FreeAligned>;
/// Host memory, aligned to 64 bytes; null: there is none.
AlignedBytes allocate_aligned(uint64_t length);

class Scratch;
/// A loan, until it ends.
class ScratchBlock {
 public:
  ScratchBlock() = default;
  ScratchBlock(ScratchBlock&& other) noexcept { *this = std::move(other); }
  ScratchBlock& operator=(ScratchBlock&& other) noexcept;
  ~ScratchBlock() { give_back(); }
  void give_back();
  const Buffer& buffer() const { return buffer_; }

 private:
  friend class Scratch;
  Buffer buffer_;
  AlignedBytes host_;
  DeviceAllocation device_;
  Scratch* from_ = nullptr;
};

/// Of one group; its worker's user, under the engine's lock. Outlives the loans.
class Scratch {
 public:
  /// At least `length` bytes, aligned to 64; device null: of the host.
  Status take(Device* device, uint64_t length, ScratchBlock* out);

 private:
  friend class ScratchBlock;
  static constexpr uint64_t kKept = 64u << 20;  // bytes that no call uses
  std::vector<ScratchBlock> idle_;
  uint64_t kept_ = 0;
};

/// What the symbolic buffers of a schedule are in this call.
struct Bound {
  Buffer input, output;
  ScratchBlock scratch;
  const Buffer& of(Where where) const {
    return where == Where::input ? input : where == Where::output ? output : scratch.buffer();
  }
  std::byte* address(const Part& part) const { return of(part.where).address + part.offset; }
};

}  // namespace thalweg::impl
