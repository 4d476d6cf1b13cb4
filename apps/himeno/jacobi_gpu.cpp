// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "gpu/gpu.hpp"
#include "himeno/jacobi.hpp"
#include "himeno/kernels.hpp"

namespace himeno {
namespace {

unsigned divide_up(Index n, Index by) { return static_cast<unsigned>((n + by - 1) / by); }

class OnGpu final : public Jacobi {
 public:
  OnGpu(apps::Ranks& ranks, Field& field, const std::string& place, const Reach* reach)
      : field_(field),
        context_(ranks.context),
        gpu_(place, kernels()),
        queue_(context_, place, gpu_.stream()),
        jacobi_(gpu_.kernel(reach == nullptr ? "jacobi" : "jacobi_put")),
        reach_(reach) {
    const Arrays& g = field.arrays();
    grid_ = {divide_up(g.inside[2], kBlock.x), divide_up(g.inside[1], kBlock.y), divide_up(g.inside[0], kThickness)};
    parts_.resize(size_t{grid_.x} * grid_.y * grid_.z);
    sums_ = context_.allocate(parts_.size() * sizeof(double), place.c_str());
    if (reach != nullptr) prepare_neighbours(place);
  }
  void enqueue(int from) override {
    Arrays arrays = field_.arrays();
    const float* p = field_.p(from);
    float* out = field_.p(1 - from);
    void* sums = sums_.data();
    Index thickness = kThickness;
    int into = 1 - from;
    thalweg::device::Window window{};
    if (reach_ != nullptr) window = reach_->window();
    void *neighbours = neighbours_.data(), *progress = progress_.data();
    // "jacobi" takes the first five
    void* arguments[] = {&arrays,           &p,       &out,      &sums, &thickness, &window, &neighbours,
                         &neighbour_count_, &blocks_, &progress, &into};
    gpu_.launch(jacobi_, grid_, kBlock, arguments);
  }
  const apps::Queue& queue() override { return queue_; }
  void synchronize() override { gpu_.synchronize(); }
  double gosa() override {
    context_.copy(parts_.data(), sums_.data(), parts_.size() * sizeof(double));
    double sum = 0;
    for (const double part : parts_) sum += part;
    return sum;
  }

 private:
  void prepare_neighbours(const std::string& place) {
    std::vector<Neighbour> neighbours = reach_->neighbours();
    const Progress start{};
    for (unsigned z = 0; z < grid_.z; ++z)
      for (unsigned y = 0; y < grid_.y; ++y)
        for (unsigned x = 0; x < grid_.x; ++x) count_block(neighbours, tile_of(x, y, z));
    neighbour_count_ = static_cast<u32>(neighbours.size());
    neighbours_ = context_.allocate(std::max<size_t>(neighbours.size(), 1) * sizeof(Neighbour), place.c_str());
    progress_ = context_.allocate(sizeof start, place.c_str());
    context_.copy(neighbours_.data(), neighbours.data(), neighbours.size() * sizeof(Neighbour));
    context_.copy(progress_.data(), &start, sizeof start);
  }
  static Tile tile_of(unsigned x, unsigned y, unsigned z) {
    const Index i = Index{z} * kThickness + 1, j = Index{y} * kBlock.y + 1, k = Index{x} * kBlock.x + 1;
    return {{i, j, k}, {i + kThickness, j + kBlock.y, k + kBlock.x}};
  }
  void count_block(std::vector<Neighbour>& neighbours, const Tile& tile) {
    bool any = false;
    for (Neighbour& n : neighbours) {
      const bool touches = n.touches(tile);
      n.blocks += touches ? 1 : 0;
      any = any || touches;
    }
    blocks_ += any ? 1 : 0;
  }
  static constexpr apps::Grid kBlock{64, 4, 1};
  static constexpr Index kThickness = 4;
  Field& field_;
  const thalweg::Context& context_;
  apps::Gpu gpu_;
  apps::Queue queue_;
  void* jacobi_;
  apps::Grid grid_;
  std::vector<double> parts_;
  thalweg::Memory sums_;
  const Reach* reach_;
  thalweg::Memory neighbours_, progress_;
  u32 neighbour_count_ = 0, blocks_ = 0;  // blocks of threads that have a neighbour to serve
};

}  // namespace

std::unique_ptr<Jacobi> on_gpu(apps::Ranks& ranks, Field& field, const std::string& place, const Reach* reach) {
  return std::make_unique<OnGpu>(ranks, field, place, reach);
}

}  // namespace himeno
