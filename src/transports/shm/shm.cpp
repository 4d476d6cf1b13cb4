// SPDX-License-Identifier: Apache-2.0
// The shm transport: what this machine allows.
#include "transports/shm/shm.hpp"

#include <unistd.h>

#include "base/platform/membarrier.hpp"
#include "memory/segment.hpp"
#include "transports/shm/port.hpp"

namespace thalweg::impl {
namespace {

/// A number from a file of one line; -1 when there is none.
long read_number(const char* path) {
  long value = -1;
  if (FILE* file = fopen(path, "re")) {
    if (fscanf(file, "%ld", &value) != 1) value = -1;
    fclose(file);
  }
  return value;
}

class ShmTransport final : public Transport {
 public:
  const char* name() const override { return "shm"; }
  TransportTraits traits() const override { return {.same_host_only = true, .passes_descriptors = true}; }

  std::string unavailable() const override {
    Segment segment;
    if (!is_error(Segment::create("thalweg-probe", sizeof(shm::Connection), true, false, &segment))) return {};
    return last_error();
  }

  std::vector<std::string> remarks() const override {
    std::vector<std::string> out;
    if (!membarrier::available())
      out.push_back(
          "membarrier is not available (an old kernel, or a seccomp profile that forbids it): every message costs a memory "
          "fence. Remedy: allow the membarrier system call");
    const long scope = read_number("/proc/sys/kernel/yama/ptrace_scope");
    if (scope > 0)
      out.push_back("kernel.yama.ptrace_scope is " + std::to_string(scope) +
                    ": peers may not copy straight from each other's memory. Remedy: sysctl kernel.yama.ptrace_scope=0, or "
                    "the capability SYS_PTRACE");
    if (read_number("/proc/sys/vm/nr_hugepages") <= 0)
      out.push_back(
          "no huge pages are reserved: memory from the library's allocator uses ordinary pages. Remedy: sysctl "
          "vm.nr_hugepages");
    return out;
  }

  Status open(const PortOptions& options, std::unique_ptr<Port>* port) override { return shm::ShmPort::open(options, port); }
};

}  // namespace

std::unique_ptr<Transport> make_shm_transport() { return std::make_unique<ShmTransport>(); }

}  // namespace thalweg::impl
