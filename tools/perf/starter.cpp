// SPDX-License-Identifier: Apache-2.0
#include "starter.hpp"

#include <sstream>

#include "tests.hpp"

namespace perf {
namespace {

constexpr uint64_t kLimit = 60'000'000'000;  // of preparing and of a run
}  // namespace

std::string plan_place(const Order& order, int side) {
  const std::string memory = order.memory[side];
  if (!on_device(memory)) return "host";
  const size_t colon = memory.find(':');
  const bool emulated = memory.rfind("emulated", 0) == 0;
  return (emulated ? "emulated" : "cuda") + (colon == std::string::npos ? ":0" : memory.substr(colon));
}

Starter::Starter(Pair& pair, const Order& order, unsigned plans)
    : pair_(pair), trigger_(static_cast<Trigger>(order.trigger)), runs_(order.verify ? 1 : batch_of(order)), plans_(plans) {
  const std::string place = plan_place(order, pair.rank);
  tw_plan_options o = TW_PLAN_OPTIONS_INIT;
  o.place = place.c_str();
  o.timeout_ns = kLimit;
  for (tw_plan*& plan : plans_) must(tw_plan_create(pair.context, &o, &plan), "tw_plan_create");
  tw_queue_options waits = TW_QUEUE_OPTIONS_INIT;
  waits.waits = order.waits;
  if (trigger_ != Trigger::host) must(tw_queue_create(pair.context, place.c_str(), &waits, &queue_), "tw_queue_create");
}

uint64_t Starter::counted(const Order& order) {
  return order.verify ? order.iterations * batch_of(order.size) : order.iterations;
}

Starter::~Starter() {
  if (graph_ != nullptr) tw_graph_destroy(graph_);
  for (tw_plan* plan : plans_) (void)tw_plan_destroy(plan);
  if (queue_ != nullptr) tw_queue_destroy(queue_);
}

void Starter::run_each(tw_queue* queue) {
  for (unsigned i = 0; i < runs_; ++i) {
    for (tw_plan* plan : plans_) {
      must(tw_plan_trigger(plan, queue), "tw_plan_trigger");
      if (queue == nullptr) must(tw_plan_finish(plan, kLimit), "tw_plan_finish");
    }
  }
}

void Starter::prepare() {
  for (tw_plan* plan : plans_) must(tw_plan_prepare(plan, kLimit), "tw_plan_prepare");
  if (trigger_ != Trigger::graph) return;
  must(tw_queue_begin_capture(queue_), "tw_queue_begin_capture");
  run_each(queue_);
  must(tw_queue_end_capture(queue_, &graph_), "tw_queue_end_capture");
}

void Starter::start() {
  if (trigger_ == Trigger::graph) {
    must(tw_graph_launch(graph_, queue_), "tw_graph_launch");
  } else {
    run_each(queue_);
  }
  if (queue_ != nullptr) must(tw_queue_synchronize(queue_), "tw_queue_synchronize");
}

std::string Starter::ways() const {
  std::string all;
  for (tw_plan* plan : plans_) {
    size_t length = 0;
    must(tw_plan_explain(plan, nullptr, &length), "tw_plan_explain");
    std::string text(length, '\0');
    must(tw_plan_explain(plan, text.data(), &length), "tw_plan_explain");
    all += text.c_str();
  }
  bool mapped = false, host = false;
  std::istringstream lines(all);
  for (std::string line; std::getline(lines, line);) {
    if (line.find(" wait ") != std::string::npos) continue;  // goes nowhere
    mapped |= line.find(": mapped") != std::string::npos;
    host |= line.find(": by the host:") != std::string::npos;
  }
  return mapped && host ? "mapped and by the host" : host ? "by the host" : "mapped";
}

}  // namespace perf
