// SPDX-License-Identifier: Apache-2.0
#include "devices/topology_reach.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "devices/registry.hpp"
#include "topology/distance.hpp"
#include "topology/machine.hpp"

namespace thalweg::impl {
namespace {

using topology::Reach;

std::string hex(const Uuid& uuid) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : uuid) text += {kDigits[byte >> 4], kDigits[byte & 15]};
  return text;
}

/// By its GPUs' numbers, of each two: looked at once, because kernels of emulated devices ask at every access.
class ReachTable {
 public:
  explicit ReachTable(const topology::Graph& graph) : graph_(graph), gpus_(graph.all(topology::NodeKind::gpu)) {
    for (const size_t from : gpus_)
      for (const size_t to : gpus_)
        reach_.push_back(from == to ? Reach{Reach::By::nvlink, ""} : reach_between(graph, from, to));
  }
  /// Null: a device that the file does not have.
  const Reach* find(const DeviceId& from, const DeviceId& to) const {
    const size_t one = number(from), other = number(to);
    return one < gpus_.size() && other < gpus_.size() ? &reach_[one * gpus_.size() + other] : nullptr;
  }

 private:
  size_t number(const DeviceId& device) const {
    const size_t node = gpu_of(graph_, device);
    return node == topology::kNoNode ? SIZE_MAX : graph_.nodes[node].number;
  }
  const topology::Graph& graph_;
  const std::vector<size_t> gpus_;
  std::vector<Reach> reach_;
};

const Reach* reach_of(const DeviceId& from, const DeviceId& to) {
  const topology::Graph* graph = nullptr;
  if (is_error(topology::saved(&graph)) || graph == nullptr) return nullptr;  // an error ended the context's creation
  static std::mutex lock;
  static auto* const tables = new std::map<const topology::Graph*, std::unique_ptr<ReachTable>>;  // until exit, as the graphs
  const std::lock_guard guard(lock);
  std::unique_ptr<ReachTable>& table = (*tables)[graph];
  if (table == nullptr) table = std::make_unique<ReachTable>(*graph);
  return table->find(from, to);
}

struct Addresses {
  std::mutex lock;
  std::map<Uuid, std::string> of;
};
Addresses& addresses() {
  static auto* const all = new Addresses;  // until exit
  return *all;
}

}  // namespace

void set_pci_address(const Uuid& device, const std::string& address) {
  const std::lock_guard guard(addresses().lock);
  addresses().of[device] = address;
}

std::string pci_address_of(const Uuid& device) {
  const std::lock_guard guard(addresses().lock);
  const auto found = addresses().of.find(device);
  return found == addresses().of.end() ? "" : found->second;
}

size_t gpu_of(const topology::Graph& graph, const DeviceId& device) {
  const std::string digits = hex(device.uuid), address = pci_address_of(device.uuid);
  size_t by_number = topology::kNoNode, by_address = topology::kNoNode;
  bool named = false;
  for (const size_t gpu : graph.all(topology::NodeKind::gpu)) {
    const topology::Node& node = graph.nodes[gpu];
    if (node.uuid == digits) return gpu;
    named = named || !node.uuid.empty();
    if (!address.empty() && node.pci == address) by_address = gpu;
    if (node.number == device.ordinal) by_number = gpu;
  }
  return by_address != topology::kNoNode ? by_address : named ? topology::kNoNode : by_number;
}

PeerAccess limited_by_topology(const PeerAccess& given, const DeviceId& from, const DeviceId& to) {
  const Reach* const reach = given.access ? reach_of(from, to) : nullptr;
  if (reach == nullptr || reach->by == Reach::By::unknown || reach->by == Reach::By::nvlink) return given;
  if (reach->by == Reach::By::nothing) return {};
  return {true, false, DeviceLink::pcie};
}

PeerAccess played_by_topology(const PeerAccess& given, const DeviceId& from, const DeviceId& to) {
  PeerAccess left = limited_by_topology(given, from, to);
  const Reach* const reach = left.access ? reach_of(from, to) : nullptr;
  if (reach != nullptr && reach->by == Reach::By::nvlink) left.link = DeviceLink::nvlink;
  return left;
}

const char* why_limited_by_topology(const DeviceId& from, const DeviceId& to) {
  const Reach* const reach = reach_of(from, to);
  const bool limits = reach != nullptr && (reach->by == Reach::By::nothing || reach->by == Reach::By::pcie);
  return limits && !reach->why.empty() ? reach->why.c_str() : nullptr;
}

const char* what_is_down_in_topology(const DeviceId& from, const DeviceId& to) {
  const Reach* const reach = reach_of(from, to);
  return reach != nullptr && reach->by == Reach::By::nvlink && !reach->why.empty() ? reach->why.c_str() : nullptr;
}

const char* why_no_peer_access(const Device& from, const Uuid& to) {
  const Device* const there = find_device(to);
  const char* const why = there == nullptr ? nullptr : why_limited_by_topology(id_of(from), id_of(*there));
  return why != nullptr ? why : "there is no peer access between the two devices";
}

}  // namespace thalweg::impl
