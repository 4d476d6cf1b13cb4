// SPDX-License-Identifier: Apache-2.0
// gradient: training that is spread over however many processes there are ("thalweg run -n 4 ./example_cpp_gradient"). Each rank has
// data of its own for the line y = 3 x - 1; an allreduce averages the gradients, so that all ranks keep the same weights.
#include <array>
#include <cmath>
#include <cstdio>
#include <exception>
#include <thalweg/thalweg.hpp>

namespace {

constexpr unsigned kSamples = 64, kSteps = 400;

std::array<double, 2> gradient_of(const std::array<double, 2>& weights, unsigned rank, unsigned size) {
  std::array<double, 2> gradient{};
  for (unsigned i = 0; i < kSamples; ++i) {
    const double x = static_cast<double>(i * size + rank) / (kSamples * size) * 2 - 1;
    const double wrong = weights[0] * x + weights[1] - (3 * x - 1);
    gradient[0] += 2 * wrong * x / kSamples;
    gradient[1] += 2 * wrong / kSamples;
  }
  return gradient;
}

}  // namespace

int main() try {
  const auto world = thalweg::init();
  std::array<double, 2> weights{};
  for (unsigned step = 0; step < kSteps; ++step) {
    auto gradient = gradient_of(weights, world.rank(), world.size());
    thalweg::check(thalweg::allreduce(world.get(), gradient, TW_REDUCE_AVERAGE));
    for (size_t i = 0; i < 2; ++i) weights[i] -= 0.3 * gradient[i];
  }
  const bool right = std::abs(weights[0] - 3) < 1e-6 && std::abs(weights[1] + 1) < 1e-6;
  if (!right) throw thalweg::Error(TW_ERR_PROTOCOL, "the line is wrong");
  if (world.rank() == 0) std::printf("gradient: %u ranks found y = %.3f x %+.3f\n", world.size(), weights[0], weights[1]);
  world.barrier();
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "gradient: %s\n", error.what());
  return 1;
}
