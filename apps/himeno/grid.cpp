// SPDX-License-Identifier: Apache-2.0
#include "himeno/grid.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>

#include "ranks/arguments.hpp"

namespace himeno {

const std::vector<std::string>& size_names() {
  static const std::vector<std::string> names = {"XS", "S", "M", "L", "XL"};
  return names;
}

Size size_of(const std::string& name) {
  uint64_t factor = 1;
  for (const std::string& known : size_names()) {
    if (name == known) return {name, {32 * factor, 32 * factor, 64 * factor}};
    factor *= 2;
  }
  throw apps::Usage("no size " + name);
}

Triple parse_decomposition(const std::string& text, int processes) {
  const std::vector<std::string> words = apps::split(text, 'x');
  Triple parts{1, 1, 1};
  bool fits = words.size() <= 3;
  for (size_t axis = 0; fits && axis < words.size(); ++axis) {
    parts[axis] = std::strtoull(words[axis].c_str(), nullptr, 10);
    fits = parts[axis] >= 1 && parts[axis] <= 4096;
  }
  if (!fits || parts[0] * parts[1] * parts[2] != static_cast<uint64_t>(processes)) {
    throw apps::Usage("--decompose " + text + ": wants IxJxK blocks, one for each of the " + std::to_string(processes) +
                      " processes");
  }
  return parts;
}

Triple best_decomposition(const Triple& inner, int processes) {
  const auto count = static_cast<uint64_t>(processes);
  Triple best{count, 1, 1};
  uint64_t least = std::numeric_limits<uint64_t>::max();
  for (uint64_t k = 1; k <= count; ++k)
    for (uint64_t j = 1; j <= count / k; ++j) {
      const uint64_t i = count / (j * k);
      if (i * j * k != count || i > inner[0] || j > inner[1] || k > inner[2]) continue;
      const uint64_t cost = (i - 1) * inner[1] * inner[2] + (j - 1) * inner[0] * inner[2] + 4 * (k - 1) * inner[0] * inner[1];
      if (cost >= least) continue;
      least = cost;
      best = {i, j, k};
    }
  return best;
}

std::string text_of(const Triple& parts) {
  return std::to_string(parts[0]) + "x" + std::to_string(parts[1]) + "x" + std::to_string(parts[2]);
}

Block::Block(const Size& size, const Triple& parts, int rank) {
  const auto number = static_cast<uint64_t>(rank);
  at = {number / (parts[1] * parts[2]), number / parts[2] % parts[1], number % parts[2]};
  const Triple inner = size.inner();
  for (size_t axis = 0; axis < 3; ++axis) {
    const uint64_t whole = inner[axis] / parts[axis], rest = inner[axis] % parts[axis];
    inside[axis] = whole + (at[axis] < rest ? 1 : 0);
    first[axis] = 1 + at[axis] * whole + std::min(at[axis], rest);
    if (whole == 0) throw apps::Usage("size " + size.name + " has too few points for " + text_of(parts) + " blocks");
  }
}

apps::Moves moves_of(const Block& block, const Triple& parts) {
  apps::Moves moves;
  for (const apps::Direction& d : apps::directions()) {
    if (d[0] != 0 && d[1] != 0 && d[2] != 0) continue;  // corners are not in the stencil
    Triple other{};
    bool exists = true;
    for (size_t axis = 0; axis < 3; ++axis) {
      other[axis] = block.at[axis] + static_cast<uint64_t>(d[axis]);  // wraps below zero: then it is not below parts
      exists = exists && other[axis] < parts[axis];
    }
    if (!exists) continue;
    const int peer = static_cast<int>((other[0] * parts[1] + other[1]) * parts[2] + other[2]);
    moves.sends.push_back({peer, apps::number_of(d), apps::edge_towards(block.inside, d)});
    moves.receives.push_back({peer, apps::number_of(apps::opposite(d)), apps::halo_towards(block.inside, d)});
  }
  return moves;
}

}  // namespace himeno
