// SPDX-License-Identifier: Apache-2.0
#include "himeno/jacobi.hpp"

namespace himeno {
namespace {

class OnProcessor final : public Jacobi {
 public:
  explicit OnProcessor(Field& field) : field_(field) {}
  void enqueue(int from) override { gosa_ = iterate(field_.arrays(), field_.p(from), field_.p(1 - from)); }
  void synchronize() override {}
  double gosa() override { return gosa_; }

 private:
  static double iterate(const Arrays& g, const float* p, float* out) {
    double gosa = 0;
    for (Index i = 1; i <= g.inside[0]; ++i)
      for (Index j = 1; j <= g.inside[1]; ++j) gosa += row(g, p, out, i * g.stride_i + j * g.stride_j + 1);
    return gosa;
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
  Field& field_;
  double gosa_ = 0;
};

}  // namespace

std::unique_ptr<Jacobi> on_processor(Field& field) { return std::make_unique<OnProcessor>(field); }

}  // namespace himeno
