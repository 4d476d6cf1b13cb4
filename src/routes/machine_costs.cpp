// SPDX-License-Identifier: Apache-2.0
#include "routes/machine_costs.hpp"

#include <sched.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "routes/cost_text.hpp"
#include "routes/measure.hpp"
#include "routes/measure_tcp.hpp"

namespace thalweg::impl {
namespace {

constexpr uint64_t kMeasureNs = 200 * kMillisecond;
constexpr uint64_t kDistancesNs = 60 * kMillisecond;  // of all distances
constexpr uint64_t kTcpNs = 50 * kMillisecond;
constexpr uint64_t kOthersNs = 400 * kMillisecond;

/// The lines of a cost file: those of shm, and the file's for the rest.
std::string lines_of(const CostTable& table) {
  static const CostTable defaults;
  std::string lines;
  for (const CostField& field : cost_fields()) {
    const double value = table.*field.link.*field.value;
    const bool shm = field.link != &CostTable::tcp;
    if (value == 0 || (!shm && value == defaults.*field.link.*field.value)) continue;
    lines += cost_line(field.name, value);
  }
  return lines;
}

/// Costs that could not be saved, by their file: measured once in this process.
struct Unsaved {
  std::mutex lock;
  std::map<std::string, CostTable> tables;
  std::set<std::string> tried;  // files whose rest this process has tried to measure
};
Unsaved& unsaved() {
  static auto* const all = new Unsaved;  // used until the process ends
  return *all;
}

bool has(const CostTable& table, CpuDistance distance) { return (table.*costs_at(distance)).frame != 0; }

/// Distances that this process's processors have and the table says nothing of: none where all of the machine's have the
/// same one.
std::vector<CpuDistance> missing(const CostTable& table, const CpuTopology& topology, const cpu_set_t& allowed) {
  std::vector<CpuDistance> found;
  if ((topology.distances() & (topology.distances() - 1)) == 0) return found;
  const uint32_t here = topology.distances(allowed);
  for (size_t i = 0; i < kCpuDistances; ++i) {
    const auto distance = static_cast<CpuDistance>(i);
    if ((here & bit_of(distance)) != 0 && !has(table, distance)) found.push_back(distance);
  }
  return found;
}

/// Costs of shm without a distance are of the pair that thalweg tune measures: the first two processors.
void place_general(CostTable* table, const CpuTopology& topology, const cpu_set_t& allowed) {
  if (table->distances()) return;
  std::vector<unsigned> first;
  for (unsigned cpu = 0; cpu < CPU_SETSIZE && first.size() < 2; ++cpu)
    if (CPU_ISSET(cpu, &allowed)) first.push_back(cpu);
  if (first.size() < 2) return;
  table->*costs_at(topology.between(first[0], first[1])) = table->shm;
}

/// Nearest first, as far as time allows: what is left waits for the next context. False: nothing could be measured.
bool measure_distances(const std::vector<CpuDistance>& wanted, const CpuTopology& topology, const cpu_set_t& allowed,
                       CostTable* table) {
  const uint64_t begin = monotonic_ns();
  bool any = false;
  for (const CpuDistance distance : wanted) {
    const uint64_t spent = monotonic_ns() - begin;
    unsigned first = 0, second = 0;
    if (any && spent + spent / 2 > kDistancesNs) break;
    if (!topology.pair_at(distance, allowed, static_cast<unsigned>(std::max(0, sched_getcpu())), &first, &second)) continue;
    LinkCosts costs = table->shm;
    if (is_error(measure_shm({static_cast<int>(first), static_cast<int>(second)}, kMeasureNs - std::min(spent, kDistancesNs),
                             &costs)))
      break;
    table->*costs_at(distance) = costs;
    any = true;
  }
  return any;
}

/// Of what most pairs of this process's processors have, if that was measured.
void choose_general(const CpuTopology& topology, const cpu_set_t& allowed, CostTable* table) {
  CpuDistance usual = CpuDistance::core;
  if (topology.usual(allowed, allowed, &usual)) table->shm = table->shm_at(usual);
  for (size_t i = 0; i < kCpuDistances && !has(*table, usual); ++i)
    if (has(*table, static_cast<CpuDistance>(i))) table->shm = table->*costs_at(static_cast<CpuDistance>(i));
}

bool measure_loopback(CostTable* table) {
  TwoCores cores;
  if (table->tcp_measured || !two_cores(&cores)) return false;
  table->tcp_measured = !is_error(measure_tcp(cores, kTcpNs, &table->tcp));
  if (!table->tcp_measured) log(LogLevel::debug, "costs of tcp stay defaults: %s", last_error());
  return table->tcp_measured;
}

void keep(CostTable* table) {
  std::string path;
  if (save_costs(lines_of(*table), &path) == TW_OK) {
    table->source = path;
    table->why.clear();
    return;
  }
  table->source = "measured";
  table->why = std::string("measured by this process; not kept: ") + last_error();
}

/// The first costs of this machine.
void measure(const CpuTopology& topology, const cpu_set_t& allowed, CostTable* table) {
  TwoCores cores;
  if (!two_cores(&cores)) {
    table->why = "defaults: there is one processor, which measures nothing";
    return;
  }
  const std::vector<CpuDistance> wanted = missing(*table, topology, allowed);
  const bool measured = wanted.empty() ? !is_error(measure_shm(cores, kMeasureNs, &table->shm))
                                       : measure_distances(wanted, topology, allowed, table);
  if (!measured) {
    table->why = last_error();
    return;
  }
  if (!wanted.empty()) choose_general(topology, allowed, table);
  (void)measure_loopback(table);
  keep(table);
}

/// Others, with fewer processors or less time, have left something.
void measure_rest(const CpuTopology& topology, const cpu_set_t& allowed, CostTable* table) {
  place_general(table, topology, allowed);
  const std::vector<CpuDistance> wanted = missing(*table, topology, allowed);
  const bool distances = !wanted.empty() && measure_distances(wanted, topology, allowed, table);
  if (measure_loopback(table) || distances) keep(table);
}

}  // namespace

CostTable machine_costs(const CpuTopology* given) {
  bool wanted = false;
  CostTable table = load_costs(&wanted);
  if (!wanted && !table.measured()) return table;
  const CpuTopology& topology = given != nullptr ? *given : CpuTopology::of_machine();
  const cpu_set_t allowed = measuring_processors();
  const auto rest = [&] {
    CostTable placed = table;
    place_general(&placed, topology, allowed);
    return !table.tcp_measured || !missing(placed, topology, allowed).empty();
  };
  if (!wanted && !rest()) return table;
  const std::lock_guard guard(unsaved().lock);
  if (const auto found = unsaved().tables.find(table.file); found != unsaved().tables.end()) return found->second;
  if (!wanted && !unsaved().tried.insert(table.file).second) return table;
  if (const Status status = make_place(table.file); is_error(status)) log(LogLevel::debug, "costs: %s", last_error());
  const UniqueFd lock = lock_beside(table.file, kOthersNs);
  if (lock) table = load_costs(&wanted);  // another process may have measured meanwhile
  if (wanted) measure(topology, allowed, &table);
  if (!wanted && table.measured()) measure_rest(topology, allowed, &table);
  if (table.source != table.file) unsaved().tables[table.file] = table;
  return table;
}

}  // namespace thalweg::impl
