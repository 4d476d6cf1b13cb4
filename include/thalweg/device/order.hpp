// SPDX-License-Identifier: Apache-2.0
// Memory order, as device code needs it: every observer is another device, another process or the host, so everything here
// is of system scope. The same text compiles for the GPU (PTX) and for the host (atomic builtins): the twin.
//
// All other headers reach memory only through a Machine: a small value, copied freely, with the members of DirectMachine.
// One of its own lets the same code run where addresses are not simply used as they are: on an emulated device, or in a test
// that makes stores visible in the worst order. In terms of order a Machine promises:
//   - what is stored by write, store or copy may become visible in any order, until fence() or release() by the same thread;
//   - a block's stores are covered by a barrier and then ONE thread's fence or release;
//   - store16 is seen whole or not at all, so a flag in it needs no fence;
//   - acquire() that sees what release() stored sees all that it covers, and so do the threads behind a later barrier.
#pragma once
#include <thalweg/device/types.hpp>

#if defined(__CUDACC__)
#define THALWEG_DEVICE __host__ __device__ __forceinline__
#define THALWEG_DEVICE_APART __host__ __device__ __noinline__  // never in line: one of many
#if !defined(THALWEG_DEVICE_CALL)
#define THALWEG_DEVICE_CALL __host__ __device__ __noinline__  // what is large and not urgent
#endif
#else
#define THALWEG_DEVICE inline
#define THALWEG_DEVICE_APART inline
#define THALWEG_DEVICE_CALL inline
#endif
#if defined(__CUDA_ARCH__)
#define THALWEG_UNROLL _Pragma("unroll")
#define THALWEG_ROLLED _Pragma("unroll 1")
#define THALWEG_HOST_ZERO
#else
#define THALWEG_UNROLL
#define THALWEG_ROLLED
#define THALWEG_HOST_ZERO = {}  // of words some of which stay unused: a host's compiler that cannot see which ones warns
#endif
#if !defined(__CUDACC_RTC__)
#include <sched.h>
#include <time.h>
#endif

namespace thalweg::device {

/// The largest word that one instruction moves.
struct alignas(16) Word16 {
  u64 low, high;
};

/// Addresses are used as they are: on a GPU, and on the host for memory that it can touch. Words are in device memory, of
/// this device or a mapped peer, or in pinned host memory; aligned to their size.
struct DirectMachine {
#if defined(__CUDA_ARCH__)
  static constexpr bool whole_runs = false;  // true: copy() moves a run of bytes, called by one thread; false: threads share it
#else
  static constexpr bool whole_runs = true;
#endif

  /// Plain data, one instruction. T: of 1, 2, 4, 8 or 16 bytes, aligned.
  template <class T>
  THALWEG_DEVICE T read(const T* from) const {
#if defined(__CUDA_ARCH__)
    return *from;
#else
    T value;
    __builtin_memcpy(&value, from, sizeof(T));
    return value;
#endif
  }
  template <class T>
  THALWEG_DEVICE void write(T* to, T value) const {
#if defined(__CUDA_ARCH__)
    *to = value;
#else
    __builtin_memcpy(to, &value, sizeof(T));
#endif
  }
  /// A word that does not change while the kernel runs.
  THALWEG_DEVICE u64 constant(const u64* from) const {
#if defined(__CUDA_ARCH__)
    return __ldg(from);
#else
    return *from;
#endif
  }
  /// Addresses and bytes; no overlap. Only where whole_runs.
  THALWEG_DEVICE void copy(u64 to, u64 from, u64 bytes) const {
#if !defined(__CUDA_ARCH__)
    if (bytes == 0) return;  // the addresses may be null
    __builtin_memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
#endif
  }

  /// Flags: relaxed. The host's also order what stands around them: a CPU may let a store pass earlier loads, and a channel's
  /// credit says that the receive buffer was read; nor does the thread sanitizer know fences. The same holds for atomic operations.
  THALWEG_DEVICE u64 load(const u64* word) const {
#if defined(__CUDA_ARCH__)
    u64 value;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
#else
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
#endif
  }
  THALWEG_DEVICE void store(u64* word, u64 value) const {
#if defined(__CUDA_ARCH__)
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
#else
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
#endif
  }

  THALWEG_DEVICE u64 acquire(const u64* word) const {
#if defined(__CUDA_ARCH__)
    u64 value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
#else
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
#endif
  }
  /// fence(), then the store.
  THALWEG_DEVICE void release(u64* word, u64 value) const {
#if defined(__CUDA_ARCH__)
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
#else
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
#endif
  }
  /// fence(), then an atomic add.
  THALWEG_DEVICE void add_release(u64* word, u64 value) const {
#if defined(__CUDA_ARCH__)
    asm volatile("red.release.sys.global.add.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
#else
    __atomic_fetch_add(word, value, __ATOMIC_RELEASE);
#endif
  }
  /// What this thread stored, and what it has seen, is visible everywhere before anything that it stores later.
  THALWEG_DEVICE void fence() const {
#if defined(__CUDA_ARCH__)
    asm volatile("fence.acq_rel.sys;" ::: "memory");
#else
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
  }

  /// The same for who observes from this device.
  THALWEG_DEVICE void fence_near() const {
#if defined(__CUDA_ARCH__)
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
#else
    fence();
#endif
  }

  /// One more block is done: returns how many were before. Releases what the block stored, acquires what the others did.
  THALWEG_DEVICE u32 arrive(u32* counter) const {
#if defined(__CUDA_ARCH__)
    u32 before;
    asm volatile("atom.acq_rel.sys.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
    return before;
#else
    return __atomic_fetch_add(counter, 1u, __ATOMIC_ACQ_REL);
#endif
  }

  /// One more of `count` blocks of this device is done: was it the last one? The counter is 0 then. Relaxed.
  THALWEG_DEVICE bool last_of(u32* counter, u32 count) const {
#if defined(__CUDA_ARCH__)
    u32 before;  // wraps at the last one, so that nobody has to reset it
    asm volatile("atom.relaxed.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(before) : "l"(counter), "r"(count - 1) : "memory");
    return before == count - 1;
#else
    if (__atomic_fetch_add(counter, 1u, __ATOMIC_ACQ_REL) != count - 1) return false;
    __atomic_store_n(counter, 0u, __ATOMIC_RELEASE);
    return true;
#endif
  }

  /// Atomic operations return what was there. Relaxed: they publish nothing. T: u32 or u64. The word's other users are of the
  /// same domain: devices, or CPUs.
  template <class T>
  THALWEG_DEVICE T fetch_add(T* word, T operand) const {
#if defined(__CUDA_ARCH__)
    return atomicAdd_system(word, operand);
#else
    return __atomic_fetch_add(word, operand, __ATOMIC_ACQ_REL);
#endif
  }
  template <class T>
  THALWEG_DEVICE T fetch_and(T* word, T operand) const {
#if defined(__CUDA_ARCH__)
    return atomicAnd_system(word, operand);
#else
    return __atomic_fetch_and(word, operand, __ATOMIC_ACQ_REL);
#endif
  }
  template <class T>
  THALWEG_DEVICE T fetch_or(T* word, T operand) const {
#if defined(__CUDA_ARCH__)
    return atomicOr_system(word, operand);
#else
    return __atomic_fetch_or(word, operand, __ATOMIC_ACQ_REL);
#endif
  }
  template <class T>
  THALWEG_DEVICE T fetch_xor(T* word, T operand) const {
#if defined(__CUDA_ARCH__)
    return atomicXor_system(word, operand);
#else
    return __atomic_fetch_xor(word, operand, __ATOMIC_ACQ_REL);
#endif
  }
  template <class T>
  THALWEG_DEVICE T swap(T* word, T operand) const {
#if defined(__CUDA_ARCH__)
    return atomicExch_system(word, operand);
#else
    return __atomic_exchange_n(word, operand, __ATOMIC_ACQ_REL);
#endif
  }
  /// Stores `desired` where the word holds `expected`.
  template <class T>
  THALWEG_DEVICE T compare_swap(T* word, T expected, T desired) const {
#if defined(__CUDA_ARCH__)
    return atomicCAS_system(word, expected, desired);
#else
    __atomic_compare_exchange_n(word, &expected, desired, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    return expected;
#endif
  }

  /// Whole or not at all: the upper half is never newer than the lower one to whoever reads it so. Relaxed.
  THALWEG_DEVICE Word16 load16(const Word16* from) const {
    Word16 value;
#if defined(__CUDA_ARCH__)
    asm volatile("{ .reg .b128 w; ld.relaxed.sys.global.b128 w, [%2]; mov.b128 {%0, %1}, w; }"
                 : "=l"(value.low), "=l"(value.high)
                 : "l"(from)
                 : "memory");
#else
    value.high = __atomic_load_n(&from->high, __ATOMIC_ACQUIRE);
    value.low = __atomic_load_n(&from->low, __ATOMIC_RELAXED);
#endif
    return value;
  }
  THALWEG_DEVICE void store16(Word16* to, Word16 value) const {
#if defined(__CUDA_ARCH__)
    asm volatile("{ .reg .b128 w; mov.b128 w, {%1, %2}; st.relaxed.sys.global.b128 [%0], w; }" ::"l"(to), "l"(value.low),
                 "l"(value.high)
                 : "memory");
#else
    __atomic_store_n(&to->low, value.low, __ATOMIC_RELAXED);
    __atomic_store_n(&to->high, value.high, __ATOMIC_RELEASE);
#endif
  }

  THALWEG_DEVICE u64 nanoseconds() const {
#if defined(__CUDA_ARCH__)
    u64 now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
#else
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<u64>(now.tv_sec) * 1000000000u + static_cast<u64>(now.tv_nsec);
#endif
  }
  /// Between two looks of a wait, of which there were `looks`.
  THALWEG_DEVICE void pause(u32 looks) const {
#if !defined(__CUDA_ARCH__)
    if (looks > 256) sched_yield();  // several ranks may share a CPU
#endif
    (void)looks;
  }
};

/// The unsigned integer of a type's size, for atomic operations.
template <unsigned Size>
struct WordOf;
template <>
struct WordOf<4> {
  using Type = u32;
};
template <>
struct WordOf<8> {
  using Type = u64;
};
template <class T>
using AtomicWord = typename WordOf<sizeof(T)>::Type;

/// A pointer in memory that only the machine reaches.
template <class T, class M>
THALWEG_DEVICE T* read_pointer(M m, T* const* from) {
  return reinterpret_cast<T*>(m.read(reinterpret_cast<const u64*>(from)));
}

}  // namespace thalweg::device
