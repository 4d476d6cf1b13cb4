// SPDX-License-Identifier: Apache-2.0
#include "machine/numa.hpp"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "machine/group_memory.hpp"

namespace perf {
namespace {

constexpr unsigned kMost = 4096;  // processors and nodes: longer lists are not believed
constexpr int kBind = 2;          // MPOL_BIND

/// "0-3,8": those numbers. What is none ends it.
std::vector<unsigned> numbers_of(const std::string& list) {
  std::vector<unsigned> all;
  std::istringstream parts(list);
  for (std::string part; std::getline(parts, part, ',');) {
    char* end = nullptr;
    const unsigned long first = std::strtoul(part.c_str(), &end, 10);
    if (end == part.c_str()) break;
    const unsigned long last = *end == '-' ? std::strtoul(end + 1, nullptr, 10) : first;
    for (unsigned long n = first; n <= std::min<unsigned long>(last, kMost); ++n) all.push_back(static_cast<unsigned>(n));
  }
  return all;
}

/// Bytes in a line "... NAME: 123 kB" of a file; 0: there is none.
uint64_t kilobytes(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t at = line.find(name + ":");
    if (at != std::string::npos) return std::strtoull(line.c_str() + at + name.size() + 1, nullptr, 10) * 1024;
  }
  return 0;
}

/// "36608K", "32M"; 0: no size.
uint64_t cache_size(const std::string& text) {
  char* end = nullptr;
  const uint64_t n = std::strtoull(text.c_str(), &end, 10);
  return *end == 'K' ? n << 10 : *end == 'M' ? n << 20 : *end == 'G' ? n << 30 : n;
}

}  // namespace

std::string first_line(const std::string& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

std::vector<unsigned> allowed_processors() {
  std::vector<unsigned> all;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return {0};
  for (unsigned c = 0; c < CPU_SETSIZE; ++c) {
    if (CPU_ISSET(c, &set)) all.push_back(c);
  }
  return all;
}

std::vector<Node> numa_nodes() {
  const std::string folder = "/sys/devices/system/node/";
  const std::vector<unsigned> allowed = allowed_processors();
  std::vector<Node> nodes;
  for (const unsigned n : numbers_of(first_line(folder + "online"))) {
    const std::string its = folder + "node" + std::to_string(n) + "/";
    Node node{n, {}, kilobytes(its + "meminfo", "MemFree") + kilobytes(its + "meminfo", "FilePages")};
    for (const unsigned c : numbers_of(first_line(its + "cpulist"))) {
      if (std::binary_search(allowed.begin(), allowed.end(), c)) node.processors.push_back(c);
    }
    if (!node.processors.empty() || node.free_bytes != 0) nodes.push_back(node);
  }
  if (nodes.empty()) nodes.push_back({0, allowed, available_memory()});
  return nodes;
}

uint64_t last_level_cache(const std::vector<unsigned>& processors) {
  std::map<std::string, uint64_t> caches;  // by who shares them
  for (const unsigned c : processors) {
    unsigned highest = 0;
    std::string sharers;
    uint64_t bytes = 0;
    for (unsigned i = 0; i < 8; ++i) {
      const std::string its = "/sys/devices/system/cpu/cpu" + std::to_string(c) + "/cache/index" + std::to_string(i) + "/";
      const std::string level = first_line(its + "level");
      if (level.empty()) break;
      if (std::strtoul(level.c_str(), nullptr, 10) < highest) continue;
      highest = static_cast<unsigned>(std::strtoul(level.c_str(), nullptr, 10));
      sharers = first_line(its + "shared_cpu_list");
      bytes = cache_size(first_line(its + "size"));
    }
    if (bytes != 0) caches[sharers] = bytes;
  }
  uint64_t sum = 0;
  for (const auto& [sharers, bytes] : caches) sum += bytes;
  return sum;
}

uint64_t available_memory() {
  uint64_t bytes = kilobytes("/proc/meminfo", "MemAvailable");
  if (bytes == 0) bytes = 1u << 30;
  return std::min(bytes, left_in_groups("/proc/self/cgroup", "/sys/fs/cgroup"));
}

bool run_on(unsigned processor) {
  cpu_set_t one;
  CPU_ZERO(&one);
  if (processor >= CPU_SETSIZE) return false;
  CPU_SET(processor, &one);
  return ::sched_setaffinity(0, sizeof one, &one) == 0;
}

bool bind_memory(void* address, size_t bytes, unsigned node) {
  constexpr size_t kBits = 8 * sizeof(unsigned long);
  unsigned long mask[kMost / kBits] = {};
  if (node >= kMost) return false;
  mask[node / kBits] = 1ul << node % kBits;
  return ::syscall(SYS_mbind, address, bytes, kBind, mask, kMost, 0) == 0;
}

int node_of(void* address) {
  int status = -1;
  void* pages[] = {address};
  if (::syscall(SYS_move_pages, 0, 1ul, pages, nullptr, &status, 0) != 0) return -1;
  return std::max(status, -1);
}

}  // namespace perf
