// SPDX-License-Identifier: Apache-2.0
// What the processes of a stencil code give each other: boxes of a three-dimensional array, between which and where to.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ranks/ranks.hpp"

namespace apps {

using Triple = std::array<uint64_t, 3>;

/// Part of an array [i][j][k], k contiguous.
struct Box {
  Triple start, extent;
  uint64_t points() const { return extent[0] * extent[1] * extent[2]; }
};

/// The whole array.
struct Shape {
  Triple points;
  size_t element;  // bytes
  uint64_t bytes() const { return points[0] * points[1] * points[2] * element; }
};

/// One box that goes to a peer or comes from it. The receiver's tag is the sender's.
struct Move {
  int peer;
  uint64_t tag;
  Box box;
};
struct Moves {
  std::vector<Move> sends, receives;
};

thalweg::Layout layout_of(const Shape& shape, const Box& box);

/// The 26 neighbours of a cell: directions 0..26 without 13, each component -1, 0 or 1. The opposite of n is 26 - n.
constexpr uint64_t kDirections = 27;
using Direction = std::array<int, 3>;
std::vector<Direction> directions();
uint64_t number_of(const Direction& direction);
Direction opposite(const Direction& direction);
/// Cells of an array with a halo one wide: the last ones inside that a neighbour in this direction needs, and the halo that
/// its own fill.
Box edge_towards(const Triple& inside, const Direction& direction);
Box halo_towards(const Triple& inside, const Direction& direction);

/// The host's trigger: tagged messages, strided on both sides by layouts; nobody packs.
class Messages {
 public:
  Messages(Ranks& ranks, const Shape& shape, const Moves& moves);
  /// One exchange of the array, which lies in memory of any kind; returns when sent and received.
  void exchange(void* array);

 private:
  struct Part {
    tw_endpoint* endpoint;
    uint64_t tag;
    thalweg::Layout layout;
  };
  std::vector<Part> parts(Ranks& ranks, const Shape& shape, std::span<const Move> moves);
  tw_worker* worker_;
  std::vector<Part> sends_, receives_;
  std::vector<thalweg::Request> requests_;
};

}  // namespace apps
