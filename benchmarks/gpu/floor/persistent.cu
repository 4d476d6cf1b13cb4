// SPDX-License-Identifier: Apache-2.0
// A copy kernel that is always there. Bounded: it gives up when the limit is over.
#include <cstdint>

struct Mailbox {
  uint64_t turn;
  uint64_t to, from, length;
  uint64_t stop;
  alignas(128) uint64_t done;
};

__device__ uint64_t acquire(const uint64_t* word) {
  uint64_t value;
  asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}
__device__ uint64_t nanoseconds() {
  uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

__device__ void copy(char* to, const char* from, uint64_t length) {
  if (length % 16 != 0) {
    for (uint64_t i = threadIdx.x; i < length; i += blockDim.x) to[i] = from[i];
    return;
  }
  auto* const target = reinterpret_cast<uint4*>(to);
  const auto* const source = reinterpret_cast<const uint4*>(from);
  for (uint64_t i = threadIdx.x; i < length / 16; i += uint64_t{4} * blockDim.x) {
    uint4 held[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (i + k * blockDim.x < length / 16) held[k] = source[i + k * blockDim.x];
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (i + k * blockDim.x < length / 16) target[i + k * blockDim.x] = held[k];
    }
  }
}

extern "C" __global__ void persistent(Mailbox* box, uint64_t limit_ns) {
  __shared__ uint64_t to, from, length, go_on;
  const uint64_t start = nanoseconds();
  for (uint64_t turn = 1;; ++turn) {
    if (threadIdx.x == 0) {
      go_on = 1;
      while (acquire(&box->turn) < turn) {
        if (acquire(&box->stop) == 0 && nanoseconds() - start < limit_ns) continue;
        go_on = 0;
        break;
      }
      to = *reinterpret_cast<volatile uint64_t*>(&box->to);
      from = *reinterpret_cast<volatile uint64_t*>(&box->from);
      length = *reinterpret_cast<volatile uint64_t*>(&box->length);
    }
    __syncthreads();
    if (go_on == 0) return;
    if (length == 8 && (to | from) % 8 == 0) {
      if (threadIdx.x == 0) *reinterpret_cast<volatile uint64_t*>(to) = *reinterpret_cast<volatile const uint64_t*>(from);
    } else {
      copy(reinterpret_cast<char*>(to), reinterpret_cast<const char*>(from), length);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence_system();
      asm volatile("st.release.sys.u64 [%0], %1;" ::"l"(&box->done), "l"(turn) : "memory");
    }
  }
}
