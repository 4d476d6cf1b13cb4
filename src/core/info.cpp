// SPDX-License-Identifier: Apache-2.0
// What a context found on this machine, as JSON: transports, limits, and what to do about them.
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <sstream>

#include "base/json.hpp"
#include "base/log.hpp"
#include "base/platform/membarrier.hpp"
#include "base/platform/process.hpp"
#include "core/context.hpp"
#include "core/setup.hpp"
#include "devices/cuda/kernels.hpp"
#include "routes/cost_file.hpp"
#include "topology/machine.hpp"

namespace thalweg::impl {
namespace {

std::string first_line(const char* path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

void limit(Json& json, const char* name, const std::string& value, bool good, const std::string& remedy) {
  json.open(name, '{');
  json.add("value", value);
  json.flag("good", good);
  if (!good) json.add("remedy", remedy);
  json.close('}');
}

std::string amount(rlim_t value) { return value == RLIM_INFINITY ? "unlimited" : std::to_string(value); }

void describe_limits(Json& json) {
  json.open("limits", '{');
  const std::string scope = first_line("/proc/sys/kernel/yama/ptrace_scope");
  limit(json, "ptrace_scope", scope.empty() ? "absent" : scope, scope.empty() || scope == "0",
        "single copies between processes may be forbidden: sysctl kernel.yama.ptrace_scope=0, or CAP_SYS_PTRACE");
  limit(json, "ptrace", may_access_process(getpid()) ? "allowed" : "forbidden", may_access_process(getpid()),
        "process_vm_readv is forbidden (seccomp or container policy): allow it, for Docker --cap-add SYS_PTRACE");
  rlimit memlock{}, nofile{};
  getrlimit(RLIMIT_MEMLOCK, &memlock);
  getrlimit(RLIMIT_NOFILE, &nofile);
  limit(json, "memlock", amount(memlock.rlim_cur), memlock.rlim_cur == RLIM_INFINITY || memlock.rlim_cur >= (64u << 20),
        "RDMA networks need locked memory: ulimit -l unlimited");
  limit(json, "nofile", amount(nofile.rlim_cur), nofile.rlim_cur >= 4096,
        "each connection takes a few descriptors: ulimit -n 65536");
  struct statvfs shm {};
  const uint64_t shm_free = statvfs("/dev/shm", &shm) == 0 ? uint64_t(shm.f_bavail) * shm.f_frsize : 0;
  limit(json, "dev_shm_free", std::to_string(shm_free), shm_free >= (64u << 20),
        "shared memory is nearly full or absent: remove files from /dev/shm, for containers --shm-size=1g");
  std::string thp = first_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  const bool thp_on = thp.find("[never]") == std::string::npos && thp.find("[deny]") == std::string::npos && !thp.empty();
  limit(json, "transparent_huge_pages_shmem", thp.empty() ? "absent" : thp, thp_on,
        "large shared buffers use 4 KiB pages: echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled");
  const std::string huge = first_line("/proc/sys/vm/nr_hugepages");
  limit(json, "huge_pages", huge.empty() ? "0" : huge, !huge.empty() && huge != "0",
        "tw_memory_allocate with huge_pages needs some: sysctl vm.nr_hugepages=512");
  limit(json, "membarrier", membarrier::available() ? "available" : "not available", membarrier::available(),
        "sleeping and waking cost a fence more: allow the membarrier system call (seccomp)");
  json.close('}');
}

void describe_transports(Json& json, const tw_context& context) {
  json.open("transports", '[');
  for (const TransportSlot& slot : context.transports) {
    json.open(nullptr, '{');
    json.add("name", slot.name);
    json.flag("usable", slot.why_not.empty());
    if (!slot.why_not.empty()) json.add("why_not", slot.why_not);
    json.open("remarks", '[');
    if (slot.why_not.empty()) {
      for (const std::string& remark : slot.transport->remarks()) json.add(nullptr, remark);
    }
    json.close(']');
    json.close('}');
  }
  json.close(']');
}

void describe_costs(Json& json, const CostTable& costs) {
  json.open("costs", '{');
  json.add("source", costs.source);
  if (!costs.why.empty()) json.add("why", costs.why);
  json.add("file", costs.file);
  for (const CostField& field : cost_fields()) {
    if (costs.*field.link.*field.value == 0) continue;  // of a distance that was not measured
    json.add(field.name.c_str(), number_text(costs.*field.link.*field.value, 6) + " " + field.unit);
  }
  json.close('}');
}

/// What it is made of; finds it.
void describe_topology(Json& json) {
  const topology::Graph* graph = nullptr;
  json.open("topology", '{');
  if (is_error(topology::current(&graph))) {
    json.add("why_not", last_error());
    json.close('}');
    return;
  }
  json.add("source", graph->file.empty() ? graph->source : graph->file + " (THALWEG_TOPOLOGY)");
  if (graph->file.empty()) {
    const topology::Discovery& found = topology::discovered();
    json.add("hwloc", found.hwloc.empty() ? "absent: " + found.why_no_hwloc : found.hwloc);
    json.add("nvml", found.nvml.empty() ? "absent: " + found.why_no_nvml : "driver " + found.nvml);
  }
  for (size_t i = 1; i < topology::kNodeKinds; ++i) {
    const auto kind = static_cast<topology::NodeKind>(i);
    if (const uint64_t count = graph->count(kind); count != 0) json.add(name_of(kind), count);
  }
  json.close('}');
}

}  // namespace

std::string describe(const tw_context& context) {
  Json json;
  json.open(nullptr, '{');
  json.add("version", tw_version_string());
  json.open("build", '{');
  json.add("compiler", __VERSION__);
#ifdef NDEBUG
  json.flag("debug", false);
#else
  json.flag("debug", true);
#endif
  json.flag("cuda_kernels", !cuda::kernels_image().empty());
  json.close('}');
  describe_transports(json, context);
  describe_devices(json, context);
  describe_topology(json);
  json.add("job_key", context.key.source());
  json.add("socket_dir", context.settings.socket_dir);
  json.add("interfaces", context.settings.interfaces);
  json.add("tcp_port", uint64_t(context.setup->port()));
  json.flag("tls", context.settings.tls);
  describe_limits(json);
  describe_costs(json, context.costs);
  json.open("warnings", '[');
  std::istringstream lines(warnings_so_far());
  for (std::string line; std::getline(lines, line);) json.add(nullptr, line);
  json.close(']');
  json.close('}');
  return json.take();
}

}  // namespace thalweg::impl
