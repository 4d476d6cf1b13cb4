// SPDX-License-Identifier: Apache-2.0
// Sides of a transfer: how device code makes them, and how packed offsets become addresses.
#pragma once
#include <thalweg/device/thread_group.hpp>

namespace thalweg::device {

constexpr u64 kContiguous = ~u64{0};

THALWEG_DEVICE Side contiguous_at(u64 address) { return {address, kContiguous, {0, 0}, {0, 0, 0}, nullptr, 0}; }
template <class T>
THALWEG_DEVICE Side contiguous_at(const T* address) {
  return contiguous_at(reinterpret_cast<u64>(address));
}
/// Rows of `width` elements, whose beginnings are `pitch` elements apart; as many as the transfer needs.
template <class T>
THALWEG_DEVICE Side rows_at(const T* address, u64 width, i64 pitch) {
  const i64 bytes = static_cast<i64>(sizeof(T));
  return {reinterpret_cast<u64>(address), width * sizeof(T), {0, 0}, {pitch * bytes, 0, 0}, nullptr, 0};
}
/// The same, `rows` of them a slice; beginnings of slices are `slice_pitch` elements apart.
template <class T>
THALWEG_DEVICE Side slices_at(const T* address, u64 width, u64 rows, i64 pitch, i64 slice_pitch) {
  const i64 bytes = static_cast<i64>(sizeof(T));
  return {reinterpret_cast<u64>(address), width * sizeof(T), {rows, 0}, {pitch * bytes, slice_pitch * bytes, 0}, nullptr, 0};
}

THALWEG_DEVICE bool contiguous(const Side& side) { return side.pieces == nullptr && side.block == kContiguous; }

/// The packed bytes [begin, end).
struct Part {
  u64 begin, end;
};

/// Divisions of 64 bits are slow on GPUs, and nearly never needed.
THALWEG_DEVICE u64 divide(u64 a, u64 b) { return ((a | b) >> 32) == 0 ? static_cast<u32>(a) / static_cast<u32>(b) : a / b; }

/// Where block `index` of a strided side begins.
THALWEG_DEVICE u64 block_address(const Side& side, u64 index) {
  u64 address = side.base;
  for (u32 d = 0; d < 2; ++d) {
    if (side.count[d] == 0) return address + index * static_cast<u64>(side.stride[d]);
    const u64 above = divide(index, side.count[d]);
    address += (index - above * side.count[d]) * static_cast<u64>(side.stride[d]);
    index = above;
  }
  return address + index * static_cast<u64>(side.stride[2]);
}

/// Walks along a side; `left` bytes from `address` on are contiguous.
template <class M>
struct Cursor {
  M m;
  const Side& side;
  u64 at;       // packed
  u64 address;  // of the packed byte `at`
  u64 left;
  u64 piece;  // of a list

  THALWEG_DEVICE Cursor(M machine, const Side& of, u64 offset)
      : m(machine), side(of), at(offset), address(0), left(0), piece(0) {
    if (side.pieces != nullptr) find_piece();
    locate();
  }
  THALWEG_DEVICE void advance(u64 bytes) {
    at += bytes;
    address += bytes;
    left -= bytes;
    if (left != 0) return;
    ++piece;
    locate();
  }

  /// How many runs of `run` bytes, at most `left`, follow one another *step bytes apart from here on; at least one.
  THALWEG_DEVICE u64 rows(u64 run, u64* step) const {
    if (left != run) {  // within a longer one
      *step = run;
      return left / run;
    }
    if (side.pieces != nullptr || side.block != run) return 1;  // a list's piece, or the end of a longer block
    *step = static_cast<u64>(side.stride[0]);
    return side.count[0] == 0 ? kContiguous : side.count[0] - divide(at, side.block) % side.count[0];
  }
  /// Over whole runs that rows() returned.
  THALWEG_DEVICE void skip(u64 bytes) {
    if (bytes <= left) return advance(bytes);
    at += bytes;
    locate();
  }

 private:
  THALWEG_DEVICE u64 offset_of(u64 number) const { return m.read(&side.pieces[number].offset); }
  /// The last piece that begins at or before `at`.
  THALWEG_DEVICE void find_piece() {
    u64 beyond = side.piece_count;
    while (beyond - piece > 1) {
      const u64 middle = piece + (beyond - piece) / 2;
      if (offset_of(middle) <= at) {
        piece = middle;
      } else {
        beyond = middle;
      }
    }
  }
  THALWEG_DEVICE void locate() {
    if (side.pieces == nullptr) {
      if (side.block == kContiguous) {
        address = side.base + at;
        left = kContiguous;
        return;
      }
      const u64 block = divide(at, side.block), inside = at - block * side.block;
      address = block_address(side, block) + inside;
      left = side.block - inside;
      return;
    }
    if (piece >= side.piece_count) return;  // past the last one: the transfer is over
    const u64 begin = offset_of(piece);
    address = m.read(&side.pieces[piece].address) + (at - begin);
    left = piece + 1 < side.piece_count ? offset_of(piece + 1) - at : kContiguous;
  }
};

/// A strided or contiguous side in words; indices of 32 bits.
struct WordSide {
  u64 base;
  i64 stride[3];
  u32 word;
  u32 block;  // words; 0: contiguous
  u32 count[2];

  THALWEG_DEVICE WordSide(const Side& side, u32 size) : base(side.base), word(size), block(0), count{0, 0} {
    for (u32 d = 0; d < 3; ++d) stride[d] = side.stride[d];
    if (side.block == kContiguous) return;
    const u64 words = side.block / size;
    block = words >> 31 != 0 ? 1u << 31 : static_cast<u32>(words);  // longer than any index
    for (u32 d = 0; d < 2; ++d) count[d] = static_cast<u32>(side.count[d]);
  }
  THALWEG_DEVICE u64 address(u32 index) const {
    if (block == 0) return base + u64{index} * word;
    u32 row = index / block;
    u64 to = base + u64{index - row * block} * word;
    THALWEG_UNROLL
    for (u32 d = 0; d < 2; ++d) {
      if (count[d] == 0) return to + row * static_cast<u64>(stride[d]);
      const u32 above = row / count[d];
      to += (row - above * count[d]) * static_cast<u64>(stride[d]);
      row = above;
    }
    return to + row * static_cast<u64>(stride[2]);
  }
};

constexpr u64 kLongRow = 1024;  // bytes; rows from here on are copied by walking, which gets by without divisions

/// The word for copying in packed order: 16, 8, 4 or 1 bytes; 0: walk along the sides instead.
THALWEG_DEVICE u64 common_word(const Side& to, const Side& from, u64 bytes) {
  if (to.pieces != nullptr || from.pieces != nullptr) return 0;
  const u64 shorter = to.block < from.block ? to.block : from.block;
  u64 all = to.base | from.base | bytes | 16;
  for (u32 s = 0; s < 2; ++s) {
    const Side& side = s == 0 ? to : from;
    if (side.block == kContiguous) continue;
    all |= side.block;
    for (u32 d = 0; d < 3; ++d) {
      all |= static_cast<u64>(side.stride[d]);
      if (d == 2 || side.count[d] == 0) break;
      if (side.count[d] >> 31 != 0) return 0;
    }
  }
  const u64 word = all & (0 - all);
  if (shorter >= kLongRow || (word < 4 && shorter >= 64) || bytes >= word << 30) return 0;
  return word == 2 ? 1 : word;
}

}  // namespace thalweg::device
