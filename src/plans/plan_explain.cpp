// SPDX-License-Identifier: Apache-2.0
// A plan said aloud: each step's way, and the tables of routes from which it follows.
#include <map>

#include "plans/plan.hpp"

using namespace thalweg::impl;

namespace {

void say(std::string& text, const char* what, const Reaching& how) {
  if (!how.asked) return;
  text += std::string("    ") + what + ":\n" + prepared_table(how.facts, how.failed, how.why);
}

std::string tables_of(const PlanStep& step, const Resolved& how) {
  std::string text;
  say(text, step.verb == StepVerb::wait ? "the word" : "the buffer", how.local);
  say(text, "the other buffer", how.target);
  say(text, "the peer's memory", how.remote.how);
  say(text, "the signal's word", how.signal.how);
  return text;
}

bool moves(const PlanStep& step) {
  const bool data = step.verb == StepVerb::send || step.verb == StepVerb::put || step.verb == StepVerb::get;
  return (data || step.verb == StepVerb::atomic) && step.length != 0;
}

}  // namespace

std::string tw_plan::explain() const {
  std::string text = "plan of " + std::to_string(steps.size()) + " steps, run by " +
                     (executor != nullptr ? executor->name() : std::string("?")) + "\n";
  std::map<std::string, size_t> said;  // tables, and whose they are
  for (size_t i = 0; i < steps.size(); ++i) {
    const PlanStep& step = steps[i];
    text += "  " + std::to_string(i) + " " + name_of(step.verb) + " " + std::to_string(step.length) + " bytes";
    if (step.verb == StepVerb::send || step.verb == StepVerb::recv) text += ", channel " + std::to_string(step.tag);
    text += ": ";
    if (i >= resolved.size()) {
      text += "not prepared\n";
      continue;
    }
    const Resolved& how = resolved[i];
    text += how.proxied ? "by the host: " + how.why : std::string("mapped");
    const Way way = way_of_step(executor->device() != nullptr, step.verb == StepVerb::get);
    if (moves(step) && !how.proxied) text += std::string(", way: ") + name_of(way);
    text += "\n";
    const std::string tables = tables_of(step, how);
    if (tables.empty()) continue;
    const auto [known, first] = said.emplace(tables, i);
    text += first ? tables : "    as of step " + std::to_string(known->second) + "\n";
  }
  return text + explain_waits();
}
