// SPDX-License-Identifier: Apache-2.0
// Version 2 has one hierarchy, a line "0::/a/b" and memory.max; version 1 one for memory, "4:memory:/a/b" and memory.limit_in_bytes.
#include "machine/group_memory.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>

namespace perf {
namespace {

/// The number in the first line of a file; UINT64_MAX: there is none ("max", no such file).
uint64_t number_in(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  char* end = nullptr;
  const uint64_t number = std::strtoull(line.c_str(), &end, 10);
  return end == line.c_str() ? UINT64_MAX : number;
}

/// Of memory.stat; 0: it has no such line.
uint64_t field_of(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.compare(0, name.size() + 1, name + " ") == 0) return std::strtoull(line.c_str() + name.size(), nullptr, 10);
  return 0;
}

struct Names {
  const char *most, *used, *reclaimable;
};

/// Pages of files that were not used lately go first, so they are left.
uint64_t left_in(const std::string& folder, const Names& names) {
  const uint64_t most = number_in(folder + names.most), used = number_in(folder + names.used);
  if (most == UINT64_MAX || used == UINT64_MAX) return most;
  const uint64_t held = used - std::min(used, field_of(folder + "/memory.stat", names.reclaimable));
  return most - std::min(most, held);
}

}  // namespace

uint64_t left_in_groups(const std::string& membership, const std::string& mounted) {
  std::ifstream file(membership);
  uint64_t least = UINT64_MAX;
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first == std::string::npos ? 0 : first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool unified = controllers == ",,";
    if (!unified && controllers.find(",memory,") == std::string::npos) continue;
    const Names names = unified ? Names{"/memory.max", "/memory.current", "inactive_file"}
                                : Names{"/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file"};
    const std::string root = mounted + (unified ? "" : "/memory");
    for (std::string group = line.substr(second + 1);; group.erase(group.rfind('/'))) {
      least = std::min(least, left_in(root + group, names));
      if (group.find('/') == std::string::npos) break;
    }
  }
  return least;
}

}  // namespace perf
