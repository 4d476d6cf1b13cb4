// SPDX-License-Identifier: Apache-2.0
// The host: the twin of GPUs, with the compiler's atomic builtins. A warp, a block and a grid are one thread. Included by
// machine.hpp, which describes the members.
#pragma once
#include <sched.h>
#include <time.h>

#define THALWEG_UNROLL
#define THALWEG_ROLLED
#define THALWEG_HOST_ZERO = {}  // of words some of which stay unused: a host's compiler that cannot see which ones warns

namespace thalweg::device::machine {

using LaneMask = u32;
constexpr u32 kLanes = 1;
constexpr bool kWholeRuns = true;

// ---- Memory. Flags also order what stands around them: a CPU may let a store pass earlier loads, and a channel's credit says
// that the receive buffer was read; nor does the thread sanitizer know fences. The same holds for atomic operations.

template <class T>
THALWEG_DEVICE T read(const T* from) {
  T value;
  __builtin_memcpy(&value, from, sizeof(T));
  return value;
}
template <class T>
THALWEG_DEVICE void write(T* to, T value) {
  __builtin_memcpy(to, &value, sizeof(T));
}
template <class T>
THALWEG_DEVICE T constant(const T* from) {
  return *from;
}
THALWEG_DEVICE void copy_bytes(u64 to, u64 from, u64 bytes) {
  if (bytes == 0) return;  // the addresses may be null
  __builtin_memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
}

THALWEG_DEVICE u64 load(const u64* word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }
THALWEG_DEVICE void store(u64* word, u64 value) { __atomic_store_n(word, value, __ATOMIC_RELEASE); }
THALWEG_DEVICE u64 acquire(const u64* word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }
THALWEG_DEVICE void release(u64* word, u64 value) { __atomic_store_n(word, value, __ATOMIC_RELEASE); }
THALWEG_DEVICE void add_release(u64* word, u64 value) { __atomic_fetch_add(word, value, __ATOMIC_RELEASE); }

THALWEG_DEVICE void fence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
THALWEG_DEVICE void fence_near() { fence(); }
THALWEG_DEVICE void full_fence() { fence(); }
THALWEG_DEVICE void full_fence_near() { fence(); }

THALWEG_DEVICE u32 arrive(u32* counter) { return __atomic_fetch_add(counter, 1u, __ATOMIC_ACQ_REL); }
THALWEG_DEVICE u32 arrive_in_block(u32* counter) { return (*counter)++; }
THALWEG_DEVICE bool last_of(u32* counter, u32 count) {
  if (__atomic_fetch_add(counter, 1u, __ATOMIC_ACQ_REL) != count - 1) return false;
  __atomic_store_n(counter, 0u, __ATOMIC_RELEASE);
  return true;
}
/// Sets the lowest bit. What the word held; what is loaded later was stored before it was cleared.
template <class M>
THALWEG_DEVICE u64 take_lowest_bit(M m, u64* word) {
  return m.fetch_or(word, u64{1});
}

template <class T>
THALWEG_DEVICE T fetch_add(T* word, T operand) {
  return __atomic_fetch_add(word, operand, __ATOMIC_ACQ_REL);
}
template <class T>
THALWEG_DEVICE T fetch_and(T* word, T operand) {
  return __atomic_fetch_and(word, operand, __ATOMIC_ACQ_REL);
}
template <class T>
THALWEG_DEVICE T fetch_or(T* word, T operand) {
  return __atomic_fetch_or(word, operand, __ATOMIC_ACQ_REL);
}
template <class T>
THALWEG_DEVICE T fetch_xor(T* word, T operand) {
  return __atomic_fetch_xor(word, operand, __ATOMIC_ACQ_REL);
}
template <class T>
THALWEG_DEVICE T swap(T* word, T operand) {
  return __atomic_exchange_n(word, operand, __ATOMIC_ACQ_REL);
}
template <class T>
THALWEG_DEVICE T compare_swap(T* word, T expected, T desired) {
  __atomic_compare_exchange_n(word, &expected, desired, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  return expected;
}

THALWEG_DEVICE Word16 load16(const Word16* from) {
  Word16 value;
  value.high = __atomic_load_n(&from->high, __ATOMIC_ACQUIRE);
  value.low = __atomic_load_n(&from->low, __ATOMIC_RELAXED);
  return value;
}
THALWEG_DEVICE Word16 acquire16(const Word16* from) { return load16(from); }
THALWEG_DEVICE void store16(Word16* to, Word16 value) {
  __atomic_store_n(&to->low, value.low, __ATOMIC_RELAXED);
  __atomic_store_n(&to->high, value.high, __ATOMIC_RELEASE);
}

THALWEG_DEVICE u64 nanoseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<u64>(now.tv_sec) * 1000000000u + static_cast<u64>(now.tv_nsec);
}
THALWEG_DEVICE void pause(u32 polls) {
  if (polls > 256) sched_yield();  // several ranks may share a CPU
}

// ---- Places.

THALWEG_DEVICE u32 lane() { return 0; }
THALWEG_DEVICE u32 block_rank() { return 0; }
THALWEG_DEVICE u32 block_size() { return 1; }
THALWEG_DEVICE u32 thread_x() { return 0; }
THALWEG_DEVICE u32 threads_x() { return 1; }
THALWEG_DEVICE u32 block_x() { return 0; }
THALWEG_DEVICE u32 blocks_x() { return 1; }

// ---- Meetings of all lanes of a warp.

THALWEG_DEVICE void sync_lanes() {}
THALWEG_DEVICE bool all_lanes(bool yes) { return yes; }
THALWEG_DEVICE bool any_lane(bool yes) { return yes; }
THALWEG_DEVICE LaneMask lanes_with(bool yes) { return yes ? 1 : 0; }
template <class T>
THALWEG_DEVICE T from_lane(T value, u32) {
  return value;
}
/// The lowest lane of a mask that is not 0.
THALWEG_DEVICE u32 lowest(LaneMask mask) { return static_cast<u32>(__builtin_ctz(mask)); }

template <u32 Width>
THALWEG_DEVICE void sync_neighbours() {
  static_assert(Width == 1, "a lane of the host has no neighbours");
}
template <u32 Width>
THALWEG_DEVICE bool any_neighbour(bool yes) {
  static_assert(Width == 1, "a lane of the host has no neighbours");
  return yes;
}
template <u32 Width>
THALWEG_DEVICE u64 from_last_neighbour(u64 value) {
  static_assert(Width == 1, "a lane of the host has no neighbours");
  return value;
}

// ---- Meetings of all threads of a block.

THALWEG_DEVICE void sync_block() {}
THALWEG_DEVICE void meet_block() {}
THALWEG_DEVICE bool all_of_block(bool yes) { return yes; }
THALWEG_DEVICE bool any_of_block(bool yes) { return yes; }
template <class T>
THALWEG_DEVICE T from_first_of_block(T value) {
  return value;
}

THALWEG_DEVICE void start_next() {}
THALWEG_DEVICE void await_previous() {}
THALWEG_DEVICE void start_early() {}
THALWEG_DEVICE void keep(u64) {}

// ---- Arithmetic of reductions: each operation rounds by itself.

/// Words for conversions. Choices by masks, without branches, so that a host's compiler makes wide loops of them.
struct Bits {
  static THALWEG_DEVICE float to_float(u32 bits) {
    float value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
  }
  static THALWEG_DEVICE u32 of(float value) {
    u32 bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    return bits;
  }
  /// All ones where value >= limit, both below 2^31.
  static THALWEG_DEVICE u32 where(u32 value, u32 limit) {
    return 0u - static_cast<u32>(static_cast<int>(value) >= static_cast<int>(limit));
  }
  static THALWEG_DEVICE u32 select(u32 mask, u32 yes, u32 no) { return (yes & mask) | (no & ~mask); }
};

THALWEG_DEVICE float widen_half(unsigned short stored) {
  const u32 magnitude = stored & 0x7fffu, sign = (stored & 0x8000u) << 16;
  const u32 normal = (magnitude << 13) + (112u << 23) + (Bits::where(magnitude, 0x7c00u) & 112u << 23);
  const u32 subnormal = Bits::of(static_cast<float>(static_cast<int>(magnitude)) * 0x1p-24f);
  return Bits::to_float(sign | Bits::select(Bits::where(magnitude, 0x0400u), normal, subnormal));
}
/// To nearest, ties to even; a NaN becomes 0x7fff.
THALWEG_DEVICE unsigned short narrow_half(float value) {
  const u32 bits = Bits::of(value), magnitude = bits & 0x7fffffffu, sign = bits >> 16 & 0x8000u;
  const u32 normal = (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
  const u32 subnormal = Bits::of(Bits::to_float(magnitude) + 0.5f) - Bits::of(0.5f);  // 0.5's last bit is 2^-24: rounds there
  const u32 finite = Bits::select(Bits::where(magnitude, 113u << 23), normal, subnormal);
  const u32 bounded = Bits::select(Bits::where(magnitude, 143u << 23), 0x7c00u, finite);
  return static_cast<unsigned short>(Bits::select(Bits::where(magnitude, 0x7f800001u), 0x7fffu, sign | bounded));
}
THALWEG_DEVICE float add(float a, float b) { return a + b; }
THALWEG_DEVICE float multiply(float a, float b) { return a * b; }
THALWEG_DEVICE double add(double a, double b) { return a + b; }
THALWEG_DEVICE double multiply(double a, double b) { return a * b; }

}  // namespace thalweg::device::machine
