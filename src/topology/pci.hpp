// SPDX-License-Identifier: Apache-2.0
// PCI functions as found, and the few nodes that a graph makes of them: what is of no interest, and bridges that join nothing, go.
#pragma once
#include <string>
#include <vector>

#include "topology/graph.hpp"

namespace thalweg::impl::topology {

struct PciLink {
  unsigned generation = 0, lanes = 0, most_generation = 0, most_lanes = 0;  // 0: not known
};

struct PciFunction {
  std::string address;      // "0000:1b:00.0"
  size_t parent = kNoNode;  // the bridge before it, in the list and before it there; none: it is at its host bridge
  std::string host;         // name of that host bridge: "0000:00"
  int numa = -1;            // of the host bridge, as the system numbers nodes; -1: not known
  bool bridge = false;
  unsigned type = 0, vendor = 0;  // the class without its last byte (0x0302), the vendor (0x10de)
  PciLink link;
  std::string name;  // of a network card: its interface, or its device for verbs
  double speed = 0;  // bytes per second
  bool up = true;
};

bool is_gpu(const PciFunction& one);
bool is_nvswitch(const PciFunction& one);
/// A network card that the system has a driver for: it has a name.
bool is_card(const PciFunction& one);

/// Adds host bridges, switches and, in the order of their addresses, devices. `numa` has the graph's node of a number of the system's.
void add_pci(const std::vector<PciFunction>& all, const std::vector<std::pair<int, size_t>>& numa, Graph* graph);

}  // namespace thalweg::impl::topology
