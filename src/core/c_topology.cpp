// SPDX-License-Identifier: Apache-2.0
// C interface: the topology, placement of ranks, distances.
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "core/c_checks.hpp"
#include "devices/place.hpp"
#include "devices/registry.hpp"
#include "devices/topology_reach.hpp"
#include "topology/distance.hpp"
#include "topology/format.hpp"
#include "topology/json_value.hpp"
#include "topology/machine.hpp"
#include "topology/placement.hpp"

using namespace thalweg::impl;

namespace {

using topology::kNoNode;
using topology::NodeKind;

constexpr uint32_t kMostRanks = 65536;
static_assert(TW_PROCESSOR_WORDS * 64 == topology::kMostProcessors && topology::kMostProcessors == CPU_SETSIZE);

/// Devices of this process with their nodes.
using Devices = std::vector<std::pair<const Device*, size_t>>;
Devices devices_in(const topology::Graph& graph) {
  open_backends();
  Devices found;
  for (const Device* device : list_devices(nullptr))
    if (const size_t node = gpu_of(graph, id_of(*device)); node != kNoNode) found.emplace_back(device, node);
  return found;
}

/// Of a saved topology all processors; of this machine's those that this process has. GPUs that it does not see are not for its ranks,
/// unless it sees none at all: then they are those that others see.
topology::Usable usable(const topology::Graph& graph, const Devices& devices) {
  topology::Usable all = topology::all_of(graph);
  cpu_set_t own;
  if (graph.file.empty() && sched_getaffinity(0, sizeof own, &own) == 0)
    std::erase_if(all.processors, [&](unsigned processor) { return !CPU_ISSET(processor, &own); });
  if (devices.empty()) return all;
  std::erase_if(all.gpus, [&](size_t gpu) {
    return std::none_of(devices.begin(), devices.end(), [&](const auto& one) { return one.second == gpu; });
  });
  return all;
}

/// All ranks' places are made at once, and launchers ask for one after the other: the last ones are kept.
topology::RankPlace place_of(const topology::Graph& graph, const topology::Usable& all, uint32_t rank, uint32_t ranks) {
  static std::mutex lock;
  static struct {
    const topology::Graph* graph = nullptr;
    topology::Usable usable;
    std::vector<topology::RankPlace> places;
  } last;
  const std::lock_guard guard(lock);
  if (last.graph != &graph || last.places.size() != ranks || !(last.usable == all)) {
    last.places = place_ranks(graph, all, ranks);
    last.usable = all;
    last.graph = &graph;
  }
  return last.places[rank];
}

template <size_t kRoom>
void put_text(char (&to)[kRoom], const std::string& text) {
  const std::string plain = topology::plain_text(text, kRoom - 1);  // cut between characters: readers decode it
  std::memcpy(to, plain.c_str(), plain.size() + 1);
}

int32_t number_of(const topology::Graph& graph, size_t node) {
  return node == kNoNode ? -1 : static_cast<int32_t>(graph.nodes[node].number);
}

tw_placement placement_of(const topology::Graph& graph, const Devices& devices, const topology::RankPlace& place) {
  tw_placement said = TW_PLACEMENT_INIT;
  said.gpu = number_of(graph, place.gpu);
  said.numa = number_of(graph, place.numa);
  said.shared = place.shared;
  put_text(said.place, "host");
  for (const auto& [device, node] : devices) {
    if (node != place.gpu) continue;
    said.device = static_cast<int32_t>(device->ordinal());
    put_text(said.place, std::string(device->name()) + ":" + std::to_string(device->ordinal()));
  }
  if (place.nic != kNoNode) put_text(said.nic, graph.nodes[place.nic].name);
  for (const unsigned processor : place.processors) said.processors[processor / 64] |= uint64_t{1} << processor % 64;
  return said;
}

/// As many bytes as the caller's struct has.
template <class T>
Status give(const T& all, T* to) {
  const size_t room = to->size;
  std::memcpy(static_cast<void*>(to), &all, std::min(room, sizeof all));
  to->size = room;
  return TW_OK;
}

/// "machine, package:0-1, gpu:0-7"
std::string names_in(const topology::Graph& graph) {
  std::string names = "machine";
  for (size_t i = 1; i < topology::kNodeKinds; ++i) {
    const auto kind = static_cast<NodeKind>(i);
    const size_t count = graph.count(kind);
    if (count == 0) continue;
    names += std::string(", ") + name_of(kind) + ":0" + (count > 1 ? "-" + std::to_string(count - 1) : "");
  }
  return names + ", processor:N";
}

Status find_node(const topology::Graph& graph, const char* name, size_t* out) {
  *out = name == nullptr ? kNoNode : graph.find(name);
  if (*out != kNoNode) return TW_OK;
  return fail(TW_ERR_INVALID, "the topology has no node \"%.64s\"; it has %s", name == nullptr ? "NULL" : name,
              names_in(graph).c_str());
}

}  // namespace

extern "C" {

tw_status tw_topology_json(char* buffer, size_t* size) {
  const topology::Graph* graph = nullptr;
  if (Status s = topology::current(&graph); is_error(s)) return s;
  const std::string text = topology::format_graph(*graph);
  return copy_out(text.c_str(), text.size() + 1, buffer, size);
}

tw_status tw_topology_place(uint32_t rank, uint32_t ranks, tw_placement* placement) {
  if (placement == nullptr || placement->size < sizeof(size_t))
    return fail(TW_ERR_INVALID, "a placement needs a tw_placement that begins as TW_PLACEMENT_INIT");
  if (rank >= ranks || ranks > kMostRanks)
    return fail(TW_ERR_INVALID, "rank %u of %u is not placed: ranks are numbered from 0, and %u are the most", rank, ranks,
                kMostRanks);
  const topology::Graph* graph = nullptr;
  if (Status s = topology::current(&graph); is_error(s)) return s;
  const Devices devices = devices_in(*graph);
  return give(placement_of(*graph, devices, place_of(*graph, usable(*graph, devices), rank, ranks)), placement);
}

tw_status tw_topology_distance(const char* from, const char* to, tw_distance* distance) {
  if (distance == nullptr || distance->size < sizeof(size_t))
    return fail(TW_ERR_INVALID, "a distance needs a tw_distance that begins as TW_DISTANCE_INIT");
  const topology::Graph* graph = nullptr;
  if (Status s = topology::current(&graph); is_error(s)) return s;
  size_t one = kNoNode, other = kNoNode;
  if (Status s = find_node(*graph, from, &one); is_error(s)) return s;
  if (Status s = find_node(*graph, to, &other); is_error(s)) return s;
  const topology::Distance found = distance_between(*graph, one, other);
  tw_distance said = TW_DISTANCE_INIT;
  const bool threads = one == other && std::strncmp(from, "processor:", 10) == 0 && std::strcmp(from, to) != 0;
  put_text(said.kind, threads ? "core" : found.kind);
  said.hops = found.hops;
  said.links = found.nvlinks.up;
  said.links_down = found.nvlinks.down;
  said.bandwidth = found.bandwidth;
  put_text(said.path, path_text(*graph, found.path));
  put_text(said.note, found.note);
  return give(said, distance);
}

}  // extern "C"
