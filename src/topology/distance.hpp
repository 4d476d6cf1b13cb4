// SPDX-License-Identifier: Apache-2.0
// What lies between two nodes of a graph, and which GPUs reach each other's memory by it.
#pragma once
#include <string>
#include <vector>

#include "topology/graph.hpp"

namespace thalweg::impl::topology {

/// NVLinks side by side between two nodes, direct ones or through NVSwitches.
struct NvLinks {
  unsigned up = 0, down = 0;
  double bandwidth = 0;  // bytes per second in each direction, of those that are up
  bool switched = false;
};
NvLinks nvlinks_between(const Graph& graph, size_t one, size_t other);

struct Distance {
  std::string kind;  // as nvidia-smi names it: X, NV6, PIX, PXB, PHB, NODE, SYS; of processors core, cache, node, far
  unsigned hops = 0;
  NvLinks nvlinks;
  double bandwidth = 0;      // of the narrowest link that is known; 0: none is
  std::vector<size_t> path;  // both ends, too
  std::string note;          // what is down or narrower than it could be, or that NVLinks are not known
};
Distance distance_between(const Graph& graph, size_t from, size_t to);
/// "gpu:0 - switch:0 - gpu:1"
std::string path_text(const Graph& graph, const std::vector<size_t>& path);

/// How one GPU's work gets to another one's memory.
struct Reach {
  enum class By : uint8_t { nothing, pcie, nvlink, unknown };  // unknown: nobody told of NVLinks
  By by = By::nothing;
  std::string why;  // it is not NVLink, or not by all of them: "NVLink between gpu:0 and gpu:1 is down in FILE"
};
Reach reach_between(const Graph& graph, size_t from, size_t to);

}  // namespace thalweg::impl::topology
