// SPDX-License-Identifier: Apache-2.0
// A cube of N x N x N cells, and what the ranks, a ring, exchange of it.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ranks/exchange.hpp"

namespace halo {

/// A plane (jk: one block; ik: N rows; ij: N x N single cells) goes from the end of its axis to the next rank, where it becomes
/// the plane at the beginning. "26": the cube has a halo one wide; the 13 neighbours in positive directions are on the next rank, the
/// others on the previous one.
const std::vector<std::string>& region_names();

class Cube {
 public:
  Cube(apps::Ranks& ranks, uint64_t n, size_t element, const std::string& region, const std::string& place);
  void* data() const { return memory_.data(); }
  const thalweg::Memory& memory() const { return memory_; }
  /// The offset in memory() of word n < 54 behind the cells, for signals; 0 at the beginning.
  uint64_t word(uint64_t n) const { return (shape_.bytes() + 255) / 256 * 256 + n * sizeof(uint64_t); }
  const apps::Shape& shape() const { return shape_; }
  const apps::Moves& moves() const { return moves_; }
  /// Of one rank's sends, which is as much as it receives.
  uint64_t bytes() const;
  /// Fresh random cells, of a number that no other call has, and poison in the halo. Followed by exchanges, then by check.
  void fill();
  /// Throws when a cell is not what it should be: those received are the neighbours', all others are untouched. Collective.
  void check(const std::string& by);

 private:
  uint64_t number(const apps::Triple& point) const;
  uint64_t seed(int rank) const;
  std::vector<unsigned char> start() const;
  bool in_halo(const apps::Triple& point) const;
  std::optional<std::pair<int, apps::Triple>> source_of(const apps::Triple& point) const;
  apps::Ranks& ranks_;
  const uint64_t n_;
  const int axis_;  // across the plane; -1: all 26 neighbours
  const int next_, previous_;
  const apps::Shape shape_;
  const apps::Moves moves_;
  thalweg::Memory memory_;
  uint64_t round_ = 0;
};

}  // namespace halo
