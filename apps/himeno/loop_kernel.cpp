// SPDX-License-Identifier: Apache-2.0
#include "himeno/loop.hpp"

namespace himeno {
namespace {

class KernelLoop final : public Loop {
 public:
  KernelLoop(Jacobi& jacobi, const Reach& reach) : jacobi_(jacobi), reach_(reach) {}
  void run(uint64_t count) override {
    for (uint64_t n = 0; n < count; ++n) {
      jacobi_.enqueue(from_);
      from_ = 1 - from_;
    }
    jacobi_.synchronize();
    reach_.check();
  }

 private:
  Jacobi& jacobi_;
  const Reach& reach_;
  int from_ = 0;
};

}  // namespace

std::unique_ptr<Loop> kernel_loop(Jacobi& jacobi, const Reach& reach) { return std::make_unique<KernelLoop>(jacobi, reach); }

}  // namespace himeno
