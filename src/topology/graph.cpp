// SPDX-License-Identifier: Apache-2.0
#include "topology/graph.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace thalweg::impl::topology {

const char* name_of(NodeKind kind) {
  constexpr const char* kNames[] = {"machine", "package", "numa", "cache", "core",
                                    "bridge",  "switch",  "gpu",  "nic",   "nvswitch"};
  static_assert(std::size(kNames) == kNodeKinds);
  return kNames[static_cast<size_t>(kind)];
}

const char* name_of(LinkKind kind) {
  constexpr const char* kNames[] = {"pcie", "nvlink", "memory", "socket"};
  static_assert(std::size(kNames) == kLinkKinds);
  return kNames[static_cast<size_t>(kind)];
}

const char* name_of(Source source) {
  constexpr const char* kNames[] = {"unknown", "standard", "driver", "file"};
  static_assert(std::size(kNames) == static_cast<size_t>(Source::count_));
  return kNames[static_cast<size_t>(source)];
}

const char* name_of(PeerStatus status) {
  constexpr const char* kNames[] = {"",
                                    "ok",
                                    "chipset not supported",
                                    "GPU not supported",
                                    "IOH topology not supported",
                                    "disabled by registry key",
                                    "not supported",
                                    "unknown"};
  static_assert(std::size(kNames) == static_cast<size_t>(PeerStatus::count_));
  return kNames[static_cast<size_t>(status)];
}

const char* name_of(PeerUse use) {
  constexpr const char* kNames[] = {"read", "write", "nvlink", "atomics"};
  static_assert(std::size(kNames) == kPeerUses);
  return kNames[static_cast<size_t>(use)];
}

/// Transfers per second and lane by their encoding: 8b/10b, from generation 3 on 128b/130b, then flits of 242 in 256 bytes.
double pcie_bandwidth(unsigned generation, unsigned lanes) {
  constexpr double kOfLane[] = {
      0, 250e6, 500e6, 8e9 / 8 * 128 / 130, 16e9 / 8 * 128 / 130, 32e9 / 8 * 128 / 130, 64e9 / 8 * 242 / 256};
  return generation < std::size(kOfLane) ? std::floor(kOfLane[generation] * lanes) : 0;  // whole, so that equal sums are equal
}

double nvlink_bandwidth(unsigned version) {
  constexpr double kOfLink[] = {0, 20e9, 25e9, 25e9, 25e9, 50e9};
  return version < std::size(kOfLink) ? kOfLink[version] : 0;
}

size_t Graph::add(NodeKind kind, size_t parent) {
  Node node;
  node.kind = kind;
  node.parent = parent;
  node.number = static_cast<unsigned>(count(kind));
  nodes.push_back(std::move(node));
  return nodes.size() - 1;
}

std::string Graph::id(size_t node) const {
  const Node& at = nodes[node];
  return at.kind == NodeKind::machine ? name_of(at.kind) : name_of(at.kind) + (":" + std::to_string(at.number));
}

size_t Graph::find(std::string_view id) const {
  if (id == "machine") return nodes.empty() ? kNoNode : 0;
  const size_t colon = id.find(':');
  if (colon == std::string_view::npos) return kNoNode;
  const std::string_view kind = id.substr(0, colon), digits = id.substr(colon + 1);
  unsigned number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size()) return kNoNode;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const Node& node = nodes[i];
    if (kind == "processor" && std::binary_search(node.processors.begin(), node.processors.end(), number)) return i;
    if (node.number == number && node.kind != NodeKind::machine && kind == name_of(node.kind)) return i;
  }
  return kNoNode;
}

std::vector<size_t> Graph::all(NodeKind kind) const {
  std::vector<size_t> found;
  for (size_t i = 0; i < nodes.size(); ++i)
    if (nodes[i].kind == kind) found.push_back(i);
  return found;
}

size_t Graph::count(NodeKind kind) const {
  return static_cast<size_t>(std::count_if(nodes.begin(), nodes.end(), [&](const Node& one) { return one.kind == kind; }));
}

size_t Graph::around(size_t node, NodeKind kind) const {
  while (node != kNoNode && nodes[node].kind != kind) node = nodes[node].parent;
  return node;
}

bool Graph::contains(size_t outer, size_t inner) const {
  while (inner != kNoNode && inner != outer) inner = nodes[inner].parent;
  return inner == outer;
}

size_t Graph::common(size_t one, size_t other) const {
  while (!contains(one, other)) one = nodes[one].parent;
  return one;
}

const Link* Graph::upward(size_t node) const {
  for (const Link& link : links) {
    const bool tree = link.kind == LinkKind::pcie || link.kind == LinkKind::memory;
    if (tree && link.from == node && link.to == nodes[node].parent) return &link;
  }
  return nullptr;
}

std::string format_list(const std::vector<unsigned>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += std::to_string(numbers[i]);
    if (last > i) text += '-' + std::to_string(numbers[last]);
    i = last + 1;
  }
  return text;
}

bool parse_list(std::string_view text, std::vector<unsigned>* out) {
  out->clear();
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto number = [&](unsigned* value) {
    const auto [next, error] = std::from_chars(at, end, *value);
    at = next;
    return error == std::errc() && *value < kMostProcessors;
  };
  while (at < end) {
    unsigned first = 0, last = 0;
    if (!number(&first)) return false;
    last = first;
    if (at < end && *at == '-' && (++at, !number(&last))) return false;
    if (last < first || (!out->empty() && first <= out->back())) return false;
    for (unsigned i = first; i <= last; ++i) out->push_back(i);
    if (at == end) return true;
    if (*at++ != ',') return false;
  }
  return text.empty();
}

}  // namespace thalweg::impl::topology
