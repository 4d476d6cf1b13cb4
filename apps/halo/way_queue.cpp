// SPDX-License-Identifier: Apache-2.0
#include <optional>

#include "halo/way.hpp"
#include "ranks/plan.hpp"

namespace halo {
namespace {

class ByQueue final : public Way {
 public:
  ByQueue(apps::Ranks& ranks, Cube& cube, const std::string& place, bool captured)
      : queue_(ranks.context, place), plan_(ranks, cube.shape(), cube.moves(), cube.data(), place, captured ? 32 : 0) {
    if (!captured) return;
    graph_.emplace(queue_, [this] {
      for (uint64_t n = 0; n < kInGraph; ++n) plan_.trigger(queue_);
    });
  }
  void run(uint64_t count) override {
    for (uint64_t n = 0; n < count;) {
      const bool whole = graph_ && n + kInGraph <= count;
      if (whole) {
        graph_->launch(queue_);
      } else {
        plan_.trigger(queue_);
      }
      n += whole ? kInGraph : 1;
    }
    queue_.synchronize();
  }

 private:
  static constexpr uint64_t kInGraph = 10;  // as an application's graph has more than an exchange
  apps::Queue queue_;
  apps::Plan plan_;
  std::optional<apps::Graph> graph_;
};

}  // namespace

std::unique_ptr<Way> by_queue(apps::Ranks& ranks, Cube& cube, const std::string& place, bool captured) {
  return std::make_unique<ByQueue>(ranks, cube, place, captured);
}

}  // namespace halo
