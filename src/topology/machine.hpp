// SPDX-License-Identifier: Apache-2.0
// The topology that this process goes by: what THALWEG_TOPOLOGY names, else what is found. Graphs live until exit. Any thread.
#pragma once
#include <string>

#include "base/status.hpp"
#include "topology/graph.hpp"

namespace thalweg::impl::topology {

/// The file of THALWEG_TOPOLOGY, read at its first question; *out null: there is none. Cheap without one; TW_ERR_INVALID, TW_ERR_IO: it
/// cannot be taken, which is the same at every question.
Status saved(const Graph** out);

/// That file, else this machine, found at the first question (some ten milliseconds, with GPUs up to a second).
Status current(const Graph** out);

/// Where things are looked for.
struct Where {
  std::string root = "/sys";
  std::string hwloc = "libhwloc.so.15", nvml = "libnvidia-ml.so.1";
  std::string xml;  // a file of hwloc's, instead of root
};
struct Discovery {
  Graph graph;
  std::string hwloc, why_no_hwloc;  // the version of its interface, or why there is none
  std::string nvml, why_no_nvml;
};
Discovery discover(const Where& where);
/// This machine, once, whatever THALWEG_TOPOLOGY says.
const Discovery& discovered();

}  // namespace thalweg::impl::topology
