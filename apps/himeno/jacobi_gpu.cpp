// SPDX-License-Identifier: Apache-2.0
#include "gpu/gpu.hpp"
#include "himeno/jacobi.hpp"
#include "himeno/kernels.hpp"

namespace himeno {
namespace {

unsigned divide_up(Index n, Index by) { return static_cast<unsigned>((n + by - 1) / by); }

class OnGpu final : public Jacobi {
 public:
  OnGpu(apps::Ranks& ranks, Field& field, const std::string& place)
      : field_(field), context_(ranks.context), gpu_(place, kernels()), jacobi_(gpu_.kernel("jacobi")) {
    const Arrays& g = field.arrays();
    grid_ = {divide_up(g.inside[2], kBlock.x), divide_up(g.inside[1], kBlock.y), divide_up(g.inside[0], kThickness)};
    parts_.resize(size_t{grid_.x} * grid_.y * grid_.z);
    sums_ = context_.allocate(parts_.size() * sizeof(double), place.c_str());
  }
  void enqueue(int from) override {
    Arrays arrays = field_.arrays();
    const float* p = field_.p(from);
    float* out = field_.p(1 - from);
    void* sums = sums_.data();
    Index thickness = kThickness;
    void* arguments[] = {&arrays, &p, &out, &sums, &thickness};
    gpu_.launch(jacobi_, grid_, kBlock, arguments);
  }
  void synchronize() override { gpu_.synchronize(); }
  double gosa() override {
    context_.copy(parts_.data(), sums_.data(), parts_.size() * sizeof(double));
    double sum = 0;
    for (const double part : parts_) sum += part;
    return sum;
  }

 private:
  static constexpr apps::Grid kBlock{64, 4, 1};
  static constexpr Index kThickness = 4;
  Field& field_;
  thalweg::Context& context_;
  apps::Gpu gpu_;
  void* jacobi_;
  apps::Grid grid_;
  std::vector<double> parts_;
  thalweg::Memory sums_;
};

}  // namespace

std::unique_ptr<Jacobi> on_gpu(apps::Ranks& ranks, Field& field, const std::string& place) {
  return std::make_unique<OnGpu>(ranks, field, place);
}

}  // namespace himeno
