// SPDX-License-Identifier: Apache-2.0
// Topologies as text, "thalweg topology 1" (docs/topology.md): what tw_topology_json gives and THALWEG_TOPOLOGY names.
#pragma once
#include <string>
#include <string_view>

#include "base/status.hpp"
#include "topology/graph.hpp"

namespace thalweg::impl::topology {

inline constexpr size_t kMostFileBytes = 8u << 20, kMostNodes = 8192, kMostLinks = 32768;

std::string format_graph(const Graph& graph);

/// `file` is for messages: "FILE:3:17: what is wrong; what to do". TW_ERR_INVALID leaves *out as it was. The text may be anybody's.
Status parse_graph(std::string_view text, const std::string& file, Graph* out);

/// The same of a file, which Graph::file names then. TW_ERR_IO: it cannot be read.
Status read_graph(const std::string& file, Graph* out);

}  // namespace thalweg::impl::topology
