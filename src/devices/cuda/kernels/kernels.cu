// SPDX-License-Identifier: Apache-2.0
// The library's kernels; what they do stands in devices/kernel.hpp. All of them run on one-dimensional grids, any number of
// blocks, whole warps.
#include "atomic.cuh"
#include "ends.cuh"
#include "forms.cuh"
#include "program.cuh"
#include "resident.cuh"
#include "warp_copy.cuh"

namespace thalweg::impl::cuda {
namespace {

struct Pair {
  uint64_t to, from;
};

__device__ char* pointer(uint64_t address) { return reinterpret_cast<char*>(address); }

/// Threads take words of rows that are too short for a warp.
template <typename Word, typename Index>
__device__ void copy_narrow(const CopyArguments& copy) {
  constexpr unsigned kInFlight = 4;
  const Index words = static_cast<Index>(copy.width / sizeof(Word)), rows = static_cast<Index>(copy.rows);
  const Index all = words * rows * static_cast<Index>(copy.slices);
  const Index step = static_cast<Index>(gridDim.x) * blockDim.x;
  for (Index first = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x; first < all; first += kInFlight * step) {
    Word held[kInFlight];
    Word* target[kInFlight];
#pragma unroll
    for (unsigned i = 0; i < kInFlight; ++i) {
      const Index at = first + i * step;
      target[i] = nullptr;
      if (at >= all) continue;
      const Index row = at / words, word = at - row * words, slice = row / rows, y = row - slice * rows;
      const auto dy = static_cast<int64_t>(y), dz = static_cast<int64_t>(slice);
      target[i] = reinterpret_cast<Word*>(copy.to + dz * copy.to_slice + dy * copy.to_row) + word;
      held[i] = reinterpret_cast<const Word*>(copy.from + dz * copy.from_slice + dy * copy.from_row)[word];
    }
#pragma unroll
    for (unsigned i = 0; i < kInFlight; ++i) {
      if (target[i] != nullptr) *target[i] = held[i];
    }
  }
}

template <typename Word>
__device__ void copy_narrow(const CopyArguments& copy) {
  const uint64_t words = copy.width / sizeof(Word) * copy.rows * copy.slices;
  if (words < (uint64_t{1} << 31)) {
    copy_narrow<Word, uint32_t>(copy);  // 64-bit divisions are slow; at most 65535 blocks: the index does not wrap
  } else {
    copy_narrow<Word, uint64_t>(copy);
  }
}

}  // namespace

/// Rows long enough for warps, and plain copies, which are one row.
extern "C" __global__ void __launch_bounds__(512) thalweg_copy_wide(const __grid_constant__ CopyArguments copy) {
  if (stopped(copy.ends)) return;
  const unsigned lane = threadIdx.x % kWarp;
  const uint64_t warp = (static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / kWarp;
  const uint64_t warps = static_cast<uint64_t>(gridDim.x) * blockDim.x / kWarp;
  const uint64_t pieces = (copy.width + copy.piece - 1) / copy.piece;
  for (uint64_t item = warp; item < pieces * copy.rows * copy.slices; item += warps) {
    const uint64_t row = item / pieces, offset = (item - row * pieces) * copy.piece;
    const auto z = static_cast<int64_t>(row / copy.rows), y = static_cast<int64_t>(row % copy.rows);
    const uint64_t left = copy.width - offset;
    warp_copy(pointer(copy.to + z * copy.to_slice + y * copy.to_row + offset),
              pointer(copy.from + z * copy.from_slice + y * copy.from_row + offset), left < copy.piece ? left : copy.piece, lane);
  }
  finish(copy.ends);
}

extern "C" __global__ void __launch_bounds__(512) thalweg_copy_narrow(const __grid_constant__ CopyArguments copy) {
  if (stopped(copy.ends)) return;
  switch (copy.piece) {  // the largest word that divides addresses, pitches and width
    case 16:
      copy_narrow<uint4>(copy);
      break;
    case 8:
      copy_narrow<uint2>(copy);
      break;
    case 4:
      copy_narrow<unsigned>(copy);
      break;
    case 2:
      copy_narrow<unsigned short>(copy);
      break;
    default:
      copy_narrow<char>(copy);
  }
  finish(copy.ends);
}

extern "C" __global__ void __launch_bounds__(512) thalweg_copy_blocks(const __grid_constant__ BlocksArguments blocks) {
  if (stopped(blocks.ends)) return;
  const unsigned lane = threadIdx.x % kWarp;
  const uint64_t warp = (static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / kWarp;
  const uint64_t warps = static_cast<uint64_t>(gridDim.x) * blockDim.x / kWarp;
  const uint64_t pieces = (blocks.length + blocks.piece - 1) / blocks.piece;
  const Pair* const pairs = reinterpret_cast<const Pair*>(blocks.pairs);
  for (uint64_t item = warp; item < pieces * blocks.count; item += warps) {
    const uint64_t which = item / pieces, offset = (item - which * pieces) * blocks.piece;
    const uint64_t left = blocks.length - offset;
    const Pair pair = pairs[which];
    warp_copy(pointer(pair.to + offset), pointer(pair.from + offset), left < blocks.piece ? left : blocks.piece, lane);
  }
  finish(blocks.ends);
}

/// The stream's earlier kernels and copies have ended: their data is ordered before this fence.
extern "C" __global__ void thalweg_signal(const __grid_constant__ Ends ends) {
  if (stopped(ends)) return;
  finish(ends);
}

/// One thread.
extern "C" __global__ void thalweg_atomic(const __grid_constant__ AtomicArguments atomic) {
  if (stopped(atomic.ends)) return;
  __threadfence_system();
  const uint64_t old = change_word(atomic);
  __threadfence_system();
  if (atomic.old != 0) *reinterpret_cast<volatile uint64_t*>(atomic.old) = old;
  finish(atomic.ends);
}

extern "C" __global__ void thalweg_wait(const __grid_constant__ WaitArguments wait) {
  if (load_acquire(wait.status) != 0) return;
  const uint64_t start = nanoseconds();
  while (static_cast<int64_t>(load_acquire(wait.word) - wait.value) < 0) {
    if (nanoseconds() - start < wait.limit_ns) continue;
    store_release(wait.status, wait.expired);
    return;
  }
}

}  // namespace thalweg::impl::cuda
