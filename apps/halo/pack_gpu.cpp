// SPDX-License-Identifier: Apache-2.0
#include "gpu/gpu.hpp"
#include "halo/kernels.hpp"
#include "halo/packer.hpp"

namespace halo {
namespace {

class Kernels final : public Packer {
 public:
  Kernels(const Cube& cube, const std::string& place)
      : cells_(cube.data()),
        points_(cube.shape().points),
        gpu_(place, kernels()),
        move_(gpu_.kernel(cube.shape().element == sizeof(float) ? "move4" : "move8")) {}
  void pack(const apps::Box& box, void* to) override { launch(box, to, true); }
  void unpack(const apps::Box& box, const void* from) override { launch(box, const_cast<void*>(from), false); }
  void synchronize() override { gpu_.synchronize(); }

 private:
  void launch(apps::Box box, void* packed, bool in) {
    void* arguments[] = {&cells_, &packed, &box, &points_[1], &points_[2], &in};
    constexpr unsigned kThreads = 256;
    gpu_.launch(move_, {static_cast<unsigned>((box.points() + kThreads - 1) / kThreads)}, {kThreads}, arguments);
  }
  void* cells_;
  apps::Triple points_;
  apps::Gpu gpu_;
  void* move_;
};

}  // namespace

std::unique_ptr<Packer> pack_by_kernels(const Cube& cube, const std::string& place) {
  return std::make_unique<Kernels>(cube, place);
}

}  // namespace halo
