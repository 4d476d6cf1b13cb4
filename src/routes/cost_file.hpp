// SPDX-License-Identifier: Apache-2.0
// Measured costs of this machine, saved in the user's cache directory: its place, its form, reading and writing. Small text:
//
//   thalweg-costs 1
//   library = 0.1.0
//   machine = HOST; PROCESSOR; KERNEL
//   shm.frame = 45.2           any of cost_fields(), each once, in any order
//   shm.far.frame = 310        the same of shm between processors at a distance, where there are several
//   ...
//   end
//
// Untrusted when read: bounded, every value within its limits, nothing unknown. A file that is not right is ignored with one
// warning. Its name holds the library's version, because no other one reads it, and a hash of the machine, because home
// directories are shared between machines.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "base/status.hpp"
#include "routes/costs.hpp"

namespace thalweg::impl {

inline constexpr size_t kCostFileMax = 4096;  // bytes

/// A cost that can be measured. Those of self decide nothing and stay defaults.
struct CostField {
  std::string name;
  LinkCosts CostTable::*link;
  double LinkCosts::*value;
  double least, most;  // anything else is a mistake
  const char* unit;
};
std::span<const CostField> cost_fields();
/// Null: CpuDistance::count_.
LinkCosts CostTable::*costs_at(CpuDistance distance);

/// Host name, processor model and kernel release, one line.
std::string machine_name();

/// Over the defaults in *out. An error, with a text, leaves *out alone.
Status parse_costs(std::string_view text, std::string_view machine, CostTable* out);
/// The opposite, from lines "name = value". Refuses what parse_costs would.
Status format_costs(std::string_view values, std::string_view machine, std::string* text);

/// From the file that THALWEG_COSTS names or the machine's own, else defaults. Warns of a bad file once. *wanted: there is
/// none yet, or one of another version, kernel or machine, and it may be written anew (machine_costs.hpp).
CostTable load_costs(bool* wanted = nullptr);
/// Writes the file, atomically; *path is its name.
Status save_costs(std::string_view values, std::string* path);

}  // namespace thalweg::impl
