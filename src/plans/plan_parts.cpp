// SPDX-License-Identifier: Apache-2.0
// Between kernels of collectives are gaps, numbered by the kernels that came before: a step belongs to one of them.
#include "plans/plan_parts.hpp"

#include <algorithm>
#include <map>
#include <tuple>

namespace thalweg::impl {
namespace {

bool waits(const PlanStep& step) {
  return step.op.verb == Verb::send || step.op.verb == Verb::recv || step.op.verb == Verb::wait;
}

/// The gap of each step; of a kernel, the one behind it.
std::vector<uint32_t> gaps_of(const PlanList& list) {
  std::vector<uint32_t> gap(list.size());
  uint32_t kernels = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i].exchange != nullptr) ++kernels;
    if (!list[i].of.empty()) gap[i] = kernels;
    for (const uint32_t earlier : list[i].after) gap[i] = std::max(gap[i], gap[earlier]);
  }
  return gap;
}

/// What waits, and its messages in the order of their channel, are where they have to be.
Status check_waits(const PlanList& list, const std::vector<uint32_t>& gap, uint32_t kernels) {
  std::vector<uint32_t> due(list.size(), kernels);  // the last gap from where what comes after it is not late
  std::map<std::tuple<const void*, uint64_t, uint64_t, Verb>, uint32_t> last;
  for (size_t i = list.size(); i-- > 0;) {
    if (list[i].exchange != nullptr) {
      due[i] = gap[i] - 1;
    } else if (!list[i].of.empty()) {
      due[i] = std::min(due[i], gap[i]);
    }
    for (const uint32_t earlier : list[i].after) due[earlier] = std::min(due[earlier], due[i]);
  }
  for (size_t i = 0; i < list.size(); ++i) {
    const PlanStep& step = list[i];
    if (!waits(step)) continue;
    if (due[i] != gap[i])
      return at_step(i, step,
                     fail(TW_ERR_UNSUPPORTED,
                          "it waits for a peer, and comes neither before nor after a collective that one kernel on each device "
                          "does: name one in the other's after_steps; or, on all ranks, an algorithm of several steps"));
    if (step.op.verb == Verb::wait) continue;
    const auto [at, first] = last.try_emplace({step.endpoint, step.group, step.op.tag, step.op.verb}, gap[i]);
    if (!first && at->second > gap[i])
      return at_step(i, step,
                     fail(TW_ERR_UNSUPPORTED,
                          "an earlier step of its channel comes after a later collective: add them in the "
                          "order of their messages"));
    at->second = gap[i];
  }
  return TW_OK;
}

}  // namespace

Status part_plan(const PlanList& list, std::vector<uint32_t>* part_of, uint32_t* parts) {
  part_of->assign(list.size(), 0);
  *parts = 1;
  const auto is_kernel = [](const PlanStep& step) { return step.exchange != nullptr; };
  const auto kernels = static_cast<uint32_t>(std::count_if(list.begin(), list.end(), is_kernel));
  if (kernels == 0) return TW_OK;
  const std::vector<uint32_t> gap = gaps_of(list);
  if (Status s = check_waits(list, gap, kernels); is_error(s)) return s;
  std::vector<uint32_t> number(2 * kernels + 1);  // gap 0, kernel 1, gap 1, ...
  for (size_t i = 0; i < list.size(); ++i) {
    (*part_of)[i] = 2 * gap[i] - (is_kernel(list[i]) ? 1 : 0);
    number[(*part_of)[i]] = 1;
  }
  *parts = 0;
  for (uint32_t& each : number) each = each != 0 ? (*parts)++ : 0;
  for (uint32_t& each : *part_of) each = number[each];
  return TW_OK;
}

}  // namespace thalweg::impl
