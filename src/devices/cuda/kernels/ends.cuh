// SPDX-License-Identifier: Apache-2.0
// How kernels begin and end, in PTX's words for memory order: every observer is another device, another process or the host.
#pragma once
#include "arguments.hpp"

namespace thalweg::impl::cuda {

__device__ inline uint64_t load_acquire(uint64_t address) {
  uint64_t value;
  asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(value) : "l"(address) : "memory");
  return value;
}
__device__ inline void store_release(uint64_t address, uint64_t value) {
  asm volatile("st.release.sys.u64 [%0], %1;" ::"l"(address), "l"(value) : "memory");
}
__device__ inline void add_release(uint64_t address, uint64_t value) {
  asm volatile("red.release.sys.add.u64 [%0], %1;" ::"l"(address), "l"(value) : "memory");
}
__device__ inline uint64_t nanoseconds() {
  uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

/// All threads of the block agree: has an earlier wait expired?
__device__ inline bool stopped(const Ends& ends) {
  if (ends.status == 0) return false;
  return __syncthreads_or(threadIdx.x == 0 && load_acquire(ends.status) != 0) != 0;
}

/// Behind the barrier one thread's system-wide fence stands for all stores of its block; the last block's for all of the grid.
__device__ inline void finish(const Ends& ends) {
  if (ends.signal == 0) return;
  __syncthreads();
  if (threadIdx.x != 0) return;
  __threadfence_system();
  if (gridDim.x > 1) {
    auto* const counter = reinterpret_cast<unsigned*>(ends.counter);
    if (atomicAdd(counter, 1u) + 1 != gridDim.x) return;
    *counter = 0;  // for the stream's next kernel
    __threadfence_system();
  }
  if (ends.add) {
    add_release(ends.signal, ends.value);
  } else {
    store_release(ends.signal, ends.value);
  }
}

}  // namespace thalweg::impl::cuda
