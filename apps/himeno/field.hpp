// SPDX-License-Identifier: Apache-2.0
// A rank's arrays in memory of any kind: two for p, which swap roles, and the twelve coefficients. Both p and a word for each
// neighbour's signals are in one allocation, of the same size on every rank.
#pragma once
#include <vector>

#include "himeno/grid.hpp"
#include "himeno/stencil.hpp"

namespace himeno {

class Field {
 public:
  /// Allocates at `place` and fills. cross: the coefficients b, 0 in the benchmark; others make the edges count.
  Field(apps::Ranks& ranks, const Size& size, const Triple& decomposition, const std::string& place, float cross);
  /// Both p as at the beginning.
  void reset();
  float* p(int which) const { return reinterpret_cast<float*>(static_cast<char*>(memory_.data()) + offset(which)); }
  const thalweg::Memory& memory() const { return memory_; }
  /// In the memory, bytes: of a p, of the word that a neighbour sets who sends in this direction.
  uint64_t offset(int which) const { return static_cast<uint64_t>(which) * largest_; }
  uint64_t word(uint64_t direction) const { return 2 * largest_ + direction * sizeof(uint64_t); }
  const Arrays& arrays() const { return arrays_; }
  const apps::Shape& shape() const { return shape_; }
  const Size& size() const { return size_; }
  const Block& block() const { return block_; }
  /// The sum over own points of p's bits times twice the point's number plus one, modulo 2^64: summed over all ranks it is the
  /// same exactly when every bit of the solution is.
  uint64_t fingerprint(int which) const;

 private:
  const float* add(float value);
  Index number(uint64_t i, uint64_t j, uint64_t k) const;  // in the whole grid, of a local point
  apps::Ranks& ranks_;
  const Size size_;
  const Block block_;
  const apps::Shape shape_;
  const std::string place_;
  std::vector<thalweg::Memory> coefficients_;
  const uint64_t largest_;  // bytes of the largest p, rounded up
  thalweg::Memory memory_;
  Arrays arrays_{};
};

}  // namespace himeno
