// SPDX-License-Identifier: Apache-2.0
// What hwloc says of a machine: processors, caches, NUMA nodes, PCIe, network cards. Its library is loaded at run time.
#pragma once
#include <string>
#include <vector>

#include "base/status.hpp"
#include "topology/sysfs.hpp"

namespace thalweg::impl::topology {

constexpr const char* kHwlocLibrary = "libhwloc.so.15";

struct HwlocFound {
  std::string version;  // of its interface: "2.8"
  NumaNumbers numa;
  std::vector<PciFunction> pci;  // without links, speeds and states
};

/// Adds processors and what contains them below the machine of *graph, which is there. `xml`: a file of hwloc's instead of this
/// machine; empty: none. An error has why it cannot, and leaves *graph as it was.
Status add_by_hwloc(const char* library, const std::string& xml, Graph* graph, HwlocFound* found);

}  // namespace thalweg::impl::topology
