// SPDX-License-Identifier: Apache-2.0
// A link between two GPUs is told by both, and one that is down may not say where it leads: nvlink_ends.hpp makes one of both.
#include "topology/nvml.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <vector>

#include "topology/nvlink_ends.hpp"
#include "topology/nvml_api.hpp"

namespace thalweg::impl::topology {
namespace {

using nvml::Api;
using nvml::Device;

Status load_library(const char* library, Api* api) {
  void* const handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return fail(TW_ERR_UNSUPPORTED, "%s; it comes with NVIDIA's driver", dlerror());
  const struct {
    const char* symbol;
    void** function;
    bool needed;
  } wanted[] = {
#define THALWEG_NVML_NEEDED(name, symbol, parameters) {symbol, reinterpret_cast<void**>(&api->name), true},
#define THALWEG_NVML_EXTRA(name, symbol, parameters) {symbol, reinterpret_cast<void**>(&api->name), false},
      THALWEG_NVML_FUNCTIONS(THALWEG_NVML_NEEDED) THALWEG_NVML_OPTIONAL(THALWEG_NVML_EXTRA)
#undef THALWEG_NVML_NEEDED
#undef THALWEG_NVML_EXTRA
  };
  for (const auto& one : wanted) {
    *one.function = dlsym(handle, one.symbol);
    if (*one.function == nullptr && one.needed)
      return fail(TW_ERR_UNSUPPORTED, "%s has no %s; update the driver", library, one.symbol);
  }
  return TW_OK;
}

/// "00000000:1B:00.0" as "0000:1b:00.0".
std::string address_of(const nvml::PciInfo& info) {
  std::string text(info.address, strnlen(info.address, sizeof info.address));
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const size_t colon = text.find(':');
  if (colon != std::string::npos && colon > 4 && text.compare(0, colon - 4, std::string(colon - 4, '0')) == 0)
    text.erase(0, colon - 4);
  return text;
}

/// "GPU-8f6d..." as its hexadecimal digits; empty: another form.
std::string digits_of(const char* text) {
  std::string digits;
  for (const char* at = std::strncmp(text, "GPU-", 4) == 0 ? text + 4 : text; *at != 0; ++at)
    if (std::isxdigit(static_cast<unsigned char>(*at)) != 0)
      digits += static_cast<char>(std::tolower(static_cast<unsigned char>(*at)));
  return digits.size() == 32 ? digits : "";
}

class Gpus {
 public:
  Gpus(const Api& api, Graph* graph) : api_(api), graph_(*graph) {}

  Status add() {
    unsigned count = 0;
    if (api_.count(&count) != nvml::kSuccess)
      return fail(TW_ERR_DEVICE, "NVML does not count the GPUs; is the driver running?");
    for (unsigned i = 0; i < std::min(count, 64u); ++i) {
      Device device = nullptr;
      nvml::PciInfo pci{};
      if (api_.device(i, &device) != nvml::kSuccess || api_.pci(device, &pci) != nvml::kSuccess) continue;
      const size_t node = node_at(address_of(pci), NodeKind::gpu);
      devices_.push_back({device, node});
      complete(device, node);
    }
    std::vector<Link> told;
    for (const auto& [device, node] : devices_) tell_links(device, node, &told);
    for (Link& link : join_ends(graph_, std::move(told))) graph_.links.push_back(link);
    for (size_t i = 0; i < devices_.size() && api_.peers != nullptr; ++i)
      for (size_t k = i + 1; k < devices_.size(); ++k) tell_peers(devices_[i], devices_[k]);
    return TW_OK;
  }

 private:
  size_t node_at(const std::string& address, NodeKind kind) {
    for (size_t i = 0; i < graph_.nodes.size(); ++i)  // all that do not say where they are, are one
      if (graph_.nodes[i].pci == address && graph_.nodes[i].kind == kind) return i;
    const std::vector<size_t> numa = graph_.all(NodeKind::numa);
    const size_t node = graph_.add(kind, numa.size() == 1 ? numa[0] : 0);
    graph_.nodes[node].pci = address;
    return node;
  }

  void complete(Device device, size_t at) {
    char text[128] = {};
    Node& node = graph_.nodes[at];
    if (api_.name(device, text, sizeof text - 1) == nvml::kSuccess) node.name = text;
    std::memset(text, 0, sizeof text);
    if (api_.uuid(device, text, sizeof text - 1) == nvml::kSuccess) node.uuid = digits_of(text);
    nvml::Memory memory{};
    if (api_.memory(device, &memory) == nvml::kSuccess) node.memory = memory.total;
    complete_pcie(device, at);
  }

  /// The driver knows better than the kernel's files what an idle GPU's link trains to.
  void complete_pcie(Device device, size_t at) {
    unsigned generation = 0, lanes = 0, most = 0;
    if (api_.generation(device, &generation) != nvml::kSuccess || api_.lanes(device, &lanes) != nvml::kSuccess) return;
    if (api_.most_lanes(device, &most) != nvml::kSuccess) most = 0;
    if (pcie_bandwidth(generation, lanes) == 0) return;
    auto found = std::find_if(graph_.links.begin(), graph_.links.end(),
                              [&](const Link& link) { return link.kind == LinkKind::pcie && link.from == at; });
    if (found == graph_.links.end()) {
      Link fresh;
      fresh.from = at;
      fresh.to = graph_.nodes[at].parent;
      found = graph_.links.insert(found, fresh);
    }
    found->generation = found->most_generation = generation;
    found->lanes = lanes;
    if (found->most_lanes == 0) found->most_lanes = most;
    found->bandwidth = pcie_bandwidth(generation, lanes);
    found->source = Source::driver;
  }

  double speed_of(Device device) const {
    nvml::FieldValue field{};
    field.field = nvml::kSpeedOfLinks;
    if (api_.fields == nullptr || api_.fields(device, 1, &field) != nvml::kSuccess || field.result != nvml::kSuccess) return 0;
    return field.type == nvml::kUnsignedType ? field.value.whole * 1e6 : 0;
  }

  uint64_t errors_of(Device device, unsigned port) const {
    uint64_t sum = 0;
    for (unsigned counter = 0; counter < nvml::kErrorCounters && api_.errors != nullptr; ++counter) {
      unsigned long long value = 0;
      if (api_.errors(device, port, counter, &value) == nvml::kSuccess) sum += value;
    }
    return sum;
  }

  /// The other end, a GPU, an NVSwitch or the GPU's own NUMA node; kNoNode: it does not say, or it is none that is shown here.
  size_t end_of(Device device, unsigned port, size_t self) {
    nvml::PciInfo pci{};
    unsigned type = nvml::kRemoteGpu;
    const bool typed = api_.remote_type != nullptr && api_.remote_type(device, port, &type) == nvml::kSuccess;
    const std::string address = api_.remote(device, port, &pci) == nvml::kSuccess ? address_of(pci) : "";
    if (typed && type == nvml::kRemoteCpu) return graph_.around(self, NodeKind::numa);
    if (typed && type == nvml::kRemoteSwitch) return node_at(address, NodeKind::nvswitch);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const NodeKind kind = graph_.nodes[i].kind;
      const bool possible = (kind == NodeKind::gpu && i != self) || kind == NodeKind::nvswitch;
      if (possible && !address.empty() && graph_.nodes[i].pci == address) return i;
    }
    return kNoNode;
  }

  /// Is there such a link? One whose state cannot be read, although the driver knows it, does not work.
  bool is_link(Device device, unsigned port, Link* link) const {
    unsigned active = 0, version = 0;
    const nvml::Result state = api_.state(device, port, &active);
    if (state == nvml::kInvalidArgument || state == nvml::kNotSupported) return false;
    const bool known = api_.version(device, port, &version) == nvml::kSuccess;
    if (known && version < std::size(nvml::kVersions)) link->version = nvml::kVersions[version];
    link->up = state == nvml::kSuccess && active != 0;
    return known || state == nvml::kSuccess;
  }

  void tell_links(Device device, size_t node, std::vector<Link>* told) {
    const double speed = speed_of(device);
    for (unsigned port = 0; port < nvml::kMostLinks; ++port) {
      Link link;
      link.kind = LinkKind::nvlink;
      link.from = node;
      link.port = port;
      if (!is_link(device, port, &link)) continue;
      link.errors = errors_of(device, port);
      link.bandwidth = speed != 0 ? speed : nvlink_bandwidth(link.version);
      link.source = speed != 0 ? Source::driver : link.bandwidth != 0 ? Source::standard : Source::unknown;
      link.to = end_of(device, port, node);
      told->push_back(link);
    }
  }

  /// What it has no answer to, stays untold.
  void tell_peers(const std::pair<Device, size_t>& one, const std::pair<Device, size_t>& other) {
    static_assert(std::size(nvml::kPeerUses) == kPeerUses &&
                  nvml::kPeerStatuses + 1 == static_cast<size_t>(PeerStatus::count_));
    Peers peers;
    peers.from = one.second;
    peers.to = other.second;
    bool told = false;
    for (size_t use = 0; use < kPeerUses; ++use) {
      unsigned status = 0;
      if (api_.peers(one.first, other.first, nvml::kPeerUses[use], &status) != nvml::kSuccess) continue;
      peers.status[use] = status < nvml::kPeerStatuses ? static_cast<PeerStatus>(status + 1) : PeerStatus::unknown;
      told = true;
    }
    if (told && peers.from != peers.to) graph_.peers.push_back(peers);
  }

  const Api& api_;
  Graph& graph_;
  std::vector<std::pair<Device, size_t>> devices_;
};

}  // namespace

Status add_by_nvml(const char* library, Graph* graph, std::string* driver) {
  Api api;
  if (Status s = load_library(library, &api); is_error(s)) return s;
  if (api.init() != nvml::kSuccess)
    return fail(TW_ERR_DEVICE, "NVML does not begin; is the driver running, and does it show GPUs here?");
  char version[96] = {};
  if (api.driver(version, sizeof version - 1) == nvml::kSuccess) *driver = version;
  Graph with = *graph;
  const Status status = Gpus(api, &with).add();
  (void)api.shutdown();
  if (!is_error(status)) *graph = std::move(with);
  return status;
}

}  // namespace thalweg::impl::topology
