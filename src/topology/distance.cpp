// SPDX-License-Identifier: Apache-2.0
// Paths are the fewest links, of equally many the widest. GPUs and network cards pass nothing on; NVSwitches do. The machine itself
// is on a path only where no link between its sockets is known.
#include "topology/distance.hpp"

#include <algorithm>
#include <limits>
#include <queue>

namespace thalweg::impl::topology {
namespace {

using Kind = NodeKind;
constexpr double kUnlimited = std::numeric_limits<double>::infinity();

struct Edge {
  size_t to = kNoNode;
  double bandwidth = kUnlimited;
};
using Edges = std::vector<std::vector<Edge>>;

bool is_processing(Kind kind) {
  return kind == Kind::package || kind == Kind::numa || kind == Kind::cache || kind == Kind::core;
}

/// NVLinks side by side are one edge.
Edges edges_of(const Graph& graph, bool with_machine) {
  Edges edges(graph.nodes.size());
  const auto join = [&](size_t one, size_t other, double bandwidth) {
    const auto find = [&](size_t from, size_t to) {
      auto& list = edges[from];
      return std::find_if(list.begin(), list.end(), [&](const Edge& edge) { return edge.to == to; });
    };
    if (const auto found = find(one, other); found != edges[one].end()) {
      found->bandwidth += bandwidth;
      find(other, one)->bandwidth += bandwidth;
      return;
    }
    edges[one].push_back({other, bandwidth});
    edges[other].push_back({one, bandwidth});
  };
  std::vector<bool> linked(graph.nodes.size());
  for (const Link& link : graph.links) {
    if (!link.up || link.to == kNoNode) continue;
    join(link.from, link.to, link.bandwidth == 0 ? kUnlimited : link.bandwidth);
    if (link.kind == LinkKind::pcie || link.kind == LinkKind::memory) linked[link.from] = true;
  }
  for (size_t i = 1; i < graph.nodes.size(); ++i) {
    const size_t parent = graph.nodes[i].parent;
    if (!linked[i] && (parent != 0 || with_machine || !is_processing(graph.nodes[i].kind))) join(i, parent, kUnlimited);
  }
  return edges;
}

/// False: there is none.
bool find_path(const Graph& graph, const Edges& edges, size_t from, size_t to, Distance* out) {
  struct Best {
    unsigned hops = UINT32_MAX;
    double width = 0;
    size_t before = kNoNode;
  };
  std::vector<Best> best(graph.nodes.size());
  best[from] = {0, kUnlimited, kNoNode};
  std::queue<size_t> open;
  for (open.push(from); !open.empty(); open.pop()) {
    const size_t at = open.front();
    const Kind kind = graph.nodes[at].kind;
    if (at != from && (kind == Kind::gpu || kind == Kind::nic)) continue;
    for (const Edge& edge : edges[at]) {
      const Best next{best[at].hops + 1, std::min(best[at].width, edge.bandwidth), at};
      Best& known = best[edge.to];
      if (known.hops < next.hops || (known.hops == next.hops && known.width >= next.width)) continue;
      if (known.hops == UINT32_MAX) open.push(edge.to);  // of equally many links all have been seen before it is looked at
      known = next;
    }
  }
  if (best[to].hops == UINT32_MAX) return false;
  out->hops = best[to].hops;
  out->bandwidth = best[to].width == kUnlimited ? 0 : best[to].width;
  for (size_t at = to; at != kNoNode; at = best[at].before) out->path.push_back(at);
  std::reverse(out->path.begin(), out->path.end());
  return true;
}

std::string kind_of_cores(const Graph& graph, size_t one, size_t other) {
  const size_t cache = graph.around(one, Kind::cache), node = graph.around(one, Kind::numa);
  if (one == other) return "core";
  if (cache == graph.around(other, Kind::cache)) return "cache";  // also where none is known, as CpuTopology has it
  return node == graph.around(other, Kind::numa) ? "node" : "far";
}

/// By what contains both, without NVLinks.
std::string kind_by_tree(const Graph& graph, size_t one, size_t other) {
  const Kind a = graph.nodes[one].kind, b = graph.nodes[other].kind;
  if (a == Kind::core && b == Kind::core) return kind_of_cores(graph, one, other);
  const size_t both = graph.common(one, other);
  const bool near = graph.around(both, Kind::numa) != kNoNode || graph.count(Kind::numa) < 2;
  if (is_processing(a) && is_processing(b)) return near ? "node" : "far";
  if (graph.nodes[both].kind == Kind::bridge) return "PHB";
  if (graph.nodes[both].kind != Kind::pcie_switch) return near ? "NODE" : "SYS";
  unsigned switches = 1;
  for (size_t end : {one, other})
    for (; end != both; end = graph.nodes[end].parent) switches += graph.nodes[end].kind == Kind::pcie_switch ? 1 : 0;
  return switches == 1 ? "PIX" : "PXB";
}

std::string count_text(unsigned down, unsigned all, const std::string& one, const std::string& other) {
  const std::string between = " between " + one + " and " + other;
  if (all == down)
    return all == 1 ? "NVLink" + between + " is down" : "all " + std::to_string(all) + " NVLinks" + between + " are down";
  return std::to_string(down) + " of " + std::to_string(all) + " NVLinks" + between + (down == 1 ? " is down" : " are down");
}

/// NVLinks of a GPU that are down and do not say where they lead.
std::string lost_text(const Graph& graph, size_t gpu) {
  const auto lost = std::count_if(graph.links.begin(), graph.links.end(), [&](const Link& link) {
    return link.kind == LinkKind::nvlink && link.from == gpu && link.to == kNoNode && !link.up;
  });
  if (lost == 0) return "";
  return std::to_string(lost) + (lost == 1 ? " NVLink of " : " NVLinks of ") + graph.id(gpu) +
         (lost == 1 ? " is down and does not say where it leads" : " are down and do not say where they lead");
}

void add_note(const std::string& text, std::string* to) {
  if (!text.empty()) *to += (to->empty() ? "" : "; ") + text;
}

/// PCIe links of the path that have trained below what both ends could.
void note_narrow(const Graph& graph, Distance* out) {
  for (size_t i = 0; i + 1 < out->path.size(); ++i) {
    for (const size_t end : {out->path[i], out->path[i + 1]}) {
      const Link* const link = graph.upward(end);
      if (link == nullptr || link->kind != LinkKind::pcie || (link->to != out->path[i] && link->to != out->path[i + 1]))
        continue;
      if (link->lanes == 0 || link->lanes >= link->most_lanes) continue;
      add_note("PCIe of " + graph.id(end) + " has " + std::to_string(link->lanes) + " of " + std::to_string(link->most_lanes) +
                   " lanes",
               &out->note);
    }
  }
}

}  // namespace

NvLinks nvlinks_between(const Graph& graph, size_t one, size_t other) {
  struct Ends {
    NvLinks one, other;
  };
  NvLinks direct;
  std::vector<std::pair<size_t, Ends>> switches;
  const auto count = [](const Link& link, NvLinks* to) {
    to->up += link.up ? 1 : 0;
    to->down += link.up ? 0 : 1;
    to->bandwidth += link.up ? link.bandwidth : 0;
  };
  for (const Link& link : graph.links) {
    if (link.kind != LinkKind::nvlink || link.to == kNoNode) continue;
    if ((link.from == one && link.to == other) || (link.from == other && link.to == one)) count(link, &direct);
    const bool from = graph.nodes[link.from].kind == Kind::nvswitch;
    const size_t center = from ? link.from : link.to, end = from ? link.to : link.from;
    if (graph.nodes[center].kind != Kind::nvswitch || (end != one && end != other)) continue;
    auto found = std::find_if(switches.begin(), switches.end(), [&](const auto& entry) { return entry.first == center; });
    if (found == switches.end()) found = switches.insert(found, {center, Ends()});
    count(link, end == one ? &found->second.one : &found->second.other);
  }
  for (const auto& [center, ends] : switches) {
    const bool both = ends.one.up + ends.one.down > 0 && ends.other.up + ends.other.down > 0;
    if (!both) continue;
    direct.switched = true;
    direct.up += std::min(ends.one.up, ends.other.up);
    direct.down += std::max(ends.one.down, ends.other.down);
    direct.bandwidth += std::min(ends.one.bandwidth, ends.other.bandwidth);
  }
  return direct;
}

Distance distance_between(const Graph& graph, size_t from, size_t to) {
  Distance found;
  found.path = {from};
  found.kind = "X";
  if (from == to) return found;
  found.path.clear();
  if (!find_path(graph, edges_of(graph, false), from, to, &found))
    (void)find_path(graph, edges_of(graph, true), from, to, &found);
  found.nvlinks = nvlinks_between(graph, from, to);
  found.kind = kind_by_tree(graph, from, to);
  if (found.nvlinks.up > 0) {
    found.kind = "NV" + std::to_string(found.nvlinks.up);
    found.bandwidth = found.nvlinks.bandwidth;  // through all switches
  }
  const unsigned all = found.nvlinks.up + found.nvlinks.down;
  if (found.nvlinks.down > 0) found.note = count_text(found.nvlinks.down, all, graph.id(from), graph.id(to));
  const bool gpus = graph.nodes[from].kind == Kind::gpu && graph.nodes[to].kind == Kind::gpu;
  if (gpus && all == 0 && !graph.nvlinks_known)
    add_note("NVLinks are not known: there was no NVML to tell of them", &found.note);
  for (const size_t end : {from, to})
    if (gpus) add_note(lost_text(graph, end), &found.note);
  note_narrow(graph, &found);
  return found;
}

std::string path_text(const Graph& graph, const std::vector<size_t>& path) {
  std::string text;
  for (const size_t node : path) text += (text.empty() ? "" : " - ") + graph.id(node);
  return text;
}

/// PCIe carries peer access below one NUMA node; between nodes it is slow, or the chipset forbids it.
Reach reach_between(const Graph& graph, size_t from, size_t to) {
  const NvLinks links = nvlinks_between(graph, from, to);
  Reach reach;
  const std::string in = graph.file.empty() ? "" : " in " + graph.file;
  if (links.up > 0) {
    reach.by = Reach::By::nvlink;
    if (links.down > 0) reach.why = count_text(links.down, links.up + links.down, graph.id(from), graph.id(to)) + in;
    return reach;
  }
  if (links.down == 0 && !graph.nvlinks_known) return reach.by = Reach::By::unknown, reach;
  reach.why = links.down > 0 ? count_text(links.down, links.down, graph.id(from), graph.id(to)) + in
                             : "no NVLink joins " + graph.id(from) + " and " + graph.id(to) + in;
  for (const size_t end : {from, to})
    if (const std::string lost = lost_text(graph, end); links.down == 0 && !lost.empty()) reach.why += "; " + lost;
  const bool known = graph.around(from, Kind::numa) != kNoNode && graph.around(to, Kind::numa) != kNoNode;
  if (!known || kind_by_tree(graph, from, to) != "SYS") return reach.by = Reach::By::pcie, reach;
  reach.why += ", and they are on different NUMA nodes";
  return reach;
}

}  // namespace thalweg::impl::topology
