// SPDX-License-Identifier: Apache-2.0
// Saved topologies: whatever is taken is whole, is written as it was read, and may be asked everything. Inputs are whole texts, and
// nodes and links behind a good head, so that they reach the checks of both.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "topology/distance.hpp"
#include "topology/format.hpp"
#include "topology/placement.hpp"

using namespace thalweg::impl;

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void ask(const topology::Graph& graph) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const topology::Node& node = graph.nodes[i];
    require(i == 0 ? node.parent == topology::kNoNode : node.parent < i);
    require(graph.find(graph.id(i)) == i);
  }
  for (const topology::Link& link : graph.links) {
    const bool lost = link.kind == topology::LinkKind::nvlink && link.to == topology::kNoNode;
    require(link.from < graph.nodes.size() && (lost || link.to < graph.nodes.size()));
  }
  const size_t last = graph.nodes.size() - 1;
  const topology::Distance distance = distance_between(graph, 0, last);
  require(!distance.path.empty() && distance.path.front() == 0 && distance.path.back() == last);
  const std::vector<topology::RankPlace> places = place_ranks(graph, all_of(graph), 3);
  require(places.size() == 3);
  for (const topology::RankPlace& place : places) require(place.processors.empty() == all_of(graph).processors.empty());
}

void read(const std::string& text) {
  topology::Graph graph, again;
  if (is_error(parse_graph(text, "F", &graph))) {
    require(graph.nodes.empty() && std::string(last_error()).starts_with("F:"));
    return;
  }
  const std::string once = format_graph(graph);
  require(parse_graph(once, "F", &again) == TW_OK && format_graph(again) == once);
  if (graph.nodes.size() < 200) ask(graph);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string given(reinterpret_cast<const char*>(data), size);
  read(given);
  const std::string head = R"({"format": "thalweg topology 1", "nodes": [{"id": "machine"}, )";
  read(head + given + "]}");
  read(
      head +
      R"({"id": "numa:0", "parent": "machine"}, {"id": "gpu:0", "parent": "numa:0"}, {"id": "gpu:1", "parent": "numa:0"}], "links": [)" +
      given + "]}");
  return 0;
}
