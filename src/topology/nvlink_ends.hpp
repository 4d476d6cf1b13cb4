// SPDX-License-Identifier: Apache-2.0
// NVLinks as each GPU tells of its ends, made into links that are there once.
#pragma once
#include <vector>

#include "topology/graph.hpp"

namespace thalweg::impl::topology {

/// `told`: each from the GPU that told of it; `to` is kNoNode where it did not say where the link leads. What comes back has every
/// link once: one between two GPUs from that with the lower number, unless only the other one told of it; down, if either end says so.
/// One that is down may not say where it leads: then it leads to where the other end says that it does, else to the NVSwitch of its
/// GPU's others, else nowhere: none is left out.
std::vector<Link> join_ends(const Graph& graph, std::vector<Link> told);

}  // namespace thalweg::impl::topology
