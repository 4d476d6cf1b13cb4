// SPDX-License-Identifier: Apache-2.0
// y += a * x, or y = x, where x comes over a link: what counts is that enough bytes are under way. Two ways, the same for both: each
// thread loads several words of 16 bytes before it uses the first; or (from compute capability 9.0 on) one thread of a block orders
// pieces of 8 KiB into shared memory, several ahead, and all threads use them.
#pragma once
#include <thalweg/device/window.hpp>

#include "arguments.hpp"

namespace perf {

__device__ __forceinline__ const double2* x_of(const Stream& s) {
  return reinterpret_cast<const double2*>(
      thalweg::device::reach_aligned(s.data, s.of, 0, s.count * sizeof(double), sizeof(double2), thalweg::device::DirectMachine()));
}

/// 16 bytes. Hinted: they are read once, in order. Not by the non-coherent path: stores to y must not pass these loads, or the
/// compiler has fewer of them under way.
template <bool Hinted>
__device__ __forceinline__ double2 load(const double2* from) {
  double2 value;
  if constexpr (Hinted) {
    asm volatile("ld.global.L1::no_allocate.L2::256B.v2.f64 {%0, %1}, [%2];"
                 : "=d"(value.x), "=d"(value.y)
                 : "l"(from)
                 : "memory");
  } else {
    asm volatile("ld.global.v2.f64 {%0, %1}, [%2];" : "=d"(value.x), "=d"(value.y) : "l"(from) : "memory");
  }
  return value;
}

template <bool Daxpy>
__device__ __forceinline__ double2 next_y(double a, double2 x, double2 y) {
  if constexpr (!Daxpy) return x;
  return {fma(a, x.x, y.x), fma(a, x.y, y.y)};
}

/// An odd number of doubles: the last one.
template <bool Daxpy>
__device__ __forceinline__ void last_double(const double2* x, double2* all, u64 count, double a) {
  if (count % 2 == 0 || blockIdx.x != 0 || threadIdx.x != 0) return;
  const double last = reinterpret_cast<const double*>(x)[count - 1];
  double* const y = reinterpret_cast<double*>(all) + count - 1;
  *y = Daxpy ? fma(a, last, *y) : last;
}

/// A grid takes tiles of blockDim.x * InFlight words in turn.
template <unsigned InFlight, bool Hinted, bool Daxpy>
__device__ __forceinline__ void stream_words(const double2* x, double2* y, u64 count, double a) {
  last_double<Daxpy>(x, y, count, a);
  const u64 words = count / 2, tile = u64{blockDim.x} * InFlight;
  for (u64 begin = blockIdx.x * tile; begin < words; begin += gridDim.x * tile) {
    const u64 at = begin + threadIdx.x;
    double2 held[InFlight], old[InFlight];
    if (begin + tile <= words) {
#pragma unroll
      for (unsigned i = 0; i < InFlight; ++i) held[i] = load<Hinted>(x + at + i * blockDim.x);
#pragma unroll
      for (unsigned i = 0; i < InFlight; ++i) old[i] = Daxpy ? __ldcs(y + at + i * blockDim.x) : double2{};
#pragma unroll
      for (unsigned i = 0; i < InFlight; ++i) __stcs(y + at + i * blockDim.x, next_y<Daxpy>(a, held[i], old[i]));
    } else {
      for (u64 i = at; i < words; i += blockDim.x) __stcs(y + i, next_y<Daxpy>(a, load<Hinted>(x + i), Daxpy ? __ldcs(y + i) : double2{}));
    }
  }
}

template <unsigned InFlight, bool Hinted, bool Daxpy>
__device__ __forceinline__ void stream_loads(const Stream& s) {
  if (const double2* const x = x_of(s); x != nullptr)
    stream_words<InFlight, Hinted, Daxpy>(x, reinterpret_cast<double2*>(s.y), s.count, s.a);
}

constexpr unsigned kStages = 5;  // of a word a thread: 40 KiB a block are under way

/// Copies in shared memory and the barriers that count their bytes.
struct Pieces {
  double2 held[kStages][kThreads];
  u64 barrier[kStages];
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

__device__ __forceinline__ unsigned shared_address(const void* at) { return static_cast<unsigned>(__cvta_generic_to_shared(at)); }

/// By one thread.
__device__ __forceinline__ void order_piece(Pieces& pieces, unsigned stage, const double2* from, unsigned bytes) {
  const unsigned barrier = shared_address(&pieces.barrier[stage]);
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(pieces.held[stage])),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}

__device__ __forceinline__ bool piece_there(unsigned barrier, unsigned phase) {
  unsigned there;
  asm volatile(
      "{\n"
      " .reg .pred p;\n"
      " mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      " selp.u32 %0, 1, 0, p;\n"
      "}"
      : "=r"(there)
      : "r"(barrier), "r"(phase)
      : "memory");
  return there != 0;
}

/// By all threads. False: not there within the guard's limit, which is recorded.
__device__ __forceinline__ bool await_piece(const Stream& s, Pieces& pieces, unsigned stage, unsigned phase) {
  const thalweg::device::DirectMachine m;
  const unsigned barrier = shared_address(&pieces.barrier[stage]);
  const u64 limit = m.nanoseconds() + s.data.guard.limit_ns;
  while (!piece_there(barrier, phase)) {
    if (m.nanoseconds() < limit) continue;
    fail(m, s.data.guard, thalweg::device::kTimedOut, stage, 1, 0);
    return false;
  }
  return true;
}

/// Blocks of kThreads threads. Each takes pieces of a word a thread in turn.
template <bool Daxpy>
__device__ __forceinline__ void stream_bulk(const Stream& s) {
  __shared__ alignas(128) Pieces pieces;
  const double2* const x = x_of(s);
  if (x == nullptr) return;
  auto* const y = reinterpret_cast<double2*>(s.y);
  last_double<Daxpy>(x, y, s.count, s.a);
  const u64 words = s.count / 2, step = u64{gridDim.x} * kThreads;
  const auto order = [&](unsigned stage, u64 begin) {
    if (begin >= words) return;
    const u64 left = words - begin;
    order_piece(pieces, stage, x + begin, static_cast<unsigned>((left < kThreads ? left : kThreads) * sizeof(double2)));
  };
  u64 begin = u64{blockIdx.x} * kThreads;
  if (threadIdx.x == 0) {
    for (unsigned i = 0; i < kStages; ++i) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&pieces.barrier[i])) : "memory");
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    for (unsigned i = 0; i < kStages; ++i) order(i, begin + i * step);
  }
  __syncthreads();
  for (unsigned stage = 0, phase = 0; begin < words; begin += step) {
    const u64 at = begin + threadIdx.x;
    const bool mine = at < words;
    const double2 old = Daxpy && mine ? __ldcs(y + at) : double2{};
    if (!await_piece(s, pieces, stage, phase)) return;
    if (mine) __stcs(y + at, next_y<Daxpy>(s.a, pieces.held[stage][threadIdx.x], old));
    __syncthreads();  // the piece is used
    if (threadIdx.x == 0) order(stage, begin + kStages * step);
    if (++stage == kStages) {
      stage = 0;
      phase ^= 1;
    }
  }
}

#else

/// The host does not launch it there.
template <bool Daxpy>
__device__ __forceinline__ void stream_bulk(const Stream&) {}

#endif

}  // namespace perf
