// SPDX-License-Identifier: Apache-2.0
// A cube of N x N x N cells with a halo one wide, and what the ranks, a ring, exchange of it.
#pragma once
#include <string>
#include <vector>

#include "ranks/exchange.hpp"

namespace halo {

/// Which cells: a plane (jk: one block; ik: N rows; ij: N x N single elements) that goes to the next rank, or all 26 neighbours: the 13 in
/// positive directions are on the next rank, the others on the previous one.
const std::vector<std::string>& region_names();
std::vector<apps::Direction> directions_of(const std::string& region);

class Cube {
 public:
  Cube(apps::Ranks& ranks, uint64_t n, size_t element, const std::string& region, const std::string& place);
  void* data() const { return memory_.data(); }
  const thalweg::Memory& memory() const { return memory_; }
  const apps::Shape& shape() const { return shape_; }
  const apps::Moves& moves() const { return moves_; }
  /// Of one rank's sends, which is as much as it receives.
  uint64_t bytes() const;
  /// Fresh random cells, of a number that no other call has, and poison in the halo. Followed by exchanges, then by check.
  void fill();
  /// Throws when a cell is not what it should be: the halo's are the neighbours', all others are untouched. Collective.
  void check(const std::string& by);

 private:
  uint64_t number(const apps::Triple& point) const;
  uint64_t value(int rank, uint64_t number) const;
  std::vector<unsigned char> start() const;
  apps::Ranks& ranks_;
  const apps::Triple inside_;
  const apps::Shape shape_;
  const std::vector<apps::Direction> directions_;
  apps::Moves moves_;
  thalweg::Memory memory_;
  uint64_t round_ = 0;
};

}  // namespace halo
