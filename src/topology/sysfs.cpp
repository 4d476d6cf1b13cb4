// SPDX-License-Identifier: Apache-2.0
#include "topology/sysfs.hpp"

#include <algorithm>
#include <bitset>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

namespace thalweg::impl::topology {
namespace {

namespace fs = std::filesystem;
constexpr unsigned kMostCaches = 10;
constexpr size_t kMostFunctions = 8192;

std::string first_line(const fs::path& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

/// 0: none.
unsigned long number_of(const fs::path& path, int base = 10) { return std::strtoul(first_line(path).c_str(), nullptr, base); }

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    names.push_back(at->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// "0000:1b:00.0": hexadecimal but for its marks, which are at their places from the end.
bool is_address(std::string_view name) {
  if (name.size() < 12 || name.size() > 16 || name[name.size() - 2] != '.' || name[name.size() - 5] != ':') return false;
  if (name[name.size() - 8] != ':') return false;
  return name.find_first_not_of("0123456789abcdef:.") == std::string_view::npos;
}

/// The number that a text begins with, in whatever locale the program is; 0: none.
double decimal_of(const std::string& text) {
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

/// "16.0 GT/s PCIe"
unsigned generation_of(const std::string& speed) {
  constexpr double kSpeeds[] = {2.5, 5, 8, 16, 32, 64};
  const double value = decimal_of(speed);
  for (unsigned i = 0; i < std::size(kSpeeds); ++i)
    if (value == kSpeeds[i]) return i + 1;
  return 0;
}

/// Idle devices train to lower speeds, so the speed is what both ends could; the number of lanes is what they have.
PciLink link_of(const fs::path& function) {
  PciLink link;
  link.lanes = static_cast<unsigned>(number_of(function / "current_link_width"));
  link.most_lanes = static_cast<unsigned>(number_of(function / "max_link_width"));
  link.most_generation = generation_of(first_line(function / "max_link_speed"));
  if (link.lanes == 0 || link.lanes > 32 || link.most_lanes > 32 || link.most_generation == 0) return {};
  std::error_code error;
  const fs::path above = fs::canonical(function, error).parent_path();
  if (error) return {};
  const unsigned there = generation_of(first_line(above / "max_link_speed"));
  const auto lanes = static_cast<unsigned>(number_of(above / "max_link_width"));
  if (there != 0) link.most_generation = std::min(link.most_generation, there);
  if (lanes != 0 && lanes <= 32) link.most_lanes = std::min(link.most_lanes, lanes);
  link.generation = link.most_generation;
  return link;
}

struct Card {
  std::string name;
  double speed = 0;
  bool up = true;
};

/// Network cards by the address of their function: interfaces, then devices for verbs, whose names users of them know.
std::map<std::string, Card> cards_of(const fs::path& root) {
  std::map<std::string, Card> cards;
  const auto address_of = [](const fs::path& link) {
    std::error_code error;
    std::string last;
    for (const fs::path& part : fs::canonical(link, error))
      if (is_address(part.string())) last = part.string();
    return last;
  };
  for (const std::string& name : names_in(root / "class/net")) {
    const fs::path folder = root / "class/net" / name;
    const std::string address = address_of(folder), state = first_line(folder / "operstate");
    const long megabits = std::strtol(first_line(folder / "speed").c_str(), nullptr, 10);
    if (!address.empty() && cards.find(address) == cards.end())
      cards[address] = {name, megabits > 0 ? static_cast<double>(megabits) * 1e6 / 8 : 0, state != "down"};
  }
  for (const std::string& name : names_in(root / "class/infiniband")) {
    const fs::path folder = root / "class/infiniband" / name, port = folder / "ports/1";
    const std::string address = address_of(folder);
    const double gigabits = decimal_of(first_line(port / "rate"));
    const bool up = first_line(port / "state").find("ACTIVE") != std::string::npos;
    if (!address.empty()) cards[address] = {name, gigabits > 0 ? gigabits * 1e9 / 8 : 0, up};
  }
  return cards;
}

// ---- processors

uint64_t memory_of(const fs::path& node) {
  std::ifstream in(node / "meminfo");
  for (std::string line; std::getline(in, line);) {
    const size_t at = line.find("MemTotal:");
    if (at != std::string::npos) return std::strtoull(line.c_str() + at + std::strlen("MemTotal:"), nullptr, 10) << 10;
  }
  return 0;
}

class ProcessorTree {
 public:
  ProcessorTree(fs::path root, Graph* graph) : root_(std::move(root)), graph_(*graph) {}

  void add(NumaNumbers* numa) {
    if (!parse_list(first_line(root_ / "cpu/online"), &online_)) return;
    read_nodes();
    for (const unsigned cpu : online_)
      if (!done_[cpu]) add_core(cpu);
    for (const auto& [number, node] : nodes_) numa->emplace_back(number, node);
  }

 private:
  fs::path folder(unsigned cpu) const { return root_ / "cpu" / ("cpu" + std::to_string(cpu)); }

  void read_nodes() {
    for (const std::string& name : names_in(root_ / "node")) {
      char* end = nullptr;
      const long node = name.starts_with("node") ? std::strtol(name.c_str() + 4, &end, 10) : -1;
      if (end == nullptr || end == name.c_str() + 4 || *end != 0 || node < 0) continue;
      std::vector<unsigned> list;
      if (!parse_list(first_line(root_ / "node" / name / "cpulist"), &list) || list.empty()) continue;  // memory alone
      for (const unsigned cpu : list) node_of_[cpu] = static_cast<int>(node);
      memory_[static_cast<int>(node)] = memory_of(root_ / "node" / name);
    }
  }

  size_t one_of(std::map<int, size_t>* known, int number, NodeKind kind, size_t parent) {
    const auto [at, fresh] = known->try_emplace(number);
    if (fresh) at->second = graph_.add(kind, parent);
    return at->second;
  }

  /// Packages contain NUMA nodes; but the only node of several packages, as in many virtual machines, contains them. Where nothing is
  /// known of nodes, a package is one.
  size_t numa_around(unsigned cpu) {
    const std::string text = first_line(folder(cpu) / "topology/physical_package_id");
    const int package = text.empty() ? -1 : std::atoi(text.c_str());
    const int node = memory_.empty() ? std::max(package, 0) : node_of_[cpu];
    const bool inside = memory_.size() != 1 && package >= 0;
    const size_t above = inside ? one_of(&packages_, package, NodeKind::package, 0) : 0;
    const size_t numa = one_of(&nodes_, node, NodeKind::numa, above);
    if (const auto known = memory_.find(node); known != memory_.end()) graph_.nodes[numa].memory = known->second;
    return inside || package < 0 ? numa : one_of(&packages_, package, NodeKind::package, numa);
  }

  /// The last level that the processor has, below `parent`; `parent` where none is known.
  size_t cache_around(unsigned cpu, size_t parent) {
    unsigned long deepest = 0;
    std::string sharers;
    uint64_t bytes = 0;
    for (unsigned i = 0; i < kMostCaches; ++i) {
      const fs::path cache = folder(cpu) / "cache" / ("index" + std::to_string(i));
      const unsigned long level = number_of(cache / "level");
      if (level <= deepest) continue;
      deepest = level;
      sharers = first_line(cache / "shared_cpu_list");
      bytes = uint64_t{number_of(cache / "size")} << 10;  // "36608K"
    }
    if (sharers.empty()) return parent;
    const auto [at, fresh] = caches_.try_emplace({parent, sharers});
    if (fresh) at->second = graph_.add(NodeKind::cache, parent);
    graph_.nodes[at->second].memory = bytes;
    return at->second;
  }

  void add_core(unsigned cpu) {
    const size_t core = graph_.add(NodeKind::core, cache_around(cpu, numa_around(cpu)));
    std::vector<unsigned> siblings;
    if (!parse_list(first_line(folder(cpu) / "topology/thread_siblings_list"), &siblings)) siblings.clear();
    std::erase_if(siblings,
                  [&](unsigned one) { return done_[one] || !std::binary_search(online_.begin(), online_.end(), one); });
    if (!std::binary_search(siblings.begin(), siblings.end(), cpu)) siblings = {cpu};
    for (const unsigned one : siblings) done_.set(one);
    graph_.nodes[core].processors = std::move(siblings);
  }

  const fs::path root_;
  Graph& graph_;
  std::vector<unsigned> online_;
  std::bitset<kMostProcessors> done_;
  std::map<unsigned, int> node_of_;
  std::map<int, uint64_t> memory_;
  std::map<int, size_t> packages_, nodes_;
  std::map<std::pair<size_t, std::string>, size_t> caches_;
};

}  // namespace

void add_processors_of(const std::string& root, Graph* graph, NumaNumbers* numa) {
  ProcessorTree(fs::path(root) / "devices/system", graph).add(numa);
}

std::vector<PciFunction> pci_functions_of(const std::string& given) {
  const fs::path devices = fs::path(given) / "bus/pci/devices";
  std::vector<std::string> names = names_in(devices);
  std::erase_if(names, [](const std::string& name) { return !is_address(name); });
  if (names.size() > kMostFunctions) names.resize(kMostFunctions);
  struct Place {
    std::string name, host, above;
    size_t depth;
  };
  std::vector<Place> places;
  for (const std::string& name : names) {
    std::error_code error;
    Place place{name, "", "", 0};
    for (const fs::path& part : fs::canonical(devices / name, error)) {
      const std::string text = part.string();
      if (text.starts_with("pci")) place.host = text.substr(3);
      if (!is_address(text) || text == name) continue;
      place.above = text;
      ++place.depth;
    }
    if (!error) places.push_back(std::move(place));
  }
  std::stable_sort(places.begin(), places.end(), [](const Place& a, const Place& b) { return a.depth < b.depth; });
  std::vector<PciFunction> all;
  std::map<std::string, size_t> index;
  for (const Place& place : places) {
    const fs::path folder = devices / place.name;
    PciFunction one;
    one.address = place.name;
    one.host = place.host;
    if (const auto found = index.find(place.above); found != index.end()) one.parent = found->second;
    one.type = static_cast<unsigned>(number_of(folder / "class", 16)) >> 8;
    one.vendor = static_cast<unsigned>(number_of(folder / "vendor", 16));
    one.bridge = one.type == 0x0604;
    const std::string node = first_line(folder / "numa_node");
    one.numa = node.empty() ? -1 : std::atoi(node.c_str());
    index[place.name] = all.size();
    all.push_back(std::move(one));
  }
  complete_pci(given, &all);
  return all;
}

void complete_pci(const std::string& root, std::vector<PciFunction>* all) {
  const std::map<std::string, Card> cards = cards_of(root);
  for (PciFunction& one : *all) {
    const fs::path folder = fs::path(root) / "bus/pci/devices" / one.address;
    std::error_code error;
    const bool is_virtual = fs::exists(folder / "physfn", error);  // a part of another function
    one.link = link_of(folder);
    const auto found = cards.find(one.address);
    if (found == cards.end() || is_virtual) {
      if (is_virtual) one.type = 0;
      continue;
    }
    one.name = found->second.name;
    one.speed = found->second.speed;
    one.up = found->second.up;
  }
}

}  // namespace thalweg::impl::topology
