// SPDX-License-Identifier: Apache-2.0
#include "routes/machine_costs.hpp"

#include <cstdio>
#include <map>
#include <mutex>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "routes/cost_text.hpp"
#include "routes/measure.hpp"

namespace thalweg::impl {
namespace {

constexpr uint64_t kMeasureNs = 100 * kMillisecond;
constexpr uint64_t kOthersNs = 300 * kMillisecond;

/// As the lines of a cost file.
std::string lines_of(const CostTable& table) {
  std::string lines;
  for (const CostField& field : cost_fields()) {
    const double value = table.*field.link.*field.value;
    if (field.link != &CostTable::shm || value == 0) continue;
    char line[80];
    std::snprintf(line, sizeof line, "%s = %.4g\n", field.name, value);
    lines += line;
  }
  return lines;
}

/// What could not be kept, by the file where it would be: measured once in this process.
struct Unkept {
  std::mutex lock;
  std::map<std::string, CostTable> tables;
};
Unkept& unkept() {
  static auto* const all = new Unkept;  // used until the process ends
  return *all;
}

void measure(CostTable* table) {
  TwoCores cores;
  if (!two_cores(&cores)) {
    table->why = "defaults: this process has one processor, which measures nothing";
    return;
  }
  if (const Status status = measure_shm(cores, kMeasureNs, &table->shm); is_error(status)) {
    table->why = last_error();
    return;
  }
  std::string path;
  const std::string lines = lines_of(*table);
  if (save_costs(lines, &path) == TW_OK) {
    table->source = path;
    table->why.clear();
    return;
  }
  table->source = "measured";
  table->why = std::string("measured by this process; not kept: ") + last_error();
}

}  // namespace

CostTable machine_costs() {
  bool wanted = false;
  CostTable table = load_costs(&wanted);
  if (!wanted) return table;
  const std::lock_guard guard(unkept().lock);
  if (const auto found = unkept().tables.find(table.file); found != unkept().tables.end()) return found->second;
  if (const Status status = make_place(table.file); is_error(status)) log(LogLevel::debug, "costs: %s", last_error());
  const UniqueFd lock = lock_beside(table.file, kOthersNs);
  if (lock) table = load_costs(&wanted);  // another process may have measured meanwhile
  if (!wanted) return table;
  measure(&table);
  if (table.source != table.file) unkept().tables[table.file] = table;
  return table;
}

}  // namespace thalweg::impl
