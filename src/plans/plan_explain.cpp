// SPDX-License-Identifier: Apache-2.0
// A plan as text: each step's way, and the tables of routes from which it follows.
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
  say(text, step.op.verb == Verb::wait ? "the word" : "the buffer", how.local);
  say(text, step.op.verb == Verb::reduce ? "the destination" : "the other buffer", how.target);
  for (size_t i = 0; i < how.sources.size(); ++i) say(text, ("source " + std::to_string(i)).c_str(), how.sources[i].how);
  say(text, "the peer's memory", how.remote.how);
  say(text, "the signal's word", how.signal.how);
  return text;
}

std::string kernel_of(const ExchangeStep& step) {
  return std::string("one kernel on each device, protocol ") + step.protocol() + ", " + std::to_string(step.blocks) +
         " blocks of " + std::to_string(step.what.threads) + " threads";
}

bool moves(const PlanStep& step) {
  const bool data = step.op.verb == Verb::send || step.op.verb == Verb::put || step.op.verb == Verb::get;
  return (data || step.op.verb == Verb::atomic) && step.op.length != 0;
}

}  // namespace

std::string tw_plan::explain() const {
  std::string text = "plan of " + std::to_string(list_.size()) + " steps, run by " +
                     (executor_ != nullptr ? executor_->name() : std::string("?")) + "\n";
  std::map<std::string, size_t> said;  // tables, and whose they are
  for (size_t i = 0; i < list_.size(); ++i) {
    const PlanStep& step = list_[i];
    text += "  " + std::to_string(i) + " " + name_of(step.op.verb) + " " + std::to_string(step.op.length) + " bytes";
    if (step.op.verb == Verb::send || step.op.verb == Verb::recv)
      text += ", " + name_of_channel(step);
    else if (!step.of.empty())
      text += ", " + step.of;
    text += ": ";
    if (i >= resolved_.size()) {
      text += "not prepared\n";
      continue;
    }
    const Resolved& how = resolved_[i];
    text += how.proxied ? "by the host: " + how.why : step.exchange != nullptr ? kernel_of(*step.exchange) : "mapped";
    const Way way = way_of_step(executor_->device() != nullptr, step.op.verb == Verb::get);
    if (how.bounced) text += ", in a bounce buffer that the kernel copies";
    if (moves(step) && !how.proxied) text += std::string(", way: ") + name_of(way);
    if (const std::string pieces = pieces_.explain(i); !pieces.empty()) text += ", " + pieces;
    text += "\n";
    const std::string tables = tables_of(step, how);
    if (tables.empty()) continue;
    const auto [known, first] = said.emplace(tables, i);
    text += first ? tables : "    as of step " + std::to_string(known->second) + "\n";
  }
  return prepared_ ? text + program_.explain_waits(runs_.waited_ahead()) : text;
}
