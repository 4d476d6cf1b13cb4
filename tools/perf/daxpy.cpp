// SPDX-License-Identifier: Apache-2.0
// y += a * x by this process's CPU, where x is the other process's memory, read in place through a window. Its rate beside
// that of a get of the same bytes shows the cost of computing across the link.
#include "shared_window.hpp"
#include "tests.hpp"

namespace perf {
namespace {

constexpr double kFactor = 0.5;

/// Integers, so that any number of rounds gives exactly one answer.
double x_at(uint64_t seed, size_t i) { return static_cast<double>((i * 2654435761u + seed) % 4096); }
double y_at(uint64_t seed, size_t i) { return static_cast<double>((i * 40503u + seed) % 1024); }

double get_seconds(Pair& p, const Order& order, const SharedWindow& shared, void* to, size_t bytes) {
  tw_remote_memory* remote = nullptr;
  must(tw_window_remote(shared.get(), 1, &remote), "tw_window_remote");
  return time_windows(order, [&] {
    tw_request r = TW_REQUEST_NONE;
    must(tw_get(p.endpoint, to, bytes, remote, 0, nullptr, &r), "tw_get");
    p.wait(r);
  });
}

}  // namespace

Sample daxpy(Pair& p, const Order& order) {
  Sample s;
  const size_t n = order.size / sizeof(double), bytes = n * sizeof(double);
  Buffers buffers(p.context, order, 1, p.rank);
  std::vector<double> values(n), landed(n);
  for (size_t i = 0; i < n; ++i) values[i] = p.rank == 1 ? x_at(order.seed, i) : y_at(order.seed, i);
  buffers.write(0, values.data(), bytes);
  {
    const SharedWindow shared(p, buffers);
    if (p.rank == 0) {
      void* there = nullptr;
      must(tw_window_address(shared.get(), 1, &there), "tw_window_address");
      const auto* x = static_cast<const double*>(there);
      auto* y = reinterpret_cast<double*>(buffers.at(0));
      uint64_t rounds = 0;
      s.seconds = time_windows(order, [&] {
        for (size_t i = 0; i < n; ++i) y[i] += kFactor * x[i];
        ++rounds;
      });
      for (size_t i = 0; i < n; ++i) {
        s.verified &= y[i] == y_at(order.seed, i) + kFactor * static_cast<double>(rounds) * x_at(order.seed, i);
      }
      const double get = get_seconds(p, order, shared, landed.data(), bytes);
      s.figures = {{"get", static_cast<double>(bytes) / get / 1e9, "GB/s"}, {"of_get", 100 * get / s.seconds, "%"}};
      for (size_t i = 0; i < n; ++i) s.verified &= landed[i] == x_at(order.seed, i);
    }
    p.sync();
  }
  s.route = std::string(tw_endpoint_transport(p.endpoint)) + " mapped";
  s.messages = 1;
  s.bytes = bytes;
  return s;
}

}  // namespace perf
