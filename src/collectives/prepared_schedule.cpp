// SPDX-License-Identifier: Apache-2.0
#include "collectives/prepared_schedule.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "collectives/group_wire.hpp"

namespace thalweg::impl {

PreparedSchedule::PreparedSchedule(Schedule schedule) : schedule_(std::move(schedule)) {
  const std::vector<CollectiveStep>& steps = schedule_.steps;
  first_next_.assign(steps.size() + 1, 0);
  for (const uint32_t before : schedule_.after) ++first_next_[before + 1];
  for (size_t i = 0; i < steps.size(); ++i) first_next_[i + 1] += first_next_[i];
  next_.resize(schedule_.after.size());
  std::vector<uint32_t> at(first_next_.begin(), first_next_.end() - 1);
  message_.resize(steps.size());
  std::map<std::pair<StepVerb, uint32_t>, uint32_t> messages;
  for (uint32_t i = 0; i < steps.size(); ++i) {
    const CollectiveStep& step = steps[i];
    for (uint32_t k = 0; k < step.after; ++k) next_[at[schedule_.after[step.first_after + k]]++] = i;
    if (step.verb == StepVerb::send || step.verb == StepVerb::recv) message_[i] = messages[{step.verb, step.peer}]++;
  }
}

Status PreparedSchedule::check() const {
  const uint32_t last = message_.empty() ? 0 : *std::max_element(message_.begin(), message_.end());
  if (last < kMostMessages) return TW_OK;
  return fail(TW_ERR_LIMIT, "the algorithm sends %u messages between two ranks: name another one, or do it in parts", last + 1);
}

}  // namespace thalweg::impl
