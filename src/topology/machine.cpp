// SPDX-License-Identifier: Apache-2.0
#include "topology/machine.hpp"

#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>

#include "topology/format.hpp"
#include "topology/hwloc.hpp"
#include "topology/json_value.hpp"
#include "topology/nvml.hpp"
#include "topology/sysfs.hpp"

namespace thalweg::impl::topology {
namespace {

constexpr size_t kMostText = 256;  // bytes that a text has in a file at most

struct Saved {
  Status status = TW_OK;
  std::string why;
  Graph graph;
};

/// By path: a file is read once, so all parts of a process see one text of it.
const Saved& saved_at(const std::string& path) {
  static std::mutex lock;
  static auto* const all = new std::map<std::string, std::unique_ptr<Saved>>;  // until exit
  const std::lock_guard guard(lock);
  std::unique_ptr<Saved>& found = (*all)[path];
  if (found == nullptr) {
    found = std::make_unique<Saved>();
    found->status = read_graph(path, &found->graph);
    if (is_error(found->status)) found->why = last_error();
  }
  return *found;
}

std::string product_of(const std::string& root) {
  std::ifstream in(root + "/class/dmi/id/product_name");
  std::string line;
  std::getline(in, line);
  return line;
}

}  // namespace

Status saved(const Graph** out) {
  *out = nullptr;
  const char* const path = std::getenv("THALWEG_TOPOLOGY");
  if (path == nullptr || *path == 0) return TW_OK;
  const Saved& found = saved_at(path);
  if (is_error(found.status)) {
    set_last_error(found.why);
    return found.status;
  }
  *out = &found.graph;
  return TW_OK;
}

Status current(const Graph** out) {
  if (Status s = saved(out); is_error(s) || *out != nullptr) return s;
  *out = &discovered().graph;
  return TW_OK;
}

Discovery discover(const Where& where) {
  Discovery found;
  Graph& graph = found.graph;
  graph.add(NodeKind::machine, kNoNode);
  graph.name = graph.nodes[0].name = where.xml.empty() ? product_of(where.root) : where.xml;
  HwlocFound by_hwloc;
  if (is_error(add_by_hwloc(where.hwloc.c_str(), where.xml, &graph, &by_hwloc))) {
    found.why_no_hwloc = last_error();
    graph.source = where.root;
    add_processors_of(where.root, &graph, &by_hwloc.numa);
    by_hwloc.pci = pci_functions_of(where.root);
  } else {
    found.hwloc = by_hwloc.version;
    graph.source = "hwloc " + found.hwloc;
    if (where.xml.empty()) complete_pci(where.root, &by_hwloc.pci);
  }
  add_pci(by_hwloc.pci, by_hwloc.numa, &graph);
  if (is_error(add_by_nvml(where.nvml.c_str(), &graph, &found.nvml))) {
    found.why_no_nvml = last_error();
    graph.nvlinks_known = graph.count(NodeKind::gpu) == 0;
  } else {
    graph.source += ", nvml of driver " + found.nvml;
  }
  for (std::string* text : {&graph.name, &graph.source}) *text = plain_text(*text, kMostText);
  for (Node& node : graph.nodes) node.name = plain_text(node.name, kMostText);  // of files that may be anybody's
  return found;
}

const Discovery& discovered() {
  static const auto* const found = new Discovery(discover({}));  // until exit
  return *found;
}

}  // namespace thalweg::impl::topology
