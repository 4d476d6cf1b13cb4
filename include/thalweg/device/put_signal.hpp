// SPDX-License-Identifier: Apache-2.0
// Kernel-initiated put with signal over mapped memory. The same text compiles as CUDA device code and as its host-side
// twin, which the tests run.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define THALWEG_DEVICE __host__ __device__ inline
#else
#define THALWEG_DEVICE inline
#endif

namespace thalweg::device {

/// What a prepared put with signal looks like to a kernel: every address is one that the caller may store to.
/// Filled in by the library (bind); plain data, copied to the kernel as an argument.
struct PutSignal {
  unsigned char* target;
  const unsigned char* source;
  uint64_t length;   // bytes
  uint64_t* signal;  // 64-bit word homed at the waiter
  uint64_t signal_value;
  uint32_t signal_add;  // 0: set, 1: add
};

/// Copies and then signals; one caller (thread). The data is visible to whoever acquires the signal.
THALWEG_DEVICE void put_signal(const PutSignal& put) {
  for (uint64_t i = 0; i < put.length; ++i) put.target[i] = put.source[i];
#if defined(__CUDA_ARCH__)
  __threadfence_system();
  if (put.signal_add)
    atomicAdd_system(reinterpret_cast<unsigned long long*>(put.signal), put.signal_value);
  else
    *reinterpret_cast<volatile uint64_t*>(put.signal) = put.signal_value;
#else
  if (put.signal_add)
    __atomic_fetch_add(put.signal, put.signal_value, __ATOMIC_RELEASE);
  else
    __atomic_store_n(put.signal, put.signal_value, __ATOMIC_RELEASE);
#endif
}

}  // namespace thalweg::device
