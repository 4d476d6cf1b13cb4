// SPDX-License-Identifier: Apache-2.0
#include <optional>

#include "himeno/jacobi.hpp"

namespace himeno {
namespace {

namespace device = thalweg::device;

class OnProcessor final : public Jacobi {
 public:
  OnProcessor(apps::Ranks& ranks, Field& field, const Reach* reach) : context_(ranks.context), field_(field), reach_(reach) {}
  void enqueue(int from) override {
    if (queue_) {
      apps::must(tw_queue_call(queue_->get(), from == 0 ? iterate_from<0> : iterate_from<1>, this));
    } else {
      iterate(from);
    }
  }
  const apps::Queue& queue() override {
    if (!queue_) queue_.emplace(context_, "host");
    return *queue_;
  }
  void synchronize() override {}
  double gosa() override { return gosa_; }

 private:
  template <int from>
  static void iterate_from(void* me) {
    static_cast<OnProcessor*>(me)->iterate(from);
  }
  void iterate(int from) {
    if (reach_ != nullptr && !wait_for_neighbours()) return;
    const Arrays& g = field_.arrays();
    gosa_ = 0;
    for (Index i = 1; i <= g.inside[0]; ++i)
      for (Index j = 1; j <= g.inside[1]; ++j)
        gosa_ += row(g, field_.p(from), field_.p(1 - from), i * g.stride_i + j * g.stride_j + 1);
    if (reach_ != nullptr) put(1 - from);
  }
  bool wait_for_neighbours() {
    for (const Neighbour& n : reach_->neighbours())
      if (!device::wait(device::Thread(), reach_->window(), n.word, device::Compare::greater_equal, generation_, n.rank))
        return false;
    return true;
  }
  void put(int which) {
    const Arrays& g = field_.arrays();
    ++generation_;
    for (const Neighbour& n : reach_->neighbours()) {
      const float* own = field_.p(which) + n.first[0] * g.stride_i + n.first[1] * g.stride_j + n.first[2];
      const float* there = device::pointer<float>(reach_->window(), n.rank, n.to[which], n.span());
      const auto width = static_cast<u64>(n.extent[2]), rows = static_cast<u64>(n.extent[1]);
      if (there == nullptr) return;
      device::copy(device::Thread(), device::slices_at(there, width, rows, n.to_stride_j, n.to_stride_i),
                   device::slices_at(own, width, rows, g.stride_j, g.stride_i),
                   width * rows * static_cast<u64>(n.extent[0]) * sizeof(float));
      device::signal(device::Thread(), reach_->window(), n.rank, n.its_word, generation_);
    }
  }
  static double row(const Arrays& arrays, const float* p, float* out, Index first) {
    const Arrays g = arrays;  // a local copy: the stores below cannot change it
    double gosa = 0;
#pragma omp simd reduction(+ : gosa)
    for (Index at = first; at < first + g.inside[2]; ++at) {
      const float ss = residual(g, p, at);
      out[at] = p[at] + kOmega * ss;
      gosa += static_cast<double>(ss * ss);
    }
    return gosa;
  }
  const thalweg::Context& context_;
  Field& field_;
  const Reach* reach_;
  u64 generation_ = 0;  // of iterations with a reach
  double gosa_ = 0;
  std::optional<apps::Queue> queue_;  // ends first: its thread uses the others
};

}  // namespace

std::unique_ptr<Jacobi> on_processor(apps::Ranks& ranks, Field& field, const Reach* reach) {
  return std::make_unique<OnProcessor>(ranks, field, reach);
}

}  // namespace himeno
