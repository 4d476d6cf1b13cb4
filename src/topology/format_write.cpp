// SPDX-License-Identifier: Apache-2.0
// Writes topologies: one node or link a line, what is not known left out.
#include "base/json.hpp"
#include "topology/format.hpp"

namespace thalweg::impl::topology {
namespace {

void write_node(Json& json, const Graph& graph, size_t at) {
  const Node& node = graph.nodes[at];
  json.line();
  json.open(nullptr, '{');
  json.add("id", graph.id(at));
  if (node.parent != kNoNode) json.add("parent", graph.id(node.parent));
  if (!node.name.empty()) json.add("name", node.name);
  if (!node.pci.empty()) json.add("pci", node.pci);
  if (!node.uuid.empty()) json.add("uuid", node.uuid);
  if (node.memory != 0) json.add("memory", node.memory);
  if (node.speed != 0) json.add("speed", node.speed);
  if (!node.processors.empty()) json.add("processors", format_list(node.processors));
  if (!node.up) json.add("state", std::string("down"));
  json.close('}');
}

void write_number(Json& json, const char* name, uint64_t value) {
  if (value != 0) json.add(name, value);
}

void write_link(Json& json, const Graph& graph, const Link& link) {
  json.line();
  json.open(nullptr, '{');
  json.add("kind", std::string(name_of(link.kind)));
  json.add("from", graph.id(link.from));
  if (link.to != kNoNode) json.add("to", graph.id(link.to));
  if (link.bandwidth != 0) json.add("bandwidth", link.bandwidth);
  if (link.source != Source::unknown) json.add("source", std::string(name_of(link.source)));
  write_number(json, "generation", link.generation);
  write_number(json, "lanes", link.lanes);
  write_number(json, "most_generation", link.most_generation);
  write_number(json, "most_lanes", link.most_lanes);
  write_number(json, "version", link.version);
  if (link.kind == LinkKind::nvlink) json.add("port", uint64_t{link.port});
  write_number(json, "errors", link.errors);
  if (!link.up) json.add("state", std::string("down"));
  json.close('}');
}

void write_peers(Json& json, const Graph& graph, const Peers& peers) {
  json.line();
  json.open(nullptr, '{');
  json.add("from", graph.id(peers.from));
  json.add("to", graph.id(peers.to));
  for (size_t use = 0; use < kPeerUses; ++use) {
    if (peers.status[use] != PeerStatus::untold)
      json.add(name_of(static_cast<PeerUse>(use)), std::string(name_of(peers.status[use])));
  }
  json.close('}');
}

}  // namespace

std::string format_graph(const Graph& graph) {
  Json json;
  json.open(nullptr, '{');
  json.add("format", std::string("thalweg topology 1"));
  json.add("name", graph.name);
  json.add("source", graph.file.empty() ? graph.source : graph.file);
  if (!graph.nvlinks_known) json.add("nvlinks", std::string("unknown"));
  json.open("nodes", '[');
  for (size_t i = 0; i < graph.nodes.size(); ++i) write_node(json, graph, i);
  json.close(']');
  json.open("links", '[');
  for (const Link& link : graph.links) write_link(json, graph, link);
  json.close(']');
  if (!graph.peers.empty()) {
    json.open("peers", '[');
    for (const Peers& peers : graph.peers) write_peers(json, graph, peers);
    json.close(']');
  }
  json.close('}');
  return json.take() + "\n";
}

}  // namespace thalweg::impl::topology
