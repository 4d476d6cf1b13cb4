// SPDX-License-Identifier: Apache-2.0
// What the kernel's files say of a machine. `root` is "/sys", or a folder like it. Files that are absent or odd leave things out.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "topology/pci.hpp"

namespace thalweg::impl::topology {

/// NUMA nodes of the graph by the system's numbers.
using NumaNumbers = std::vector<std::pair<int, size_t>>;

/// Packages, NUMA nodes, last-level caches and cores, below the machine, which is there.
void add_processors_of(const std::string& root, Graph* graph, NumaNumbers* numa);

/// All functions with the bridges before them, completed as below.
std::vector<PciFunction> pci_functions_of(const std::string& root);

/// Links, and names, speeds and states of network cards, of functions that are known by their addresses.
void complete_pci(const std::string& root, std::vector<PciFunction>* all);

}  // namespace thalweg::impl::topology
