// SPDX-License-Identifier: Apache-2.0
#include "machine/alone.hpp"

namespace perf {

AloneTest find_alone(const std::string& test) {
  static constexpr struct {
    const char* name;
    AloneTest run;
  } kAll[] = {{"floor", run_floor},     {"memory", run_memory}, {"tiers", run_tiers},
              {"sockets", run_sockets}, {"pages", run_pages},   {"collaborate", run_collaborate},
              {"copies", run_copies},   {"flags", run_flags},   {"atomics", run_atomics}};
  for (const auto& one : kAll) {
    if (test == one.name) return one.run;
  }
  return nullptr;
}

}  // namespace perf
