// SPDX-License-Identifier: Apache-2.0
// The kernel's trigger, what processor and GPU share: code that computes p also stores its block's faces and edges into the neighbours'
// halos and signals; it waits for theirs before it reads its own halo.
//
// Iteration n (0, 1, ...) reads the halo of p(n % 2) when the neighbour's word is at n, and then stores into the neighbour's
// halo of p((n + 1) % 2) and sets its word there to n + 1. That also says that nothing of iteration n reads this block's halo
// towards that neighbour any more, and nobody writes into a halo earlier: no other handshake is needed.
#pragma once
#include <thalweg/device/window.hpp>

#include "himeno/stencil.hpp"

namespace himeno {

using thalweg::device::u32;
using thalweg::device::u64;

constexpr u32 kMostNeighbours = 18;

/// The points of a block of threads.
struct Tile {
  Index begin[3], end[3];
};

/// In the GPU's memory. `arrived` words count blocks of threads that did their part of an iteration; 0 between iterations.
struct Progress {
  u64 generation;               // iterations
  u32 arrived;                  // that have a neighbour
  u32 served[kMostNeighbours];  // that served this one
};

/// Plain data: also in the GPU's memory.
struct Neighbour {
  u32 rank;
  u32 blocks;                      // of threads that compute what it needs (GPU)
  Index first[3], extent[3];       // own points that it needs
  Index to_stride_i, to_stride_j;  // of its arrays
  u64 to[2];                       // offsets in its part of the window: where first goes in p(0), p(1)
  u64 word, its_word;              // offsets: of its word here, of this rank's word there
  HIMENO_BOTH bool needs(Index i, Index j, Index k) const {
    return i >= first[0] && i < first[0] + extent[0] && j >= first[1] && j < first[1] + extent[1] && k >= first[2] &&
           k < first[2] + extent[2];
  }
  HIMENO_BOTH bool touches(const Tile& tile) const {
    for (int axis = 0; axis < 3; ++axis)
      if (tile.begin[axis] >= first[axis] + extent[axis] || tile.end[axis] <= first[axis]) return false;
    return true;
  }
  /// In its array, from where `first` goes.
  HIMENO_BOTH Index place(Index i, Index j, Index k) const {
    return (i - first[0]) * to_stride_i + (j - first[1]) * to_stride_j + k - first[2];
  }
  HIMENO_BOTH u64 span() const {
    return static_cast<u64>(place(first[0] + extent[0] - 1, first[1] + extent[1] - 1, first[2] + extent[2]));
  }
};

}  // namespace himeno
