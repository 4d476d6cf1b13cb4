// SPDX-License-Identifier: Apache-2.0
// Where the ranks of a machine belong: a GPU, the processors near it, the nearest network card.
#pragma once
#include <vector>

#include "topology/graph.hpp"

namespace thalweg::impl::topology {

struct RankPlace {
  size_t gpu = kNoNode, numa = kNoNode, nic = kNoNode;
  unsigned shared = 0;               // ranks that have this GPU
  std::vector<unsigned> processors;  // ascending
};

struct Usable {
  std::vector<unsigned> processors;  // ascending
  std::vector<size_t> gpus;          // nodes
  bool operator==(const Usable&) const = default;
};
/// All that there is.
Usable all_of(const Graph& graph);

/// One place for each rank. With fewer ranks than GPUs those with the best links among them are taken, of equally good sets the one
/// on most NUMA nodes, then the first; with more ranks neighbours share one. A NUMA node's cores are divided among its ranks, in the
/// order of the ranks, while each has one; ranks beyond them go to other nodes. No core is in two ranks while there are cores for all;
/// where there are fewer cores than ranks they have processors, where there are fewer of those they share. Ranks without a GPU divide
/// all cores in their order. The nearest card that is up, of equally near ones that with the fewest ranks for its speed.
std::vector<RankPlace> place_ranks(const Graph& graph, const Usable& usable, unsigned ranks);

}  // namespace thalweg::impl::topology
