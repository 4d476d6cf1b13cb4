// SPDX-License-Identifier: Apache-2.0
#include <optional>

#include "himeno/loop.hpp"
#include "ranks/plan.hpp"

namespace himeno {
namespace {

class QueueLoop final : public Loop {
 public:
  QueueLoop(apps::Ranks& ranks, Field& field, Jacobi& jacobi, const apps::Moves& moves, const std::string& place, bool captured)
      : jacobi_(jacobi), queue_(jacobi.queue()) {
    for (int which = 0; which < 2; ++which) {
      plans_.emplace_back(ranks, field.shape(), moves, field.p(which), place, 32u * static_cast<unsigned>(which));
    }
    if (!captured) return;
    graph_.emplace(queue_, [this] {  // two, as the buffers swap
      step();
      step();
    });
  }
  void run(uint64_t count) override {
    for (uint64_t n = 0; n < count;) {
      if (graph_ && from_ == 0 && n + 2 <= count) {
        graph_->launch(queue_);
        n += 2;
      } else {
        step();
        ++n;
      }
    }
    queue_.synchronize();
  }

 private:
  void step() {
    jacobi_.enqueue(from_);
    from_ = 1 - from_;
    plans_[static_cast<size_t>(from_)].trigger(queue_);
  }
  Jacobi& jacobi_;
  const apps::Queue& queue_;
  std::vector<apps::Plan> plans_;
  std::optional<apps::Graph> graph_;
  int from_ = 0;
};

}  // namespace

std::unique_ptr<Loop> queue_loop(apps::Ranks& ranks, Field& field, Jacobi& jacobi, const apps::Moves& moves,
                                 const std::string& place, bool captured) {
  return std::make_unique<QueueLoop>(ranks, field, jacobi, moves, place, captured);
}

}  // namespace himeno
