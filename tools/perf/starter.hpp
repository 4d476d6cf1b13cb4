// SPDX-License-Identifier: Apache-2.0
// Prepared plans, started in the way that --trigger says.
#pragma once
#include <thalweg/plans.h>

#include "pair.hpp"

namespace perf {

/// Where plans of this side run: the device of its buffers, or "host".
std::string plan_place(const Order& order, int side);

/// A plan, empty at first, then prepared and started with as many runs at a time as the order's batches have.
class Starter {
 public:
  Starter(Pair& pair, const Order& order);
  ~Starter();
  Starter(const Starter&) = delete;
  Starter& operator=(const Starter&) = delete;
  tw_plan* plan() const { return plan_; }
  unsigned runs() const { return runs_; }
  void prepare();            // when all steps are added; both ranks
  void start();              // runs() of them, one after the other, and waits for the end
  std::string ways() const;  // how the steps go: "mapped", "by the host", or both

 private:
  Pair& pair_;
  const Trigger trigger_;
  const unsigned runs_;
  tw_plan* plan_ = nullptr;
  tw_queue* queue_ = nullptr;
  tw_graph* graph_ = nullptr;
};

}  // namespace perf
