// SPDX-License-Identifier: Apache-2.0
// The queue's trigger: an exchange prepared once, started again and again by a queue or by a graph captured from it.
#pragma once
#include <thalweg/plans.h>

#include "ranks/exchange.hpp"

namespace apps {

/// A queue of the host's own thread, or a stream of a GPU.
class Queue {
 public:
  /// stream null: a new queue at `place`.
  Queue(const thalweg::Context& context, const std::string& place, void* stream = nullptr);
  tw_queue* get() const { return queue_.get(); }
  /// What was enqueued is done; throws how it failed.
  void synchronize() const { must(tw_queue_synchronize(get())); }

 private:
  std::unique_ptr<tw_queue, decltype(&tw_queue_destroy)> queue_{nullptr, tw_queue_destroy};
};

/// One exchange of an array: a channel for every move.
class Plan {
 public:
  /// The peers make theirs with the same first_channel. `place`: whose queue starts it.
  Plan(Ranks& ranks, const Shape& shape, const Moves& moves, void* array, const std::string& place, uint64_t first_channel);
  /// Behind what the queue was given earlier. Without moves there is nothing to do.
  void trigger(const Queue& queue) const {
    if (plan_ != nullptr) must(tw_plan_trigger(plan_.get(), queue.get()));
  }

 private:
  std::vector<thalweg::Layout> layouts_;
  std::unique_ptr<tw_plan, decltype(&tw_plan_destroy)> plan_{nullptr, tw_plan_destroy};
};

/// What was enqueued between begin and end, to be launched any number of times.
class Graph {
 public:
  template <class F>
  Graph(const Queue& queue, F enqueue) {
    must(tw_queue_begin_capture(queue.get()));
    enqueue();
    tw_graph* made = nullptr;
    must(tw_queue_end_capture(queue.get(), &made));
    graph_.reset(made);
  }
  void launch(const Queue& queue) const { must(tw_graph_launch(graph_.get(), queue.get())); }

 private:
  std::unique_ptr<tw_graph, decltype(&tw_graph_destroy)> graph_{nullptr, tw_graph_destroy};
};

}  // namespace apps
