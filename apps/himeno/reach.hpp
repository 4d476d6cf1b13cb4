// SPDX-License-Identifier: Apache-2.0
// The neighbours of a block as code at its place reaches them, by a window over all ranks' p.
#pragma once
#include <thalweg/windows.hpp>

#include "himeno/field.hpp"
#include "himeno/neighbour.hpp"

namespace himeno {

class Reach {
 public:
  /// Collective; so is the end.
  Reach(apps::Ranks& ranks, const Field& field, const Triple& decomposition, const std::string& place);
  const thalweg::device::Window& window() const { return bound_; }
  const std::vector<Neighbour>& neighbours() const { return neighbours_; }
  /// Throws what went wrong in a wait.
  void check() const { window_.check(); }

 private:
  thalweg::Window window_;
  thalweg::device::Window bound_;
  std::vector<Neighbour> neighbours_;
};

}  // namespace himeno
