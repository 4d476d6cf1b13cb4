// SPDX-License-Identifier: Apache-2.0
// The processor's own block copy where it has one that pays between cores.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace thalweg::impl {

/// From here on string_copy is at least as fast as memcpy.
inline constexpr size_t kStringCopyMin = 2048;

/// memcpy by `rep movsb` on x86-64; memcpy elsewhere.
inline void string_copy(void* to, const void* from, size_t n) {
#if defined(__x86_64__)
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
#else
  std::memcpy(to, from, n);
#endif
}

/// Any n. `rep movsb` does not read for ownership the lines that another core has dirty, which vector copies do (measured:
/// half the time at 64 KiB); glibc picks it, too, but not in every version.
inline void copy_bulk(std::byte* to, const std::byte* from, size_t n) {
  if (n < kStringCopyMin)
    std::memcpy(to, from, n);
  else
    string_copy(to, from, n);
}

/// A copy to memory that will not be read soon: by non-temporal stores where the processor has them, so that the destination
/// is neither read first nor pushes other things out of the caches. Not ordered: streaming_fence() after the last one.
inline void streaming_piece(std::byte* to, const std::byte* from, size_t n) {
#if defined(__SSE2__)
  const size_t head = (64 - (reinterpret_cast<uintptr_t>(to) & 63)) & 63;
  if (n < 1024 + head) {
    std::memcpy(to, from, n);
    return;
  }
  std::memcpy(to, from, head);
  to += head;
  from += head;
  n -= head;
  for (; n >= 64; n -= 64, to += 64, from += 64) {
    __m128i part[4];
    for (int i = 0; i < 4; ++i) part[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from) + i);
    for (int i = 0; i < 4; ++i) _mm_stream_si128(reinterpret_cast<__m128i*>(to) + i, part[i]);
  }
#endif
  std::memcpy(to, from, n);
}

/// Everything that streaming_piece() has stored is ordered before every later store.
inline void streaming_fence() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

inline void streaming_copy(std::byte* to, const std::byte* from, size_t n) {
  streaming_piece(to, from, n);
  streaming_fence();
}

/// The first lines of what is copied soon: a processor finds the order of addresses anew in each piece.
inline void prefetch_piece(const std::byte* from, size_t n) {
  constexpr size_t kLine = 64, kAhead = 16 * kLine;
  for (size_t at = 0; at < n && at < kAhead; at += kLine) __builtin_prefetch(from + at);
}

}  // namespace thalweg::impl
