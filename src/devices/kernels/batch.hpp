// SPDX-License-Identifier: Apache-2.0
// Words that a thread loads before it is known whether, or where, they are stored.
#pragma once
#include "thalweg/device/copy.hpp"

namespace thalweg::impl::kernels {

using device::u32;
using device::u64;

/// Contiguous memory in words, as device::WordSide is strided one.
struct WordLine {
  u64 base;
  u32 word;
  THALWEG_DEVICE u64 address(u32 index) const { return base + u64{index} * word; }
};

/// Words rank, rank + size, ... of `count`: no more than kInFlight of a thread.
template <class W>
struct Batch {
  W held[device::kInFlight];

  static THALWEG_DEVICE bool holds(u64 count, u32 size) { return count <= u64{size} * device::kInFlight; }
  template <class From>
  THALWEG_DEVICE void load(const From& from, u32 rank, u32 size, u32 count) {
    THALWEG_UNROLL
    for (u32 i = 0; i < device::kInFlight; ++i) {
      if (rank + i * size < count) held[i] = *reinterpret_cast<const W*>(from.address(rank + i * size));
    }
  }
  template <class To>
  THALWEG_DEVICE void store(const To& to, u32 rank, u32 size, u32 count) const {
    THALWEG_UNROLL
    for (u32 i = 0; i < device::kInFlight; ++i) {
      if (rank + i * size < count) *reinterpret_cast<W*>(to.address(rank + i * size)) = held[i];
    }
  }
};

}  // namespace thalweg::impl::kernels
