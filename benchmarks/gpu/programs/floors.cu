// SPDX-License-Identifier: Apache-2.0
// What kernels written for one purpose need: the floors of programs. They count in memory of their own device, so that graphs
// may replay them. Every wait ends by itself.
#include <cstdint>

namespace {

using Word = unsigned long long;
constexpr Word kMostLooks = 200'000'000;

__device__ Word acquire(const Word* word) {
  Word value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}
__device__ void release(Word* word, Word value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}

__device__ void await(const Word* word, Word value) {
  if (threadIdx.x == 0) {
    for (Word looks = 0; acquire(word) < value && looks < kMostLooks; ++looks) {
    }
  }
  __syncthreads();
}

/// The block's share; 16 bytes at a time, or the 8 of the smallest.
__device__ void copy(char* to, const char* from, uint64_t bytes) {
  if (bytes == 8) {
    if (threadIdx.x == 0) *reinterpret_cast<Word*>(to) = *reinterpret_cast<const Word*>(from);
    return;
  }
  const uint64_t share = bytes / gridDim.x, words = share / 16;
  auto* const target = reinterpret_cast<uint4*>(to + blockIdx.x * share);
  const auto* const source = reinterpret_cast<const uint4*>(from + blockIdx.x * share);
  for (uint64_t first = threadIdx.x; first < words; first += blockDim.x * 4) {
    uint4 held[4];
    for (unsigned i = 0; i < 4; ++i) {
      if (first + i * blockDim.x < words) held[i] = source[first + i * blockDim.x];
    }
    for (unsigned i = 0; i < 4; ++i) {
      if (first + i * blockDim.x < words) target[first + i * blockDim.x] = held[i];
    }
  }
}

/// arrived: one word, 0 before and after.
__device__ void signal(Word* theirs, Word value, unsigned* arrived) {
  __syncthreads();
  if (threadIdx.x != 0) return;
  if (gridDim.x == 1) return release(theirs, value);
  __threadfence_system();
  if (atomicAdd(arrived, 1u) + 1 != gridDim.x) return;
  *arrived = 0;
  release(theirs, value);
}

}  // namespace

struct Hop {
  char* to;
  const char* from;
  uint64_t bytes;
  Word* round;      // here; how many are over
  Word* mine;       // here
  Word* theirs;
  unsigned* arrived;  // here
};

extern "C" __global__ void floor_empty() {}

extern "C" __global__ void __launch_bounds__(512) floor_put(Hop hop) {
  const Word value = *hop.round + 1;
  copy(hop.to, hop.from, hop.bytes);
  signal(hop.theirs, value, hop.arrived);
}
extern "C" __global__ void floor_wait(Hop hop) {
  const Word value = *hop.round + 1;
  await(hop.mine, value);
  *hop.round = value;
}
/// One kernel a hop. After the answer all blocks but the last to come leave; that one counts.
extern "C" __global__ void __launch_bounds__(512) floor_wait_put(Hop hop) {
  const Word value = *reinterpret_cast<volatile Word*>(hop.round) + 1;
  await(hop.mine, value);
  copy(hop.to, hop.from, hop.bytes);
  __syncthreads();
  if (threadIdx.x != 0) return;
  __threadfence_system();
  if (gridDim.x > 1 && atomicAdd(hop.arrived, 1u) + 1 != gridDim.x) return;
  *hop.arrived = 0;
  *hop.round = value;
  release(hop.theirs, value);
}
extern "C" __global__ void floor_face(double* to, const double* from, uint64_t count, uint64_t to_stride, uint64_t from_stride) {
  for (uint64_t i = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x; i < count; i += uint64_t{gridDim.x} * blockDim.x)
    to[i * to_stride] = from[i * from_stride];
}
