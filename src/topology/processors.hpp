// SPDX-License-Identifier: Apache-2.0
// Distances between processors, from /sys/devices/system or a saved topology. A file that is absent or odd makes no difference
// between processors, so a machine without these files has one distance. The kernel's files are read here without a library, because
// every context asks; hwloc (hwloc.hpp) reads the same ones.
#pragma once
#include <sched.h>

#include <cstdint>
#include <string>
#include <vector>

namespace thalweg::impl {

enum class CpuDistance : uint8_t {
  core,   // threads of one core
  cache,  // one last-level cache
  node,   // one NUMA node, or socket, and no cache in common
  far,    // another one
  count_
};
inline constexpr size_t kCpuDistances = static_cast<size_t>(CpuDistance::count_);
const char* name_of(CpuDistance distance);
constexpr uint32_t bit_of(CpuDistance distance) { return 1u << static_cast<unsigned>(distance); }

namespace topology {
class Graph;
}

class CpuTopology {
 public:
  /// This machine's, read at the first call: where threads can be bound, and so measured.
  static const CpuTopology& of_machine();
  /// What THALWEG_TOPOLOGY says, else this machine's: by which is chosen.
  static const CpuTopology& current();
  static CpuTopology of(const topology::Graph& graph);
  /// From another folder than /sys/devices/system.
  static CpuTopology read(const std::string& root);

  CpuDistance between(unsigned one, unsigned other) const;
  /// Bits of the distances between two processors of `allowed`, and between any two that there are.
  uint32_t distances(const cpu_set_t& allowed) const;
  uint32_t distances() const { return all_; }
  /// The one that most pairs have, of a processor of each set. Where two are as frequent (within a tenth) the nearer one.
  /// False: there is no pair of different processors.
  bool usual(const cpu_set_t& one, const cpu_set_t& other, CpuDistance* out) const;
  /// Two processors of `allowed` at this distance, `near` one of them if possible. False: there are none.
  bool pair_at(CpuDistance distance, const cpu_set_t& allowed, unsigned near, unsigned* first, unsigned* second) const;

 private:
  struct Place {
    int core = -1, cache = -1, node = -1;
  };
  struct Count {
    uint64_t pairs[kCpuDistances] = {};
  };
  const Place& place(unsigned cpu) const;
  Count count(const cpu_set_t& one, const cpu_set_t& other) const;

  std::vector<Place> places_;  // by number
  uint32_t all_ = 0;
};

/// Processors on which a thread of this process may measure: those that the process has, or, where it is bound to a single
/// one as ranks are, those of its cpuset without isolated ones (isolcpus=). Just that one where there are no others.
cpu_set_t measuring_processors();

/// "0-3,8" as a set; what makes no sense, or is beyond CPU_SETSIZE, is left out.
cpu_set_t parse_cpu_list(const std::string& text);

}  // namespace thalweg::impl
