// SPDX-License-Identifier: Apache-2.0
// The benchmark's sizes, how a grid is cut into blocks, and what neighbouring blocks exchange.
#pragma once
#include <optional>
#include <string>

#include "ranks/exchange.hpp"

namespace himeno {

using apps::Triple;

/// Points of the grid with its border, whose values never change: XS 32x32x64, each next one twice in every axis.
struct Size {
  std::string name;
  Triple points;
  Triple inner() const { return {points[0] - 2, points[1] - 2, points[2] - 2}; }
};
const std::vector<std::string>& size_names();
Size size_of(const std::string& name);

/// "2x1x1". Usage unless it makes `processes` blocks.
Triple parse_decomposition(const std::string& text, int processes);
/// The cheapest cut: least surface, where that across k (single elements, a row apart) costs four times.
Triple best_decomposition(const Triple& inner, int processes);
std::string text_of(const Triple& decomposition);

/// A rank's block of the inner points. Throws Usage when a block would be empty.
struct Block {
  Block(const Size& size, const Triple& decomposition, int rank);
  Triple at;      // of the block among blocks
  Triple first;   // its first own point in the grid, border counted
  Triple inside;  // own points
  apps::Shape shape() const { return {{inside[0] + 2, inside[1] + 2, inside[2] + 2}, sizeof(float)}; }
};

/// The 19-point stencil needs the 6 faces and the 12 edges between them: up to 18 neighbours. Tags are directions as the sender
/// sees them.
apps::Moves moves_of(const Block& block, const Triple& decomposition);

}  // namespace himeno
