// SPDX-License-Identifier: Apache-2.0
// The resident copy kernel. In each block the first warp runs the common text (devices/resident/block.hpp), all lanes in step; the
// other warps wait at a barrier for the copies that are worth them.
#pragma once
#include "devices/resident/block.hpp"
#include "thalweg/device/copy.hpp"

namespace thalweg::impl::cuda {

constexpr unsigned kResidentThreads = 512;

/// What the first warp has for the others.
struct ResidentShared {
  u64 to, from;
  u32 length;
  bool over;
};

/// By all threads of the block, from two places of the text.
__device__ __forceinline__ void meet() { asm volatile("bar.sync 1;" ::: "memory"); }

class WarpIo {
 public:
  explicit __device__ WarpIo(ResidentShared& shared) : shared_(shared), lane_(threadIdx.x % 32) {}

  /// All words at once, in one round trip. The last lane looks at `leaving`, which block 0 writes itself.
  __device__ __forceinline__ bool fetch(const resident::Slot* slot, u32 tag, const u64* leaving, resident::Command* out,
                                        u64* left) const {
    const device::DirectMachine machine;
    constexpr u32 kLast = resident::kWords;
    u64 word = 0;
    if (lane_ < kLast) {
      word = machine.acquire(&slot->words[lane_]);
    } else if (lane_ == kLast && blockIdx.x != 0) {
      word = machine.acquire(leaving);
    }
    __syncwarp();  // what one lane acquired is visible to all
    const bool whole = __all_sync(~0u, lane_ >= kLast || static_cast<u32>(word) == tag) != 0;
    *left = __shfl_sync(~0u, word, kLast);
    if (!whole) return false;
    u32 parts[kLast];
#pragma unroll
    for (u32 i = 0; i < kLast; ++i) parts[i] = __shfl_sync(~0u, static_cast<u32>(word >> 32), i);
    *out = resident::command_of(parts);
    return true;
  }
  __device__ __forceinline__ void copy(u64 to, u64 from, u32 bytes) const {
    constexpr u32 kAlone = 512;  // what one load of each lane covers
    if (bytes <= kAlone) {
      device::copy_run(device::DirectMachine(), lane_, 32, to, from, bytes);
      return;
    }
    if (lane_ == 0) shared_ = {to, from, bytes, false};
    meet();
    device::copy_run(device::DirectMachine(), threadIdx.x, kResidentThreads, to, from, bytes);
    meet();
  }
  /// Behind a barrier one thread's release stands for what all of them did.
  __device__ __forceinline__ void say(u64* word, u64 value) const {
    __syncwarp();
    if (lane_ == 0) device::DirectMachine().release(word, value);
    __syncwarp();
  }
  __device__ __forceinline__ u64 nanoseconds() const { return __shfl_sync(~0u, device::DirectMachine().nanoseconds(), 0); }

 private:
  ResidentShared& shared_;
  const u32 lane_;
};

extern "C" __global__ void __launch_bounds__(kResidentThreads)
    thalweg_resident(const __grid_constant__ resident::Arguments arguments) {
  __shared__ ResidentShared shared;
  if (threadIdx.x < 32) {
    resident::Block<WarpIo> block(WarpIo(shared), arguments, blockIdx.x);
    block.begin();
    while (block.turn() != resident::Turn::over) {
    }
    if (threadIdx.x == 0) shared.over = true;
    meet();
    return;
  }
  for (;;) {
    meet();
    if (shared.over) return;
    device::copy_run(device::DirectMachine(), threadIdx.x, kResidentThreads, shared.to, shared.from, shared.length);
    meet();
  }
}

}  // namespace thalweg::impl::cuda
