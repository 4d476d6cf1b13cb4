// SPDX-License-Identifier: Apache-2.0
#include "himeno/loop.hpp"

namespace himeno {
namespace {

class HostLoop final : public Loop {
 public:
  HostLoop(apps::Ranks& ranks, Field& field, Jacobi& jacobi, const apps::Moves& moves)
      : field_(field), jacobi_(jacobi), messages_(ranks, field.shape(), moves) {}
  void run(uint64_t count) override {
    for (uint64_t n = 0; n < count; ++n) {
      jacobi_.enqueue(from_);
      jacobi_.synchronize();
      from_ = 1 - from_;
      messages_.exchange(field_.p(from_));
    }
  }

 private:
  Field& field_;
  Jacobi& jacobi_;
  apps::Messages messages_;
  int from_ = 0;
};

}  // namespace

std::unique_ptr<Loop> host_loop(apps::Ranks& ranks, Field& field, Jacobi& jacobi, const apps::Moves& moves) {
  return std::make_unique<HostLoop>(ranks, field, jacobi, moves);
}

}  // namespace himeno
