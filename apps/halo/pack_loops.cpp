// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "halo/packer.hpp"

namespace halo {
namespace {

template <class T>
class Loops final : public Packer {
 public:
  explicit Loops(const Cube& cube) : cells_(static_cast<T*>(cube.data())), points_(cube.shape().points) {}
  void pack(const apps::Box& box, void* to) override {
    T* out = static_cast<T*>(to);
    each_row(box, [&](T* row) { out = std::copy_n(row, box.extent[2], out); });
  }
  void unpack(const apps::Box& box, const void* from) override {
    const T* in = static_cast<const T*>(from);
    each_row(box, [&](T* row) {
      std::copy_n(in, box.extent[2], row);
      in += box.extent[2];
    });
  }
  void synchronize() override {}

 private:
  template <class F>
  void each_row(const apps::Box& box, F body) {
    for (uint64_t i = box.start[0]; i < box.start[0] + box.extent[0]; ++i)
      for (uint64_t j = box.start[1]; j < box.start[1] + box.extent[1]; ++j)
        body(cells_ + (i * points_[1] + j) * points_[2] + box.start[2]);
  }
  T* const cells_;
  const apps::Triple points_;
};

}  // namespace

std::unique_ptr<Packer> pack_by_loops(const Cube& cube) {
  if (cube.shape().element == sizeof(float)) return std::make_unique<Loops<float>>(cube);
  return std::make_unique<Loops<double>>(cube);
}

}  // namespace halo
