// SPDX-License-Identifier: Apache-2.0
// Kernels that copy: rows long enough for warps, rows too short for them, blocks by index. Warps copy in words of 16 bytes a lane,
// eight in flight, where both sides allow it.
#pragma once
#include "devices/kernel.hpp"
#include "devices/kernels/ends.hpp"

namespace thalweg::impl::kernels {

template <typename Word, unsigned InFlight>
THALWEG_DEVICE void copy_words(char* to, const char* from, uint64_t count, unsigned lane) {
  auto* const target = reinterpret_cast<Word*>(to);
  const auto* const source = reinterpret_cast<const Word*>(from);
  uint64_t at = lane;
  for (; at + (InFlight - 1) * machine::kLanes < count; at += InFlight * machine::kLanes) {
    Word held[InFlight];
    THALWEG_UNROLL
    for (unsigned i = 0; i < InFlight; ++i) held[i] = source[at + i * machine::kLanes];
    THALWEG_UNROLL
    for (unsigned i = 0; i < InFlight; ++i) target[at + i * machine::kLanes] = held[i];
  }
  for (; at < count; at += machine::kLanes) target[at] = source[at];
}

/// Fewer bytes than Most: one each for the lanes, where there are as many.
template <unsigned Most>
THALWEG_DEVICE void copy_few(char* to, const char* from, uint64_t count, unsigned lane) {
  if constexpr (Most <= machine::kLanes) {
    if (lane < count) to[lane] = from[lane];
  } else {
    for (uint64_t at = lane; at < count; at += machine::kLanes) to[at] = from[at];
  }
}

/// Up to an aligned target by bytes, then words, then bytes.
template <typename Word, unsigned InFlight>
THALWEG_DEVICE void copy_aligned(char* to, const char* from, uint64_t length, unsigned lane) {
  uint64_t head = (sizeof(Word) - reinterpret_cast<uintptr_t>(to) % sizeof(Word)) % sizeof(Word);
  if (head > length) head = length;
  const uint64_t words = (length - head) / sizeof(Word), tail = head + words * sizeof(Word);
  copy_few<sizeof(Word)>(to, from, head, lane);
  copy_words<Word, InFlight>(to + head, from + head, words, lane);
  copy_few<sizeof(Word)>(to + tail, from + tail, length - tail, lane);
}

THALWEG_DEVICE void warp_copy(char* to, const char* from, uint64_t length, unsigned lane) {
  const uintptr_t apart = reinterpret_cast<uintptr_t>(to) ^ reinterpret_cast<uintptr_t>(from);
  if (apart % 16 == 0) {
    copy_aligned<device::Word16, 8>(to, from, length, lane);
  } else if (apart % 8 == 0) {
    copy_aligned<u64, 8>(to, from, length, lane);
  } else if (apart % 4 == 0) {
    copy_aligned<u32, 8>(to, from, length, lane);
  } else {
    copy_words<char, 8>(to, from, length, lane);
  }
}

/// The warp's number in the grid, and how many there are.
THALWEG_DEVICE uint64_t grid_warp() {
  return (static_cast<uint64_t>(machine::block_x()) * machine::threads_x() + machine::thread_x()) / machine::kLanes;
}
THALWEG_DEVICE uint64_t grid_warps() {
  return static_cast<uint64_t>(machine::blocks_x()) * machine::threads_x() / machine::kLanes;
}

/// Rows long enough for warps, and plain copies, which are one row.
THALWEG_DEVICE void copy_wide(const CopyArguments& copy) {
  if (stopped(copy.ends)) return;
  const unsigned lane = machine::thread_x() % machine::kLanes;
  const uint64_t warp = grid_warp(), warps = grid_warps();
  const uint64_t pieces = (copy.width + copy.piece - 1) / copy.piece;
  for (uint64_t item = warp; item < pieces * copy.rows * copy.slices; item += warps) {
    const uint64_t row = item / pieces, offset = (item - row * pieces) * copy.piece;
    const auto z = static_cast<int64_t>(row / copy.rows), y = static_cast<int64_t>(row % copy.rows);
    const uint64_t left = copy.width - offset;
    warp_copy(pointer<char>(copy.to + z * copy.to_slice + y * copy.to_row + offset),
              pointer<char>(copy.from + z * copy.from_slice + y * copy.from_row + offset),
              left < copy.piece ? left : copy.piece, lane);
  }
  finish(copy.ends);
}

/// Threads take words of rows that are too short for a warp.
template <typename Word, typename Index>
THALWEG_DEVICE void copy_narrow(const CopyArguments& copy) {
  constexpr unsigned kInFlight = 4;
  const Index words = static_cast<Index>(copy.width / sizeof(Word)), rows = static_cast<Index>(copy.rows);
  const Index all = words * rows * static_cast<Index>(copy.slices);
  const Index step = static_cast<Index>(machine::blocks_x()) * machine::threads_x();
  for (Index first = static_cast<Index>(machine::block_x()) * machine::threads_x() + machine::thread_x(); first < all;
       first += kInFlight * step) {
    Word held[kInFlight];
    Word* target[kInFlight];
    THALWEG_UNROLL
    for (unsigned i = 0; i < kInFlight; ++i) {
      const Index at = first + i * step;
      target[i] = nullptr;
      if (at >= all) continue;
      const Index row = at / words, word = at - row * words, slice = row / rows, y = row - slice * rows;
      const auto dy = static_cast<int64_t>(y), dz = static_cast<int64_t>(slice);
      target[i] = reinterpret_cast<Word*>(copy.to + dz * copy.to_slice + dy * copy.to_row) + word;
      held[i] = reinterpret_cast<const Word*>(copy.from + dz * copy.from_slice + dy * copy.from_row)[word];
    }
    THALWEG_UNROLL
    for (unsigned i = 0; i < kInFlight; ++i) {
      if (target[i] != nullptr) *target[i] = held[i];
    }
  }
}

template <typename Word>
THALWEG_DEVICE void copy_narrow(const CopyArguments& copy) {
  const uint64_t words = copy.width / sizeof(Word) * copy.rows * copy.slices;
  if (words < (uint64_t{1} << 31)) {
    copy_narrow<Word, uint32_t>(copy);  // 64-bit divisions are slow; at most 65535 blocks: the index does not wrap
  } else {
    copy_narrow<Word, uint64_t>(copy);
  }
}

THALWEG_DEVICE void copy_narrow(const CopyArguments& copy) {
  if (stopped(copy.ends)) return;
  switch (copy.piece) {  // the largest word that divides addresses, pitches and width
    case 16:
      copy_narrow<device::Word16>(copy);
      break;
    case 8:
      copy_narrow<u64>(copy);
      break;
    case 4:
      copy_narrow<u32>(copy);
      break;
    case 2:
      copy_narrow<unsigned short>(copy);
      break;
    default:
      copy_narrow<char>(copy);
  }
  finish(copy.ends);
}

THALWEG_DEVICE void copy_blocks(const BlocksArguments& blocks) {
  if (stopped(blocks.ends)) return;
  const unsigned lane = machine::thread_x() % machine::kLanes;
  const uint64_t warp = grid_warp(), warps = grid_warps();
  const uint64_t pieces = (blocks.length + blocks.piece - 1) / blocks.piece;
  const BlockPair* const pairs = pointer<const BlockPair>(blocks.pairs);
  for (uint64_t item = warp; item < pieces * blocks.count; item += warps) {
    const uint64_t which = item / pieces, offset = (item - which * pieces) * blocks.piece;
    const uint64_t left = blocks.length - offset;
    const BlockPair pair = pairs[which];
    warp_copy(pointer<char>(pair.to + offset), pointer<char>(pair.from + offset), left < blocks.piece ? left : blocks.piece,
              lane);
  }
  finish(blocks.ends);
}

}  // namespace thalweg::impl::kernels
