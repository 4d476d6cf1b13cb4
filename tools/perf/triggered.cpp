// SPDX-License-Identifier: Apache-2.0
#include "triggered.hpp"

namespace perf {
namespace {

constexpr uint64_t kLimit = 60'000'000'000;  // of preparing and of a run

}  // namespace

Triggered::Triggered(const Ranks& ranks, const Options& o, const std::string& place, unsigned runs, const Call& call)
    : trigger_(o.trigger), runs_(runs), call_(call) {
  if (trigger_ != Trigger::host) {
    tw_queue_options options = TW_QUEUE_OPTIONS_INIT;
    options.waits = o.waits;
    must(tw_queue_create(ranks.context, place.c_str(), &options, &queue_), "tw_queue_create");
  }
  if (trigger_ == Trigger::host || trigger_ == Trigger::plan) {
    tw_plan_options options = TW_PLAN_OPTIONS_INIT;
    options.place = place.c_str();
    options.timeout_ns = kLimit;
    must(tw_plan_create(ranks.context, &options, &plan_), "tw_plan_create");
    must(call_({.plan = plan_}), "a collective in a plan");
    must(tw_plan_prepare(plan_, kLimit), "tw_plan_prepare");
    return;
  }
  must(call_({.queue = queue_}), "a collective on a queue");  // prepares what the next ones run
  must(tw_queue_synchronize(queue_), "tw_queue_synchronize");
  if (trigger_ != Trigger::graph) return;
  must(tw_queue_begin_capture(queue_), "tw_queue_begin_capture");
  enqueue();
  must(tw_queue_end_capture(queue_, &graph_), "tw_queue_end_capture");
}

Triggered::~Triggered() {
  if (graph_ != nullptr) tw_graph_destroy(graph_);
  if (plan_ != nullptr) (void)tw_plan_destroy(plan_);
  if (queue_ != nullptr) tw_queue_destroy(queue_);
}

void Triggered::enqueue() {
  for (unsigned i = 0; i < runs_; ++i) {
    must(plan_ != nullptr ? tw_plan_trigger(plan_, queue_) : call_({.queue = queue_}), "a collective on a queue");
    if (queue_ == nullptr) must(tw_plan_finish(plan_, kLimit), "tw_plan_finish");
  }
}

void Triggered::start() {
  if (graph_ != nullptr) {
    must(tw_graph_launch(graph_, queue_), "tw_graph_launch");
  } else {
    enqueue();
  }
  if (queue_ == nullptr) return;
  must(tw_queue_synchronize(queue_), "tw_queue_synchronize");
  must(tw_queue_check(queue_), "a collective on a queue");
}

}  // namespace perf
