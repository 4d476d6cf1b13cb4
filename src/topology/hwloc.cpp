// SPDX-License-Identifier: Apache-2.0
// Objects of hwloc's are only read while its topology lives. Its inline functions are not used: they would have to be linked.
#include "topology/hwloc.hpp"

#ifdef THALWEG_WITH_HWLOC
#include <dlfcn.h>
#include <hwloc.h>

#include <cstdio>

namespace thalweg::impl::topology {
namespace {

struct Api {
  decltype(&hwloc_topology_init) init = nullptr;
  decltype(&hwloc_topology_set_type_filter) filter = nullptr;
  decltype(&hwloc_topology_set_components) components = nullptr;
  decltype(&hwloc_topology_set_xml) set_xml = nullptr;
  decltype(&hwloc_topology_load) load = nullptr;
  decltype(&hwloc_topology_destroy) destroy = nullptr;
  decltype(&hwloc_get_obj_by_depth) object = nullptr;
  decltype(&hwloc_get_api_version) version = nullptr;
};

Status load_library(const char* library, Api* api) {
  void* const handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return fail(TW_ERR_UNSUPPORTED, "%s; install libhwloc15", dlerror());
  const auto find = [&](const char* name, auto* to) {
    *to = reinterpret_cast<std::remove_reference_t<decltype(*to)>>(dlsym(handle, name));
    return *to != nullptr;
  };
  const bool all = find("hwloc_topology_init", &api->init) && find("hwloc_topology_set_type_filter", &api->filter) &&
                   find("hwloc_topology_set_components", &api->components) && find("hwloc_topology_set_xml", &api->set_xml) &&
                   find("hwloc_topology_load", &api->load) && find("hwloc_topology_destroy", &api->destroy) &&
                   find("hwloc_get_obj_by_depth", &api->object) && find("hwloc_get_api_version", &api->version);
  if (!all || api->version() >> 16 != HWLOC_API_VERSION >> 16 || api->version() < 0x00020100)
    return fail(TW_ERR_UNSUPPORTED, "%s is not of a version from 2.1 on; install libhwloc15", library);
  return TW_OK;
}

bool is_cache(hwloc_obj_type_t type) { return type >= HWLOC_OBJ_L1CACHE && type <= HWLOC_OBJ_L5CACHE; }

std::string address_of(const hwloc_obj_attr_u::hwloc_pcidev_attr_s& pci) {
  char text[32];
  std::snprintf(text, sizeof text, "%04x:%02x:%02x.%x", unsigned{pci.domain}, unsigned{pci.bus}, unsigned{pci.dev},
                unsigned{pci.func});
  return text;
}

class Walk {
 public:
  Walk(Graph* graph, HwlocFound* found) : graph_(*graph), found_(*found) {}

  void descend(hwloc_obj_t object, size_t parent) {
    const Outer before = outer_;
    parent = enter(object, parent);
    for (hwloc_obj_t io = object->io_first_child; io != nullptr; io = io->next_sibling) descend_io(io, kNoNode, "");
    for (hwloc_obj_t child = object->first_child; child != nullptr; child = child->next_sibling) descend(child, parent);
    outer_ = before;
  }

 private:
  struct Outer {
    int numa = -1;  // as the system numbers it
    bool cache = false;
  };

  /// Adds what the graph has of an object, and of the memory at it: a node contains the cache at which it is.
  size_t enter(hwloc_obj_t object, size_t parent) {
    if (object->type == HWLOC_OBJ_PACKAGE) parent = graph_.add(NodeKind::package, parent);
    const bool outer = has_memory_below(object), thread = graph_.nodes[parent].kind == NodeKind::core;
    if (!outer && !thread) parent = enter_memory(object->memory_first_child, parent);
    if (is_cache(object->type) && !outer_.cache) {
      outer_.cache = true;
      parent = graph_.add(NodeKind::cache, parent);
      graph_.nodes[parent].memory = object->attr->cache.size;
    }
    const bool core = object->type == HWLOC_OBJ_CORE,
               alone = object->type == HWLOC_OBJ_PU && graph_.nodes[parent].kind != NodeKind::core;
    if (core || alone) parent = graph_.add(NodeKind::core, parent);
    if (object->type == HWLOC_OBJ_PU) add_processor(object->os_index, &graph_.nodes[parent].processors);
    return parent;
  }

  /// Memory around nodes that have their own (CXL without processors, at the machine) is nobody's own, and left out, as the kernel's
  /// files are read, too; so is that of one thread of a core.
  static bool has_memory_below(hwloc_obj_t object) {
    for (hwloc_obj_t child = object->first_child; child != nullptr; child = child->next_sibling)
      if (child->memory_first_child != nullptr || has_memory_below(child)) return true;
    return false;
  }

  /// Of several memories at one place (HBM beside DRAM) the first stands for all: processors are near to each of them.
  size_t enter_memory(hwloc_obj_t memory, size_t parent) {
    while (memory != nullptr && memory->type != HWLOC_OBJ_NUMANODE) memory = memory->memory_first_child;  // behind its cache
    if (memory == nullptr) return parent;
    outer_.numa = static_cast<int>(memory->os_index);
    const size_t node = graph_.add(NodeKind::numa, parent);
    graph_.nodes[node].memory = memory->attr->numanode.local_memory;
    found_.numa.emplace_back(outer_.numa, node);
    return node;
  }

  static void add_processor(unsigned number, std::vector<unsigned>* to) {
    if (number >= kMostProcessors) return;
    auto at = to->begin();
    while (at != to->end() && *at < number) ++at;
    to->insert(at, number);
  }

  void descend_io(hwloc_obj_t object, size_t above, const std::string& host) {
    std::string here = host;
    PciFunction one;
    one.parent = above;
    one.numa = outer_.numa;
    if (object->type == HWLOC_OBJ_BRIDGE) {
      const auto& bridge = object->attr->bridge;
      if (bridge.upstream_type == HWLOC_OBJ_BRIDGE_HOST) {
        char text[16];
        std::snprintf(text, sizeof text, "%04x:%02x", unsigned{bridge.downstream.pci.domain},
                      unsigned{bridge.downstream.pci.secondary_bus});
        here = text;
      } else {
        one.bridge = true;
        one.address = address_of(bridge.upstream.pci);
      }
    } else if (object->type == HWLOC_OBJ_PCI_DEVICE) {
      one.address = address_of(object->attr->pcidev);
      one.type = object->attr->pcidev.class_id;
      one.vendor = object->attr->pcidev.vendor_id;
      one.name = card_name(object);
    }
    if (!one.address.empty()) {
      one.host = here;
      above = found_.pci.size();
      found_.pci.push_back(std::move(one));
    }
    for (hwloc_obj_t child = object->io_first_child; child != nullptr; child = child->next_sibling)
      descend_io(child, above, here);
  }

  /// Names for verbs before those of interfaces.
  static std::string card_name(hwloc_obj_t device) {
    std::string name;
    for (hwloc_obj_t child = device->io_first_child; child != nullptr; child = child->next_sibling) {
      if (child->type != HWLOC_OBJ_OS_DEVICE || child->name == nullptr) continue;
      if (child->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS) return child->name;
      if (child->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK && name.empty()) name = child->name;
    }
    return name;
  }

  Graph& graph_;
  HwlocFound& found_;
  Outer outer_;
};

/// Its own looks at GPUs initialise their libraries; NVML says what we want of them.
void set_up(const Api& api, hwloc_topology_t topology) {
  for (const char* const component : {"cuda", "nvml", "opencl", "gl", "rsmi", "levelzero"})
    (void)api.components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, component);
  for (const hwloc_obj_type_t type : {HWLOC_OBJ_BRIDGE, HWLOC_OBJ_PCI_DEVICE, HWLOC_OBJ_OS_DEVICE})
    (void)api.filter(topology, type, HWLOC_TYPE_FILTER_KEEP_ALL);
}

}  // namespace

Status add_by_hwloc(const char* library, const std::string& xml, Graph* graph, HwlocFound* found) {
  Api api;
  if (Status s = load_library(library, &api); is_error(s)) return s;
  hwloc_topology_t topology = nullptr;
  if (api.init(&topology) != 0) return fail(TW_ERR_NO_MEMORY, "hwloc could not begin; is there memory?");
  set_up(api, topology);
  Status status = TW_OK;
  if (!xml.empty() && api.set_xml(topology, xml.c_str()) != 0)
    status = fail(TW_ERR_INVALID, "hwloc cannot read %s", xml.c_str());
  else if (api.load(topology) != 0)
    status = fail(TW_ERR_UNSUPPORTED, "hwloc could not look at this machine; HWLOC_COMPONENTS_VERBOSE=1 says why");
  if (!is_error(status)) {
    const unsigned version = api.version();
    found->version = std::to_string(version >> 16) + "." + std::to_string(version >> 8 & 0xff);
    Walk(graph, found).descend(api.object(topology, 0, 0), 0);
  }
  api.destroy(topology);
  return status;
}

}  // namespace thalweg::impl::topology

#else

namespace thalweg::impl::topology {

Status add_by_hwloc(const char*, const std::string&, Graph*, HwlocFound*) {
  return fail(TW_ERR_UNSUPPORTED, "this build knows no hwloc; install libhwloc-dev and build again");
}

}  // namespace thalweg::impl::topology
#endif
