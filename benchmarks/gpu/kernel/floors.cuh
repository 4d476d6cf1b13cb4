// SPDX-License-Identifier: Apache-2.0
// What the hardware gives to kernels of two GPUs that pass messages: no checks, no limits, nothing of the library.
#pragma once
#include "tests/gpu/device/pair.cuh"

namespace thalweg::device::gpu::floors {

/// What a ping-pong works with: the peer's memory and one's own; words for flags.
struct Sides {
  char *to, *from, *mine;  // there, source here, where the peer's data arrives
  u64 *their_flag, *my_flag;
  u32* count;
  u64 bytes;
  int rounds;
  bool first;
};

__device__ __forceinline__ void store_release(u64* word, u64 value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}
__device__ __forceinline__ void store_relaxed(u64* word, u64 value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}
__device__ __forceinline__ void spin(const u64* word, u64 value) {
  u64 seen;
  do {
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(seen) : "l"(word) : "memory");
  } while (seen < value);
}

__device__ __forceinline__ void copy_block(char* to, const char* from, u64 bytes) {
  uint4* const target = reinterpret_cast<uint4*>(to);
  const uint4* const source = reinterpret_cast<const uint4*>(from);
  const u64 words = bytes / 16;
  for (u64 i = threadIdx.x; i < words; i += blockDim.x * 4) {
    uint4 held[4];
    for (unsigned k = 0; k < 4; ++k) {
      if (i + k * blockDim.x < words) held[k] = source[i + k * blockDim.x];
    }
    for (unsigned k = 0; k < 4; ++k) {
      if (i + k * blockDim.x < words) target[i + k * blockDim.x] = held[k];
    }
  }
}

/// 8 bytes, then a release store, by one thread.
__global__ void direct_thread(Sides s) {
  for (int i = 1; i <= s.rounds; ++i) {
    if (!s.first) spin(s.my_flag, i);
    *reinterpret_cast<volatile u64*>(s.to) = i;
    store_release(s.their_flag, i);
    if (s.first) spin(s.my_flag, i);
  }
}

/// A block's stores, barrier, one fence, flag.
__global__ void __launch_bounds__(1024) direct_block(Sides s) {
  for (int i = 1; i <= s.rounds; ++i) {
    if (!s.first && threadIdx.x == 0) spin(s.my_flag, i);
    __syncthreads();
    copy_block(s.to, s.from, s.bytes);
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence_system();
      store_relaxed(s.their_flag, i);
      if (s.first) spin(s.my_flag, i);
    }
    __syncthreads();
  }
}

/// Many blocks; the last one sets the flag.
__global__ void __launch_bounds__(1024) direct_grid(Sides s) {
  const u64 part = s.bytes / gridDim.x, offset = blockIdx.x * part;
  for (int i = 1; i <= s.rounds; ++i) {
    if (!s.first && threadIdx.x == 0) spin(s.my_flag, i);
    __syncthreads();
    copy_block(s.to + offset, s.from + offset, part);
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence_system();
      if (atomicAdd(s.count, 1) == gridDim.x * i - 1) store_release(s.their_flag, i);
      if (s.first) spin(s.my_flag, i);
    }
    __syncthreads();
  }
}

/// Two words that are in registers, and the flag beside them.
__global__ void packed_value(Sides s) {
  unsigned a = s.rounds, b = s.first, c = 0;
  for (unsigned i = 1; i <= static_cast<unsigned>(s.rounds); ++i) {
    for (int step = 0; step < 2; ++step) {
      if ((step == 0) == s.first) {
        asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(s.to), "r"(a), "r"(b), "r"(c), "r"(i)
                     : "memory");
      } else {
        unsigned flag;
        do {
          asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                       : "=r"(a), "=r"(b), "=r"(c), "=r"(flag)
                       : "l"(s.mine)
                       : "memory");
        } while (flag != i);
      }
    }
  }
}

/// Units of 16 bytes, three quarters of them data, by as many threads as there are units.
__global__ void __launch_bounds__(1024) packed(Sides s) {
  for (unsigned i = 1; i <= static_cast<unsigned>(s.rounds); ++i) {
    for (int step = 0; step < 2; ++step) {
      if ((step == 0) == s.first) {
        const unsigned* const data = reinterpret_cast<const unsigned*>(s.from) + threadIdx.x * 3;
        asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(s.to + threadIdx.x * 16), "r"(data[0]),
                     "r"(data[1]), "r"(data[2]), "r"(i)
                     : "memory");
      } else {
        unsigned a, b, c, flag;
        do {
          asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                       : "=r"(a), "=r"(b), "=r"(c), "=r"(flag)
                       : "l"(s.mine + threadIdx.x * 16)
                       : "memory");
        } while (flag != i);
        unsigned* const data = reinterpret_cast<unsigned*>(s.from) + threadIdx.x * 3;
        data[0] = a, data[1] = b, data[2] = c;
        __syncthreads();
      }
    }
  }
}

}  // namespace thalweg::device::gpu::floors
