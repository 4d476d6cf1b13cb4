// SPDX-License-Identifier: Apache-2.0
// A schedule with what its runs need: which steps follow a step, and which message between two ranks one is.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/schedule.hpp"

namespace thalweg::impl {

/// Immutable; shared by the runs of a group.
class PreparedSchedule {
 public:
  explicit PreparedSchedule(Schedule schedule);
  /// TW_ERR_LIMIT: more messages between two ranks than tags tell apart.
  Status check() const;
  const Schedule& schedule() const { return schedule_; }
  const std::vector<CollectiveStep>& steps() const { return schedule_.steps; }
  std::span<const Part> sources_of(const CollectiveStep& step) const {
    return std::span(schedule_.sources).subspan(step.first_source, step.sources);
  }
  std::span<const uint32_t> next_of(uint32_t step) const {
    return std::span(next_).subspan(first_next_[step], first_next_[step + 1] - first_next_[step]);
  }
  /// send: the n-th of this rank to the peer; recv: from it.
  uint32_t message_of(uint32_t step) const { return message_[step]; }

 private:
  const Schedule schedule_;
  std::vector<uint32_t> first_next_, next_, message_;
};

}  // namespace thalweg::impl
