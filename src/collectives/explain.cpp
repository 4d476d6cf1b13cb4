// SPDX-License-Identifier: Apache-2.0
#include "collectives/explain.hpp"

#include <cstdio>

namespace thalweg::impl {
namespace {

std::string text_of(const Part& part) {
  static constexpr const char* kNames[] = {"input", "output", "scratch"};
  return std::string(kNames[static_cast<size_t>(part.where)]) + "[" + std::to_string(part.offset) + ", " +
         std::to_string(part.offset + part.length) + ")";
}

std::string text_of(const Schedule& schedule, const CollectiveStep& step) {
  switch (step.verb) {
    case StepVerb::send:
      return "send " + text_of(step.from) + " to " + std::to_string(step.peer);
    case StepVerb::recv:
      return "recv " + text_of(step.to) + " from " + std::to_string(step.peer);
    case StepVerb::copy:
      return "copy " + text_of(step.to) + " = " + text_of(step.from);
    case StepVerb::reduce:
      break;
  }
  std::string text = "reduce " + text_of(step.to) + " =";
  for (uint32_t i = 0; i < step.sources; ++i) {
    text += (i == 0 ? " " : ", ") + text_of(schedule.sources[step.first_source + i]);
  }
  return text;
}

}  // namespace

std::string schedule_text(const Schedule& schedule) {
  std::string text;
  for (size_t i = 0; i < schedule.steps.size(); ++i) {
    const CollectiveStep& step = schedule.steps[i];
    text += std::to_string(i) + " " + text_of(schedule, step);
    for (uint32_t k = 0; k < step.after; ++k) {
      text += (k == 0 ? " after " : " ") + std::to_string(schedule.after[step.first_after + k]);
    }
    text += "\n";
  }
  return text;
}

std::string candidates_text(const Collective& collective, const CollectiveCosts& costs, const Algorithm* taken) {
  std::string text;
  for (const Candidate& each : candidates(collective, costs, true)) {
    const bool marked = taken != nullptr ? each.algorithm == taken : each.chosen;
    char line[160];
    const char* const why_not = each.why_not != nullptr ? each.why_not : "";
    const char* const gap = each.why_not != nullptr ? "  " : "";
    if (each.ns == 0 && each.why_not != nullptr) {
      std::snprintf(line, sizeof line, "  %-20s %12s  %s\n", each.algorithm->name, "-", why_not);
    } else {
      std::snprintf(line, sizeof line, "%c %-20s %12.1f us%s%s\n", marked ? '*' : ' ', each.algorithm->name, each.ns / 1000,
                    gap, why_not);
    }
    text += line;
  }
  return text;
}

}  // namespace thalweg::impl
