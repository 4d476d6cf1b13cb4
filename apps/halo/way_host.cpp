// SPDX-License-Identifier: Apache-2.0
#include "halo/way.hpp"

namespace halo {
namespace {

class ByHost final : public Way {
 public:
  ByHost(apps::Ranks& ranks, Cube& cube) : cube_(cube), messages_(ranks, cube.shape(), cube.moves()) {}
  void run(uint64_t count) override {
    for (uint64_t n = 0; n < count; ++n) messages_.exchange(cube_.data());
  }

 private:
  Cube& cube_;
  apps::Messages messages_;
};

}  // namespace

std::unique_ptr<Way> by_host(apps::Ranks& ranks, Cube& cube) { return std::make_unique<ByHost>(ranks, cube); }

}  // namespace halo
