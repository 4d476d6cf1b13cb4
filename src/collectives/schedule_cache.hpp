// SPDX-License-Identifier: Apache-2.0
// Which algorithm a group's collectives take, and the schedules that they have run: both cost more than a short collective.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "collectives/choose.hpp"
#include "collectives/prepared_schedule.hpp"

namespace thalweg::impl {

class ScheduleCache {
 public:
  explicit ScheduleCache(const CollectiveCosts& costs) : costs_(costs) {}
  /// algorithm null: chosen, the same on all ranks. *out stays null: the algorithm has no schedule.
  Status find(const Collective& what, const char* algorithm, std::shared_ptr<const PreparedSchedule>* out);
  /// From now on; before the first choice of kernels.
  CollectiveCosts& costs() { return costs_; }
  /// The same where kernels may do it: by which of their protocols; none: find() has the schedule.
  Status choose_kernels(const Collective& what, const char* algorithm, Kernels* out);
  /// Adds the candidates, and this rank's schedule by the one that find() takes.
  Status explain(const Collective& what, const char* algorithm, std::string* text);
  size_t choices() const { return choices_.size(); }  // that were made: the ranks were modelled for each

 private:
  using Choice =
      std::tuple<CollectiveKind, uint64_t, uint32_t, uint32_t, uint16_t, uint64_t>;  // count, element, root, bits, chunk
  using Key = std::tuple<Choice, bool, std::string>;                                 // exact count, in place, algorithm
  const Algorithm* choose_for(const Collective& what);
  Status pick(const Collective& what, const char* name, const Algorithm** out);

  static constexpr size_t kMost = 256, kMostChoices = 1024;
  CollectiveCosts costs_;
  std::map<Choice, const Algorithm*> choices_;
  std::map<Key, std::shared_ptr<const PreparedSchedule>> schedules_;
};

}  // namespace thalweg::impl
