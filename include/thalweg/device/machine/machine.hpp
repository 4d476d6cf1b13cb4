// SPDX-License-Identifier: Apache-2.0
// The machine that device code is compiled for: the only header that asks the compiler. cuda.hpp and host.hpp have the same
// members of namespace machine; a further machine is a further file of them. All other device code is the same text everywhere.
//
// What a machine defines:
//   kLanes       threads of a warp, which run in step and see each other's values; LaneMask, a bit for each of them
//   kWholeRuns   one thread moves whole runs of bytes (copy_bytes); otherwise threads share them, word by word
//   memory       plain words, flags, fences, atomic operations, units of 16 bytes: order.hpp has what each guarantees
//   places       a thread's rank in its block of any shape; its place in grids of one dimension
//   meetings     barriers and votes of lanes and blocks
// and how functions are declared: THALWEG_DEVICE, in line; THALWEG_DEVICE_CALL, large and not urgent ones (kernels may
// define it first); THALWEG_DEVICE_COLD, cold ones, out of the hot path.
#pragma once
#include <thalweg/device/types.hpp>

#if defined(__HIP__) || defined(__HIPCC__)
#error "thalweg/device has no machine for HIP: it needs include/thalweg/device/machine/hip.hpp, with the members of cuda.hpp"
#endif

#if defined(__CUDACC__)  // also where nvcc compiles for the host
#define THALWEG_DEVICE __host__ __device__ __forceinline__
#define THALWEG_DEVICE_COLD __host__ __device__ __noinline__
#if !defined(THALWEG_DEVICE_CALL)
#define THALWEG_DEVICE_CALL __host__ __device__ __noinline__
#endif
#else
#define THALWEG_DEVICE inline
#define THALWEG_DEVICE_COLD inline
#if !defined(THALWEG_DEVICE_CALL)
#define THALWEG_DEVICE_CALL inline
#endif
#endif

namespace thalweg::device {
/// The largest word that one instruction moves.
struct alignas(16) Word16 {
  u64 low, high;
};
}  // namespace thalweg::device

#if defined(__CUDA_ARCH__)
namespace thalweg::device::machine {
constexpr u32 kArchitecture = __CUDA_ARCH__;
}
#include <thalweg/device/machine/cuda.hpp>
#else
#include <thalweg/device/machine/host.hpp>
#endif
