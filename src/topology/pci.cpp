// SPDX-License-Identifier: Apache-2.0
#include "topology/pci.hpp"

#include <algorithm>

namespace thalweg::impl::topology {
namespace {

constexpr unsigned kNvidia = 0x10de, kAmd = 0x1002;
constexpr unsigned kVga = 0x0300, k3d = 0x0302, kDisplay = 0x0380, kAccelerator = 0x1200, kOtherBridge = 0x0680,
                   kNetwork = 0x02;

bool is_wanted(const PciFunction& one) { return is_gpu(one) || is_card(one) || is_nvswitch(one); }

/// "0000:1b:00": functions of one slot are one card.
std::string slot(const PciFunction& one) { return one.address.substr(0, one.address.rfind('.')); }

class PciTree {
 public:
  PciTree(const std::vector<PciFunction>& all, const std::vector<std::pair<int, size_t>>& numa, Graph* graph)
      : all_(all), numa_(numa), graph_(*graph), children_(all.size()) {}

  void add() {
    std::vector<size_t> roots;
    for (size_t i = 0; i < all_.size(); ++i) (all_[i].parent == kNoNode ? roots : children_[all_[i].parent]).push_back(i);
    std::vector<std::string> hosts;
    for (const size_t root : roots)
      if (leads_to_any(root) && std::find(hosts.begin(), hosts.end(), all_[root].host) == hosts.end())
        hosts.push_back(all_[root].host);
    for (const std::string& host : hosts) {
      size_t bridge = kNoNode;
      for (const size_t root : roots) {
        if (all_[root].host != host || !leads_to_any(root)) continue;
        if (bridge == kNoNode) bridge = graph_.add(NodeKind::bridge, numa_of(all_[root].numa));
        descend(root, bridge, {});
      }
    }
    add_devices();
  }

 private:
  struct Found {
    size_t function, parent;
    PciLink link;
  };

  bool leads_to_any(size_t at) const {
    return is_wanted(all_[at]) ||
           std::any_of(children_[at].begin(), children_[at].end(), [&](size_t c) { return leads_to_any(c); });
  }

  size_t numa_of(int number) const {
    for (const auto& [of, node] : numa_)
      if (of == number) return node;
    return numa_.size() == 1 ? numa_[0].second : 0;
  }

  /// `narrow`: the narrowest link of the bridges above that are left out.
  void descend(size_t at, size_t parent, PciLink narrow) {
    const PciFunction& one = all_[at];
    narrow = narrower(narrow, one.link);
    if (is_wanted(one)) devices_.push_back({at, parent, narrow});
    std::vector<size_t> below;
    for (const size_t child : children_[at])
      if (leads_to_any(child)) below.push_back(child);
    const bool apart = std::any_of(below.begin(), below.end(), [&](size_t c) { return slot(all_[c]) != slot(all_[below[0]]); });
    if (!apart || switches_above(parent) >= kMostSwitches) {
      for (const size_t child : below) descend(child, parent, narrow);
      return;
    }
    const size_t joint = graph_.add(NodeKind::pcie_switch, parent);
    graph_.nodes[joint].pci = one.address;
    link_up(joint, narrow);
    for (const size_t child : below) descend(child, joint, {});
  }

  unsigned switches_above(size_t node) const {
    unsigned count = 0;
    for (; node != kNoNode; node = graph_.nodes[node].parent) count += graph_.nodes[node].kind == NodeKind::pcie_switch ? 1 : 0;
    return count;
  }

  static PciLink narrower(const PciLink& one, const PciLink& other) {
    const auto width = [](const PciLink& link) { return pcie_bandwidth(link.generation, link.lanes); };
    return width(one) == 0 || (width(other) != 0 && width(other) < width(one)) ? other : one;
  }

  void link_up(size_t node, const PciLink& of) {
    if (of.generation == 0 || of.lanes == 0) return;
    Link link;
    link.from = node;
    link.to = graph_.nodes[node].parent;
    link.generation = of.generation;
    link.lanes = of.lanes;
    link.most_generation = of.most_generation;
    link.most_lanes = of.most_lanes;
    link.bandwidth = pcie_bandwidth(of.generation, of.lanes);
    link.source = link.bandwidth == 0 ? Source::unknown : Source::standard;
    graph_.links.push_back(link);
  }

  /// Drivers number GPUs by address, too.
  void add_devices() {
    std::sort(devices_.begin(), devices_.end(),
              [&](const Found& a, const Found& b) { return all_[a.function].address < all_[b.function].address; });
    for (const Found& found : devices_) {
      const PciFunction& one = all_[found.function];
      const NodeKind kind = is_gpu(one) ? NodeKind::gpu : is_card(one) ? NodeKind::nic : NodeKind::nvswitch;
      const size_t node = graph_.add(kind, found.parent);
      graph_.nodes[node].pci = one.address;
      graph_.nodes[node].name = one.name;
      if (kind == NodeKind::nic) {
        graph_.nodes[node].speed = one.speed;
        graph_.nodes[node].up = one.up;
      }
      link_up(node, found.link);
    }
  }

  const std::vector<PciFunction>& all_;
  const std::vector<std::pair<int, size_t>>& numa_;
  Graph& graph_;
  std::vector<std::vector<size_t>> children_;
  std::vector<Found> devices_;
};

}  // namespace

/// A display of another maker is the console of the board's management processor.
bool is_gpu(const PciFunction& one) {
  const bool maker = one.vendor == kNvidia || one.vendor == kAmd;
  return one.type == k3d || one.type == kAccelerator || (maker && (one.type == kVga || one.type == kDisplay));
}

bool is_nvswitch(const PciFunction& one) { return one.vendor == kNvidia && one.type == kOtherBridge; }

bool is_card(const PciFunction& one) { return one.type >> 8 == kNetwork && !one.name.empty(); }

void add_pci(const std::vector<PciFunction>& all, const std::vector<std::pair<int, size_t>>& numa, Graph* graph) {
  PciTree(all, numa, graph).add();
}

}  // namespace thalweg::impl::topology
