// SPDX-License-Identifier: Apache-2.0
#include "topology/processors.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <tuple>

#include "topology/machine.hpp"

namespace thalweg::impl {
namespace {

constexpr unsigned kMostNodes = 1024, kMostCaches = 10;

std::string first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

bool in(const cpu_set_t& set, unsigned cpu) { return CPU_ISSET(cpu, &set); }

template <class Each>
void each_cpu(const cpu_set_t& set, Each each) {
  for (unsigned cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (in(set, cpu)) each(cpu);
}

/// The processors that share the last cache of `cpu` with it.
cpu_set_t sharers(const std::string& folder) {
  int deepest = 0;
  std::string list;
  for (unsigned i = 0; i < kMostCaches; ++i) {
    const std::string cache = folder + "/cache/index" + std::to_string(i);
    const int level = std::atoi(first_line(cache + "/level").c_str());
    if (level <= deepest) continue;
    deepest = level;
    list = first_line(cache + "/shared_cpu_list");
  }
  return parse_cpu_list(list);
}

}  // namespace

const char* name_of(CpuDistance distance) {
  constexpr const char* kNames[] = {"core", "cache", "node", "far"};
  static_assert(std::size(kNames) == kCpuDistances);
  return kNames[static_cast<size_t>(distance)];
}

cpu_set_t parse_cpu_list(const std::string& text) {
  cpu_set_t set;
  CPU_ZERO(&set);
  const char* at = text.c_str();
  while (*at >= '0' && *at <= '9') {
    char* end = nullptr;
    const unsigned long first = std::strtoul(at, &end, 10);
    unsigned long last = first;
    if (*end == '-') last = std::strtoul(end + 1, &end, 10);
    for (unsigned long cpu = first; cpu <= last && cpu < CPU_SETSIZE; ++cpu) CPU_SET(cpu, &set);
    at = *end == ',' ? end + 1 : "";
  }
  return set;
}

const CpuTopology& CpuTopology::of_machine() {
  static const CpuTopology machine = read("/sys/devices/system");
  return machine;
}

const CpuTopology& CpuTopology::current() {
  const topology::Graph* graph = nullptr;
  if (is_error(topology::saved(&graph)) || graph == nullptr) return of_machine();
  static std::mutex lock;
  static auto* const all = new std::map<const topology::Graph*, std::unique_ptr<CpuTopology>>;  // until exit, as the graphs
  const std::lock_guard guard(lock);
  std::unique_ptr<CpuTopology>& found = (*all)[graph];
  if (found == nullptr) found = std::make_unique<CpuTopology>(of(*graph));
  return *found;
}

CpuTopology CpuTopology::of(const topology::Graph& graph) {
  using Kind = topology::NodeKind;
  const auto number = [](size_t node) { return node == topology::kNoNode ? -1 : static_cast<int>(node); };
  CpuTopology topology;
  topology.places_.resize(CPU_SETSIZE);
  cpu_set_t online;
  CPU_ZERO(&online);
  for (const size_t core : graph.all(Kind::core)) {
    for (const unsigned cpu : graph.nodes[core].processors) {
      Place& place = topology.places_[cpu];
      place = {number(core), number(graph.around(core, Kind::cache)), number(graph.around(core, Kind::numa))};
      CPU_SET(cpu, &online);
    }
  }
  topology.all_ = topology.distances(online);
  return topology;
}

/// One file per core and per cache, not per processor: the first of them lists the processors that share it.
CpuTopology CpuTopology::read(const std::string& root) {
  CpuTopology topology;
  const cpu_set_t online = parse_cpu_list(first_line(root + "/cpu/online"));
  topology.places_.resize(CPU_SETSIZE);
  const auto give = [&](const cpu_set_t& set, int Place::*what, unsigned number) {
    each_cpu(set, [&](unsigned cpu) {
      if (topology.places_[cpu].*what < 0) topology.places_[cpu].*what = static_cast<int>(number);
    });
  };
  bool nodes = false;
  for (unsigned node = 0; node < kMostNodes; ++node) {
    const std::string list = first_line(root + "/node/node" + std::to_string(node) + "/cpulist");
    give(parse_cpu_list(list), &Place::node, node);
    nodes = nodes || !list.empty();
    if (list.empty() && node >= 64) break;  // numbers may have gaps
  }
  each_cpu(online, [&](unsigned cpu) {
    const std::string folder = root + "/cpu/cpu" + std::to_string(cpu);
    Place& place = topology.places_[cpu];
    if (place.core < 0) give(parse_cpu_list(first_line(folder + "/topology/thread_siblings_list")), &Place::core, cpu);
    if (place.cache < 0) give(sharers(folder), &Place::cache, cpu);
    if (nodes) return;
    const std::string package = first_line(folder + "/topology/physical_package_id");
    if (!package.empty()) place.node = std::atoi(package.c_str());
  });
  topology.all_ = topology.distances(online);
  return topology;
}

const CpuTopology::Place& CpuTopology::place(unsigned cpu) const {
  static const Place kUnknown;
  return cpu < places_.size() ? places_[cpu] : kUnknown;
}

/// Processors without cache information count as sharing one cache.
CpuDistance CpuTopology::between(unsigned one, unsigned other) const {
  const Place &a = place(one), &b = place(other);
  if (a.cache == b.cache) return a.core >= 0 && a.core == b.core ? CpuDistance::core : CpuDistance::cache;
  return a.node == b.node ? CpuDistance::node : CpuDistance::far;
}

/// Pairs of different processors. By groups, because machines have hundreds of them.
CpuTopology::Count CpuTopology::count(const cpu_set_t& one, const cpu_set_t& other) const {
  struct Members {
    uint64_t of_one = 0, of_other = 0;
  };
  using Group = std::tuple<int, int, int>;
  std::map<Group, Members> cores, caches, nodes_of_caches, nodes;
  uint64_t all[2] = {0, 0}, same = 0;
  each_cpu(one, [&](unsigned cpu) {
    const Place& at = place(cpu);
    ++cores[{at.cache, at.core, at.core < 0 ? static_cast<int>(cpu) : -1}].of_one;
    ++caches[{at.cache, 0, 0}].of_one;
    ++nodes_of_caches[{at.cache, at.node, 0}].of_one;
    ++nodes[{at.node, 0, 0}].of_one;
    ++all[0];
    same += in(other, cpu) ? 1 : 0;
  });
  each_cpu(other, [&](unsigned cpu) {
    const Place& at = place(cpu);
    ++cores[{at.cache, at.core, at.core < 0 ? static_cast<int>(cpu) : -1}].of_other;
    ++caches[{at.cache, 0, 0}].of_other;
    ++nodes_of_caches[{at.cache, at.node, 0}].of_other;
    ++nodes[{at.node, 0, 0}].of_other;
    ++all[1];
  });
  const auto pairs = [](const std::map<Group, Members>& groups) {
    uint64_t sum = 0;
    for (const auto& [group, members] : groups) sum += members.of_one * members.of_other;
    return sum;
  };
  const uint64_t in_core = pairs(cores), in_cache = pairs(caches), near = pairs(nodes) - pairs(nodes_of_caches);
  Count found;
  found.pairs[0] = in_core - same;
  found.pairs[1] = in_cache - in_core;
  found.pairs[2] = near;
  found.pairs[3] = all[0] * all[1] - in_cache - near;
  return found;
}

uint32_t CpuTopology::distances(const cpu_set_t& allowed) const {
  const Count found = count(allowed, allowed);
  uint32_t bits = 0;
  for (size_t i = 0; i < kCpuDistances; ++i)
    if (found.pairs[i] != 0) bits |= 1u << i;
  return bits;
}

bool CpuTopology::usual(const cpu_set_t& one, const cpu_set_t& other, CpuDistance* out) const {
  const Count found = count(one, other);
  const uint64_t most = *std::max_element(std::begin(found.pairs), std::end(found.pairs));
  for (size_t i = 0; i < kCpuDistances && most != 0; ++i) {
    if (found.pairs[i] * 10 < most * 9) continue;
    *out = static_cast<CpuDistance>(i);
    return true;
  }
  return false;
}

bool CpuTopology::pair_at(CpuDistance distance, const cpu_set_t& allowed, unsigned near, unsigned* first,
                          unsigned* second) const {
  const auto partner = [&](unsigned cpu) {
    for (unsigned step = 1; step < CPU_SETSIZE; ++step) {
      const unsigned other = (cpu + step) % CPU_SETSIZE;
      if (!in(allowed, other) || between(cpu, other) != distance) continue;
      *first = cpu;
      *second = other;
      return true;
    }
    return false;
  };
  if (near < CPU_SETSIZE && in(allowed, near) && partner(near)) return true;
  for (unsigned cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (in(allowed, cpu) && partner(cpu)) return true;
  return false;
}

cpu_set_t measuring_processors() {
  cpu_set_t own;
  CPU_ZERO(&own);
  if (sched_getaffinity(0, sizeof own, &own) != 0 || CPU_COUNT(&own) != 1) return own;
  cpu_set_t all = own;
  const auto widen = [&] {  // a thread's own affinity: the kernel reduces it to the cpuset
    cpu_set_t every;
    std::memset(&every, 0xff, sizeof every);
    if (sched_setaffinity(0, sizeof every, &every) == 0) (void)sched_getaffinity(0, sizeof all, &all);
  };
  try {
    std::thread(widen).join();
  } catch (const std::system_error&) {
    return own;
  }
  const cpu_set_t isolated = parse_cpu_list(first_line("/sys/devices/system/cpu/isolated"));
  for (size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &isolated) && !CPU_ISSET(cpu, &own)) CPU_CLR(cpu, &all);
  return all;
}

}  // namespace thalweg::impl
