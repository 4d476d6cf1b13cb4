// SPDX-License-Identifier: Apache-2.0
// The memory of this machine: its nodes, their processors, caches, and where pages are. Read from the system; nothing is assumed.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace perf {

struct Node {
  unsigned number = 0;
  std::vector<unsigned> processors;  // that this process may run on; empty: only memory
  uint64_t free_bytes = 0;           // 0: no memory of its own
};

/// By number. One of all allowed processors and all memory where the system tells of none.
std::vector<Node> numa_nodes();
/// Those that this process may run on.
std::vector<unsigned> allowed_processors();
/// Bytes of the caches of the last level that these processors use; 0: the system does not tell.
uint64_t last_level_cache(const std::vector<unsigned>& processors);
/// Bytes that may be allocated before the machine, or this process's control group, has none left.
uint64_t available_memory();
/// The calling thread. False: not permitted.
bool run_on(unsigned processor);
/// Pages of [address, address + bytes) that are not there yet will come from this node alone. False: not permitted here.
bool bind_memory(void* address, size_t bytes, unsigned node);
/// Of the page at an address; -1: the system does not tell.
int node_of(void* address);
/// The first line of a file; "": it cannot be read.
std::string first_line(const std::string& path);

}  // namespace perf
