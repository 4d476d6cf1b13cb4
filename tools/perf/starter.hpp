// SPDX-License-Identifier: Apache-2.0
// Prepared plans, started by --trigger.
#pragma once
#include <thalweg/plans.h>

#include <string>
#include <vector>

#include "pair.hpp"

namespace perf {

/// Where plans of this side run: the device of its buffers, or "host".
std::string plan_place(const Order& order, int side);

/// Plans, empty at first, then prepared and started one after the other, as many times in a row as the order's batches have (of an order
/// to verify: once).
class Starter {
 public:
  Starter(Pair& pair, const Order& order, unsigned plans = 1);
  ~Starter();
  Starter(const Starter&) = delete;
  Starter& operator=(const Starter&) = delete;
  tw_plan* plan(unsigned i = 0) const { return plans_[i]; }
  unsigned runs() const { return runs_; }
  /// Starts of an order, those for warming up apart. Of one to verify each starts a single run, so that it can be looked at.
  static uint64_t counted(const Order& order);
  void prepare();            // when all steps are added; both ranks
  void start();              // runs() of them, one after the other, and waits for the end
  std::string ways() const;  // how the steps go: "mapped", "by the host", or both

 private:
  void run_each(tw_queue* queue);  // runs() times
  Pair& pair_;
  const Trigger trigger_;
  const unsigned runs_;
  std::vector<tw_plan*> plans_;
  tw_queue* queue_ = nullptr;
  tw_graph* graph_ = nullptr;
};

}  // namespace perf
