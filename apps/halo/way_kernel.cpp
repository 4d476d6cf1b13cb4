// SPDX-License-Identifier: Apache-2.0
#include <thalweg/windows.hpp>

#include "halo/direct.hpp"
#include "halo/kernels.hpp"
#include "halo/way.hpp"

namespace halo {
namespace {

namespace device = thalweg::device;

device::Side side_of(const apps::Shape& shape, const apps::Box& box, u64 base) {
  const auto [ni, nj, nk] = shape.points;
  const u64 at = base + ((box.start[0] * nj + box.start[1]) * nk + box.start[2]) * shape.element;
  const auto pitch = static_cast<device::i64>(nk * shape.element), slice = static_cast<device::i64>(nj * nk * shape.element);
  if (box.extent[2] == nk && (box.extent[1] == nj || box.extent[0] == 1)) return device::contiguous_at(at);
  return {at, box.extent[2] * shape.element, {box.extent[1], 0}, {pitch, slice, 0}, nullptr, 0};
}

std::vector<Route> routes_of(const Cube& cube) {
  std::vector<Route> routes;
  for (size_t n = 0; n < cube.moves().sends.size(); ++n) {
    const apps::Move &out = cube.moves().sends[n], &in = cube.moves().receives[n];
    routes.push_back({static_cast<u32>(out.peer), static_cast<u32>(in.peer),
                      side_of(cube.shape(), out.box, reinterpret_cast<u64>(cube.data())), side_of(cube.shape(), in.box, 0),
                      out.box.points() * cube.shape().element, cube.word(2 * out.tag), cube.word(2 * out.tag + 1)});
  }
  return routes;
}

/// The window and the routes, of either.
class Direct : public Way {
 public:
  Direct(apps::Ranks& ranks, Cube& cube, const std::string& place)
      : routes_(routes_of(cube)), window_(ranks.group.window(cube.memory())), bound_(window_.bind(place.c_str())) {}

 protected:
  std::vector<Route> routes_;
  thalweg::Window window_;
  device::Window bound_;
  u64 done_ = 0;  // exchanges
};

class ByProcessor final : public Direct {
 public:
  using Direct::Direct;
  void run(uint64_t count) override {
    for (const u64 end = done_ + count; done_ < end;) {
      if (!exchange(device::Thread(), bound_, routes_.data(), static_cast<u32>(routes_.size()), ++done_)) break;
    }
    window_.check();
  }
};

/// One launch for all exchanges of a run: a group of blocks for each box.
class ByKernel final : public Direct {
 public:
  ByKernel(apps::Ranks& ranks, Cube& cube, const std::string& place)
      : Direct(ranks, cube, place),
        gpu_(place, kernels()),
        exchange_(gpu_.kernel("exchange_all")),
        blocks_(routes_.size() == 1 ? kBlocksOfAPlane : kBlocksOfABox),
        on_gpu_(ranks.context.allocate(routes_.size() * sizeof(Route), place.c_str())),
        arrived_(ranks.context.allocate(routes_.size() * sizeof(u32), place.c_str())) {
    const std::vector<u32> zeros(routes_.size());
    ranks.context.copy(on_gpu_.data(), routes_.data(), routes_.size() * sizeof(Route));
    ranks.context.copy(arrived_.data(), zeros.data(), zeros.size() * sizeof(u32));
  }
  void run(uint64_t count) override {
    const void *routes = on_gpu_.data(), *arrived = arrived_.data();
    u64 first = done_ + 1, last = done_ + count;
    done_ = last;
    void* arguments[] = {&bound_, &routes, &arrived, &first, &last};
    gpu_.launch(exchange_, {blocks_, static_cast<unsigned>(routes_.size())}, {kThreads}, arguments);
    gpu_.synchronize();
    window_.check();
  }

 private:
  // All of a launch run at the same time, as they wait for each other's peers.
  static constexpr unsigned kBlocksOfAPlane = 32, kBlocksOfABox = 4, kThreads = 512;
  apps::Gpu gpu_;
  void* exchange_;
  const unsigned blocks_;
  thalweg::Memory on_gpu_, arrived_;
};

}  // namespace

std::unique_ptr<Way> by_kernel(apps::Ranks& ranks, Cube& cube, const std::string& place) {
  if (apps::on_gpu(place)) return std::make_unique<ByKernel>(ranks, cube, place);
  return std::make_unique<ByProcessor>(ranks, cube, "host");
}

}  // namespace halo
