// SPDX-License-Identifier: Apache-2.0
// STREAM for each pair of NUMA nodes: threads on one node's processors, arrays in the memory of one. Arrays are four times the last
// level's caches, so that they do not stay there.
#include <algorithm>
#include <span>

#include "machine/alone.hpp"
#include "machine/mapping.hpp"
#include "machine/numa.hpp"
#include "machine/rows.hpp"
#include "machine/stream_team.hpp"

namespace perf {
namespace {

constexpr size_t kLeast = 16u << 20, kMost = size_t{4} << 30;          // bytes of an array, where --size does not say
const std::span<const StreamOperation> kStream(kStreamOperations, 4);  // as STREAM has them

size_t array_bytes(const Options& o, const Node& memory, uint64_t cache) {
  const uint64_t room = std::min(available_memory(), memory.free_bytes) / 8;  // for one of three
  const size_t bytes = o.sizes.empty() ? std::clamp<uint64_t>(4 * cache, kLeast, kMost) : o.sizes[0];
  return std::min<uint64_t>(bytes, std::max<uint64_t>(room, 4096)) / 64 * 64;
}

class Placed {
 public:
  Placed(const Options& o, const Node& cpu, const Node& memory)
      : o_(o),
        cpu_(cpu),
        memory_(memory),
        cache_(last_level_cache(cpu.processors)),
        bytes_(array_bytes(o, memory, cache_)),
        team_(cpu.processors, o.threads != 0 ? o.threads : static_cast<unsigned>(cpu.processors.size())) {}

  void run() {
    Mapping all = Mapping::anonymous(3 * pitch(), true);
    if (!all.why().empty()) return refuse(all.why());
    if (!team_.bound()) return refuse("threads may not be bound to processors here");
    const bool bound = bind_memory(all.at(), all.bytes(), memory_.number);
    const bool near = cpu_.number == memory_.number;
    if (!bound && !near && memory_.processors.empty())
      return refuse(
          "memory may not be bound to a node here (mbind), and none of the node's processors may be used to touch it first");
    const auto array = [&](size_t i) { return reinterpret_cast<double*>(all.at(i * pitch())); };
    StreamArrays arrays(array(0), array(1), array(2), bytes_ / sizeof(double));
    if (bound || near) {
      arrays.fill(team_);
    } else {
      StreamTeam there(memory_.processors, 1);
      arrays.fill(there);
    }
    for (size_t i = 0; i < 3; ++i) {
      const int node = node_of(array(i));
      if (node >= 0 && node != static_cast<int>(memory_.number))
        return refuse("its memory came from node " + std::to_string(node) + ": node " + std::to_string(memory_.number) +
                      " has none left");
    }
    for (const StreamOperation& op : kStream) {
      const StreamResult r = arrays.measure(team_, op.operation, o_.seconds);
      const double moved = static_cast<double>(op.arrays) * static_cast<double>(bytes_);
      row(op.name)
          .value("bytes_per_s", moved / r.best_seconds)
          .value("median_bytes_per_s", moved / r.median_seconds)
          .verified(r.verified)
          .print(o_.format);
    }
  }

 private:
  size_t pitch() const { return (bytes_ + 64 + 4095) / 4096 * 4096 + 4096; }  // arrays do not start on the same set of a cache
  Row row(const char* operation) const {
    Row r("memory");
    return r.label("operation", operation)
        .label("cpu_node", cpu_.number)
        .label("memory_node", memory_.number)
        .label("threads", team_.threads())
        .size(bytes_)
        .size(cache_, "cache_bytes");
  }
  void refuse(const std::string& why) const {
    for (const StreamOperation& op : kStream) row(op.name).unavailable(why).print(o_.format);
  }
  const Options& o_;
  const Node &cpu_, &memory_;
  const uint64_t cache_;
  const size_t bytes_;
  StreamTeam team_;
};

}  // namespace

void run_memory(const Options& o) {
  const std::vector<Node> nodes = numa_nodes();
  for (const Node& cpu : nodes) {
    if (cpu.processors.empty()) continue;
    for (const Node& memory : nodes) {
      if (memory.free_bytes != 0) Placed(o, cpu, memory).run();
    }
  }
}

}  // namespace perf
