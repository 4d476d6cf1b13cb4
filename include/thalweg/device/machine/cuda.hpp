// SPDX-License-Identifier: Apache-2.0
// NVIDIA's GPUs, in PTX and CUDA's intrinsics. Included by machine.hpp, which describes the members.
#pragma once

#define THALWEG_UNROLL _Pragma("unroll")
#define THALWEG_ROLLED _Pragma("unroll 1")
#define THALWEG_HOST_ZERO

namespace thalweg::device::machine {

using LaneMask = u32;
constexpr u32 kLanes = 32;
constexpr bool kWholeRuns = false;

// ---- Memory. Flags and atomic operations are of system scope.

template <class T>
THALWEG_DEVICE T read(const T* from) {
  return *from;
}
template <class T>
THALWEG_DEVICE void write(T* to, T value) {
  *to = value;
}
template <class T>
THALWEG_DEVICE T constant(const T* from) {
  return __ldg(from);
}
THALWEG_DEVICE void copy_bytes(u64, u64, u64) {}

THALWEG_DEVICE u64 load(const u64* word) {
  u64 value;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}
THALWEG_DEVICE void store(u64* word, u64 value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}
THALWEG_DEVICE u64 acquire(const u64* word) {
  u64 value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}
THALWEG_DEVICE void release(u64* word, u64 value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}
THALWEG_DEVICE void add_release(u64* word, u64 value) {
  asm volatile("red.release.sys.global.add.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}

THALWEG_DEVICE void fence() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
THALWEG_DEVICE void fence_near() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
THALWEG_DEVICE void full_fence() { __threadfence_system(); }
THALWEG_DEVICE void full_fence_near() { __threadfence(); }

THALWEG_DEVICE u32 arrive(u32* counter) {
  u32 before;
  asm volatile("atom.acq_rel.sys.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
  return before;
}
THALWEG_DEVICE bool last_of(u32* counter, u32 count) {
  u32 before;  // wraps at the last one, so that it needs no reset
  asm volatile("atom.relaxed.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(before) : "l"(counter), "r"(count - 1) : "memory");
  return before == count - 1;
}
/// Of threads of a block, in its shared memory.
THALWEG_DEVICE u32 arrive_in_block(u32* counter) {
  u32 before;
  asm volatile("atom.acq_rel.cta.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
  return before;
}
/// Sets the lowest bit. What the word held; what is loaded later was stored before it was cleared.
template <class M>
THALWEG_DEVICE u64 take_lowest_bit(M, u64* word) {
  u64 before;
  asm volatile("atom.acquire.gpu.global.or.b64 %0, [%1], 1;" : "=l"(before) : "l"(word) : "memory");
  return before;
}

template <class T>
THALWEG_DEVICE T fetch_add(T* word, T operand) {
  return atomicAdd_system(word, operand);
}
template <class T>
THALWEG_DEVICE T fetch_and(T* word, T operand) {
  return atomicAnd_system(word, operand);
}
template <class T>
THALWEG_DEVICE T fetch_or(T* word, T operand) {
  return atomicOr_system(word, operand);
}
template <class T>
THALWEG_DEVICE T fetch_xor(T* word, T operand) {
  return atomicXor_system(word, operand);
}
template <class T>
THALWEG_DEVICE T swap(T* word, T operand) {
  return atomicExch_system(word, operand);
}
template <class T>
THALWEG_DEVICE T compare_swap(T* word, T expected, T desired) {
  return atomicCAS_system(word, expected, desired);
}

THALWEG_DEVICE Word16 load16(const Word16* from) {
  Word16 value;
  asm volatile("{ .reg .b128 w; ld.relaxed.sys.global.b128 w, [%2]; mov.b128 {%0, %1}, w; }"
               : "=l"(value.low), "=l"(value.high)
               : "l"(from)
               : "memory");
  return value;
}
THALWEG_DEVICE Word16 acquire16(const Word16* from) {
  Word16 value;
  asm volatile("{ .reg .b128 w; ld.acquire.sys.global.b128 w, [%2]; mov.b128 {%0, %1}, w; }"
               : "=l"(value.low), "=l"(value.high)
               : "l"(from)
               : "memory");
  return value;
}
THALWEG_DEVICE void store16(Word16* to, Word16 value) {
  asm volatile("{ .reg .b128 w; mov.b128 w, {%1, %2}; st.relaxed.sys.global.b128 [%0], w; }" ::"l"(to), "l"(value.low),
               "l"(value.high)
               : "memory");
}

THALWEG_DEVICE u64 nanoseconds() {
  u64 now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}
THALWEG_DEVICE void pause(u32) {}

// ---- Places.

THALWEG_DEVICE u32 lane() {
  u32 lane;
  asm("mov.u32 %0, %laneid;" : "=r"(lane));
  return lane;
}
THALWEG_DEVICE u32 block_rank() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
THALWEG_DEVICE u32 block_size() { return blockDim.x * blockDim.y * blockDim.z; }
THALWEG_DEVICE u32 thread_x() { return threadIdx.x; }
THALWEG_DEVICE u32 threads_x() { return blockDim.x; }
THALWEG_DEVICE u32 block_x() { return blockIdx.x; }
THALWEG_DEVICE u32 blocks_x() { return gridDim.x; }

// ---- Meetings of all lanes of a warp.

THALWEG_DEVICE void sync_lanes() { __syncwarp(); }
THALWEG_DEVICE bool all_lanes(bool yes) { return __all_sync(~LaneMask{0}, yes) != 0; }
THALWEG_DEVICE bool any_lane(bool yes) { return __any_sync(~LaneMask{0}, yes) != 0; }
THALWEG_DEVICE LaneMask lanes_with(bool yes) { return __ballot_sync(~LaneMask{0}, yes); }
template <class T>
THALWEG_DEVICE T from_lane(T value, u32 lane) {
  return __shfl_sync(~LaneMask{0}, value, static_cast<int>(lane));
}
/// The lowest lane of a mask that is not 0.
THALWEG_DEVICE u32 lowest(LaneMask mask) { return static_cast<u32>(__ffs(static_cast<int>(mask)) - 1); }

/// This lane and its neighbours: Width of them, a power of two.
template <u32 Width>
THALWEG_DEVICE LaneMask neighbours() {
  return (~LaneMask{0} >> (kLanes - Width)) << (lane() & (kLanes - Width));
}
/// A barrier. They go on together: what follows is one instruction of all of them.
template <u32 Width>
THALWEG_DEVICE void sync_neighbours() {
  __syncwarp(neighbours<Width>());
}
template <u32 Width>
THALWEG_DEVICE bool any_neighbour(bool yes) {
  return __any_sync(neighbours<Width>(), yes) != 0;
}
template <u32 Width>
THALWEG_DEVICE u64 from_last_neighbour(u64 value) {
  return __shfl_sync(neighbours<Width>(), value, Width - 1, Width);
}

// ---- Meetings of all threads of a block.

THALWEG_DEVICE void sync_block() { __syncthreads(); }
/// The block's other barrier: for threads that reach it from two places in the code.
THALWEG_DEVICE void meet_block() { asm volatile("bar.sync 1;" ::: "memory"); }
THALWEG_DEVICE bool all_of_block(bool yes) { return __syncthreads_and(yes) != 0; }
THALWEG_DEVICE bool any_of_block(bool yes) { return __syncthreads_or(yes) != 0; }
/// The first thread's value, to all.
template <class T>
THALWEG_DEVICE T from_first_of_block(T value) {
  __shared__ T said;
  if (block_rank() == 0) said = value;
  __syncthreads();
  value = said;
  __syncthreads();  // before the next one
  return value;
}

/// Of programmatic dependent launches: lets the next kernel start, up to where it waits for this one's end.
template <u32 Architecture = kArchitecture>
THALWEG_DEVICE void start_next() {
  if constexpr (Architecture >= 900) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
/// Waits for the end of the kernel before. What is read in front of it is of the parameters only.
template <u32 Architecture = kArchitecture>
THALWEG_DEVICE void await_previous() {
  if constexpr (Architecture >= 900) asm volatile("griddepcontrol.wait;" ::: "memory");
}
THALWEG_DEVICE void start_early() {
  start_next();
  await_previous();
}
/// Computed here, not where it is used first.
THALWEG_DEVICE void keep(u64 value) { asm volatile("" ::"l"(value)); }

// ---- Arithmetic of reductions: each operation rounds by itself, whatever the compiler would contract.

THALWEG_DEVICE float widen_half(unsigned short stored) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(stored));
  return value;
}
THALWEG_DEVICE unsigned short narrow_half(float value) {
  unsigned short stored;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(stored) : "f"(value));
  return stored;
}
THALWEG_DEVICE float add(float a, float b) { return __fadd_rn(a, b); }
THALWEG_DEVICE float multiply(float a, float b) { return __fmul_rn(a, b); }
THALWEG_DEVICE double add(double a, double b) { return __dadd_rn(a, b); }
THALWEG_DEVICE double multiply(double a, double b) { return __dmul_rn(a, b); }

}  // namespace thalweg::device::machine
