// SPDX-License-Identifier: Apache-2.0
// Collectives, started by --trigger.
#pragma once
#include <thalweg/collectives.h>
#include <thalweg/plans.h>

#include <functional>
#include <string>

#include "ranks.hpp"

namespace perf {

/// What a collective is called on: its own function, unless there is a queue or a plan.
struct Form {
  tw_request* request = nullptr;
  tw_queue* queue = nullptr;
  tw_plan* plan = nullptr;
  template <class Call, class On, class Planned, class... Args>
  tw_status operator()(Call call, On on, Planned planned, tw_group* group, Args... args) const {
    if (queue != nullptr) return on(queue, group, args...);
    if (plan != nullptr) return planned(plan, group, args..., nullptr);
    return call(group, args..., request);
  }
};

/// One collective with its buffers, started again and again. queue: single ones on a queue; graph: those, captured once; plan: a
/// plan on a queue; host: a plan by the host.
class Triggered {
 public:
  using Call = std::function<tw_status(const Form&)>;
  /// All ranks. place: "host", or the device of the buffers. runs: of each start.
  Triggered(const Ranks& ranks, const Options& o, const std::string& place, unsigned runs, const Call& call);
  ~Triggered();
  Triggered(const Triggered&) = delete;
  Triggered& operator=(const Triggered&) = delete;
  void start();                                                            // and waits for the end
  tw_queue* queue() const { return plan_ == nullptr ? queue_ : nullptr; }  // on which single ones are; null: in a plan

 private:
  void enqueue();
  const Trigger trigger_;
  const unsigned runs_;
  const Call call_;
  tw_queue* queue_ = nullptr;
  tw_plan* plan_ = nullptr;
  tw_graph* graph_ = nullptr;
};

}  // namespace perf
