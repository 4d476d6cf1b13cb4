// SPDX-License-Identifier: Apache-2.0
#include "collectives/element_loops.hpp"

#include <thalweg/plans.h>
#include <thalweg/device/reduce.hpp>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__clang__)
#define THALWEG_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define THALWEG_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace thalweg::impl {
namespace {

using device::Apply;
using device::ReduceOp;

/// An element combines with the same element of all operands: nothing else is carried from one turn to the next.
template <class T, ReduceOp Op>
[[gnu::always_inline]] inline void loop(T* to, std::span<const uint64_t> sources, uint64_t count) {
  const auto* const a = reinterpret_cast<const T*>(sources[0]);
  const auto* const b = reinterpret_cast<const T*>(sources[1]);
  const auto* const c = reinterpret_cast<const T*>(sources[sources.size() > 2 ? 2 : 0]);
  const auto* const d = reinterpret_cast<const T*>(sources[sources.size() > 3 ? 3 : 0]);
  using A = Apply<Op>;
  if (sources.size() == 2) {
    THALWEG_INDEPENDENT
    for (uint64_t i = 0; i < count; ++i) to[i] = A::to(a[i], b[i]);
  } else if (sources.size() == 3) {
    THALWEG_INDEPENDENT
    for (uint64_t i = 0; i < count; ++i) to[i] = A::to(A::to(a[i], b[i]), c[i]);
  } else {
    THALWEG_INDEPENDENT
    for (uint64_t i = 0; i < count; ++i) to[i] = A::to(A::to(A::to(a[i], b[i]), c[i]), d[i]);
  }
}

template <class T>
[[gnu::always_inline]] inline bool loop_of(uint32_t op, std::byte* at, std::span<const uint64_t> sources, uint64_t count) {
  T* const to = reinterpret_cast<T*>(at);
  switch (op) {
    case TW_REDUCE_SUM:
      return loop<T, ReduceOp::sum>(to, sources, count), true;
    case TW_REDUCE_PRODUCT:
      return loop<T, ReduceOp::product>(to, sources, count), true;
    case TW_REDUCE_MIN:
      return loop<T, ReduceOp::min>(to, sources, count), true;
    case TW_REDUCE_MAX:
      return loop<T, ReduceOp::max>(to, sources, count), true;
    default:
      return false;
  }
}

[[gnu::always_inline]] inline bool plain(uint32_t type, uint32_t op, std::byte* to, std::span<const uint64_t> sources,
                                         uint64_t count) {
  switch (type) {
    case TW_TYPE_FLOAT32:
      return loop_of<float>(op, to, sources, count);
    case TW_TYPE_FLOAT64:
      return loop_of<double>(op, to, sources, count);
    case TW_TYPE_INT32:
      return loop_of<int>(op, to, sources, count);
    case TW_TYPE_INT64:
      return loop_of<device::i64>(op, to, sources, count);
    default:
      return false;
  }
}

#if defined(__x86_64__)

[[gnu::target("avx2"), gnu::flatten]] bool plain_avx2(uint32_t type, uint32_t op, std::byte* to,
                                                      std::span<const uint64_t> sources, uint64_t count) {
  return plain(type, op, to, sources, count);
}
const bool kAvx2 = __builtin_cpu_supports("avx2");

[[gnu::target("avx2,f16c"), gnu::always_inline]] inline __m256 load_halves(uint64_t source, uint64_t i) {
  return _mm256_cvtph_ps(
      _mm_loadu_si128(reinterpret_cast<const __m128i*>(reinterpret_cast<const unsigned short*>(source) + i)));
}

/// Sums of float16 by the processor's conversions, which round as machine::narrow_half does, but keep the bits of a NaN.
[[gnu::target("avx2,f16c")]] uint64_t sum_halves(std::byte* at, std::span<const uint64_t> sources, uint64_t count) {
  auto* const to = reinterpret_cast<unsigned short*>(at);
  uint64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    __m256 sum = load_halves(sources[0], i);
    for (size_t s = 1; s < sources.size(); ++s) sum = _mm256_add_ps(sum, load_halves(sources[s], i));
    const __m128i halves = _mm256_cvtps_ph(sum, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(sum, sum, _CMP_UNORD_Q));
    const __m128i narrow = _mm_packs_epi32(_mm256_castsi256_si128(nan), _mm256_extracti128_si256(nan, 1));
    const __m128i result = _mm_blendv_epi8(halves, _mm_set1_epi16(0x7fff), narrow);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), result);
  }
  return i;
}
const bool kHalves = kAvx2 && __builtin_cpu_supports("f16c");

#endif

}  // namespace

uint64_t reduce_halves(std::byte* to, std::span<const uint64_t> sources, uint64_t count) {
#if defined(__x86_64__)
  if (kHalves) return sum_halves(to, sources, count);
#endif
  return 0;
}

bool reduce_few(uint32_t type, uint32_t op, std::byte* to, std::span<const uint64_t> sources, uint64_t count) {
  if (sources.size() < 2 || sources.size() > 4) return false;
#if defined(__x86_64__)
  if (kAvx2) return plain_avx2(type, op, to, sources, count);
#endif
  return plain(type, op, to, sources, count);
}

}  // namespace thalweg::impl
