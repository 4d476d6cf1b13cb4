// SPDX-License-Identifier: Apache-2.0
// Packing a box into contiguous memory and back, as users do it: loops, or one kernel a box.
#pragma once
#include <memory>

#include "halo/cube.hpp"

namespace halo {

class Packer {
 public:
  virtual ~Packer() = default;
  virtual void pack(const apps::Box& box, void* to) = 0;
  virtual void unpack(const apps::Box& box, const void* from) = 0;
  /// What was asked for is done.
  virtual void synchronize() = 0;
};

std::unique_ptr<Packer> pack_by_loops(const Cube& cube);
std::unique_ptr<Packer> pack_by_kernels(const Cube& cube, const std::string& place);

}  // namespace halo
