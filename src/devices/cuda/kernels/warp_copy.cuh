// SPDX-License-Identifier: Apache-2.0
// One warp copies some bytes: in words of 16 bytes a lane, eight in flight, where both sides allow it.
#pragma once
#include <cstdint>

namespace thalweg::impl::cuda {

constexpr unsigned kWarp = 32;

template <typename Word, unsigned InFlight>
__device__ inline void copy_words(char* to, const char* from, uint64_t count, unsigned lane) {
  auto* const target = reinterpret_cast<Word*>(to);
  const auto* const source = reinterpret_cast<const Word*>(from);
  uint64_t at = lane;
  for (; at + (InFlight - 1) * kWarp < count; at += InFlight * kWarp) {
    Word held[InFlight];
#pragma unroll
    for (unsigned i = 0; i < InFlight; ++i) held[i] = source[at + i * kWarp];
#pragma unroll
    for (unsigned i = 0; i < InFlight; ++i) target[at + i * kWarp] = held[i];
  }
  for (; at < count; at += kWarp) target[at] = source[at];
}

/// Up to an aligned target by bytes, then words, then bytes.
template <typename Word, unsigned InFlight>
__device__ inline void copy_aligned(char* to, const char* from, uint64_t length, unsigned lane) {
  uint64_t head = (sizeof(Word) - reinterpret_cast<uintptr_t>(to) % sizeof(Word)) % sizeof(Word);
  if (head > length) head = length;
  const uint64_t words = (length - head) / sizeof(Word), tail = head + words * sizeof(Word);
  if (lane < head) to[lane] = from[lane];
  copy_words<Word, InFlight>(to + head, from + head, words, lane);
  if (lane < length - tail) to[tail + lane] = from[tail + lane];
}

__device__ inline void warp_copy(char* to, const char* from, uint64_t length, unsigned lane) {
  const uintptr_t apart = reinterpret_cast<uintptr_t>(to) ^ reinterpret_cast<uintptr_t>(from);
  if (apart % 16 == 0) {
    copy_aligned<uint4, 8>(to, from, length, lane);
  } else if (apart % 8 == 0) {
    copy_aligned<uint2, 8>(to, from, length, lane);
  } else if (apart % 4 == 0) {
    copy_aligned<unsigned, 8>(to, from, length, lane);
  } else {
    copy_words<char, 8>(to, from, length, lane);
  }
}

}  // namespace thalweg::impl::cuda
