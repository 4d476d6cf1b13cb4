// SPDX-License-Identifier: Apache-2.0
// daxpy by a kernel: y += a * x, with y here and x in the other process's memory, read in place through a window. The kernel runs on the
// device of y, or where y is host memory on that of x. Beside it, in turn: a get of the same bytes, which a copy engine moves, and a
// kernel that copies x with the same loads on as many blocks.
#include <algorithm>
#include <cstring>
#include <functional>

#include "gpu.hpp"
#include "kernels/arguments.hpp"
#include "shared_window.hpp"
#include "tests.hpp"

namespace perf {
namespace {

constexpr double kFactor = 0.5;
constexpr size_t kGuard = 64;

/// Integers, so that any number of rounds gives exactly one answer.
double x_at(uint64_t seed, size_t i) { return static_cast<double>((i * 2654435761u + seed) % 4096); }
double y_at(uint64_t seed, size_t i) { return static_cast<double>((i * 40503u + seed) % 1024); }

/// One region for each side: x at the one, y at the other; then room for what is copied.
class Region {
 public:
  Region(tw_context* context, const std::string& place, size_t bytes)
      : bytes_(bytes), pitch_((bytes + kGuard + 4095) / 4096 * 4096), context_(context) {
    tw_memory_options o = TW_MEMORY_OPTIONS_INIT;
    o.place = place.c_str();
    must(tw_memory_allocate(context, 2 * pitch_, &o, &memory_), "tw_memory_allocate");
    poison(0);
    poison(1);
  }
  ~Region() { (void)tw_memory_release(memory_); }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  tw_memory* memory() const { return memory_; }
  unsigned char* at(size_t half) const { return static_cast<unsigned char*>(tw_memory_address(memory_)) + half * pitch_; }
  void poison(size_t half) {
    const std::vector<unsigned char> all(pitch_, 0xA5);
    must(tw_memory_copy(context_, at(half), all.data(), pitch_), "tw_memory_copy");
  }
  template <class F>
  void fill(F value) {
    std::vector<double> values(bytes_ / sizeof(double));
    for (size_t i = 0; i < values.size(); ++i) values[i] = value(i);
    must(tw_memory_copy(context_, at(0), values.data(), bytes_), "tw_memory_copy");
  }
  /// Exactly these doubles, and behind them what was there.
  template <class F>
  bool holds(size_t half, F value) const {
    std::vector<unsigned char> seen(bytes_ + kGuard);
    must(tw_memory_copy(context_, seen.data(), at(half), seen.size()), "tw_memory_copy");
    bool same = true;
    for (size_t i = 0; i < bytes_ / sizeof(double); ++i) {
      double one = 0;
      std::memcpy(&one, &seen[i * sizeof one], sizeof one);
      same &= one == value(i);
    }
    for (size_t i = bytes_; i < seen.size(); ++i) same &= seen[i] == 0xA5;
    return same;
  }

 private:
  size_t bytes_, pitch_;
  tw_context* context_;
  tw_memory* memory_ = nullptr;
};

/// A way to read x, and how many blocks do.
struct Way {
  const char *daxpy, *copy, *text;
  unsigned blocks;
};

class Kernels {
 public:
  Kernels(Pair& p, const Order& order, Region& region, tw_window* window)
      : p_(p),
        region_(region),
        window_(window),
        gpu_(ordinal_of(order.memory[on_device(order.memory[0]) ? 0 : 1])),
        each_(static_cast<unsigned>(std::clamp<uint64_t>(kEnough / std::max<uint64_t>(1, order.size), 2, 64))),
        bytes_(order.size / sizeof(double) * sizeof(double)) {
    must(tw_window_remote(window, 1, &remote_), "tw_window_remote");
    tw_device_window bound{};
    must(tw_window_bind(window, gpu_.place().c_str(), &bound), "tw_window_bind");
    std::memcpy(&stream_.data, &bound, sizeof bound);
    stream_.of = 1;
    stream_.count = bytes_ / sizeof(double);
    stream_.a = kFactor;
    find_way(on_device(order.memory[0]) && on_device(order.memory[1]));
  }
  unsigned each() const { return each_; }  // of them at a time
  uint64_t rounds() const { return rounds_; }
  const Way& way() const { return way_; }
  std::string place() const { return gpu_.place(); }

  /// each() of them, in seconds.
  double daxpy() {
    rounds_ += each_;
    return timed([&] { run(way_.daxpy, 0); });
  }
  double copy() {
    return timed([&] { run(way_.copy, 1); });
  }
  double get() {
    std::vector<tw_request> requests(each_, TW_REQUEST_NONE);
    return timed([&] {
      for (tw_request& r : requests) must(tw_get(p_.endpoint, region_.at(1), bytes_, remote_, 0, nullptr, &r), "tw_get");
      for (const tw_request& r : requests) p_.wait(r);
    });
  }

 private:
  static constexpr uint64_t kEnough = 128 << 20;

  template <class F>
  static double timed(F f) {
    const uint64_t start = now_ns();
    f();
    return static_cast<double>(now_ns() - start) / 1e9;
  }
  void run(const char* kernel, size_t half) {
    stream_.y = reinterpret_cast<u64>(region_.at(half));
    for (unsigned i = 0; i < each_; ++i) gpu_.launch(kernel, way_.blocks, kThreads, stream_);
    gpu_.finish(p_);
    must(tw_window_check(window_), "device code");
  }
  /// What is fastest on this link: as a program would, by trying.
  void find_way(bool between_devices) {
    constexpr int kTries = 3;  // the first one warms up
    std::vector<Way> ways;
    for (const unsigned quarters : {1u, 2u, 4u, 8u, 16u, 32u}) {
      const unsigned blocks = std::max(1u, quarters * gpu_.multiprocessors() / 4);
      ways.push_back({"perf_daxpy_4", "perf_copy_4", "4 words a thread", blocks});
      ways.push_back({"perf_daxpy_8", "perf_copy_8", "8 words a thread", blocks});
      if (between_devices && gpu_.orders_pieces())
        ways.push_back({"perf_daxpy_bulk", "perf_copy_bulk", "pieces of 8 KiB", blocks});
    }
    double best = 1e9;
    Way found = ways[0];
    for (const Way& way : ways) {
      way_ = way;
      for (int i = 0; i < kTries; ++i) {
        const double seconds = daxpy();
        if (i == 0 || seconds >= best) continue;
        best = seconds;
        found = way;
      }
    }
    way_ = found;
  }
  Pair& p_;
  Region& region_;
  tw_window* const window_;
  Gpu gpu_;
  const unsigned each_;
  const size_t bytes_;
  tw_remote_memory* remote_ = nullptr;
  Stream stream_{};
  Way way_{};
  uint64_t rounds_ = 0;
};

/// Rank 0. What was copied is verified, each way for itself.
Sample measured(Pair& p, const Order& order, Region& region, tw_window* window) {
  Sample s;
  Kernels kernels(p, order, region, window);
  const auto x = [&](size_t i) { return x_at(order.seed, i); };
  for (const bool by_kernel : {false, true}) {
    if (!order.verify) break;
    region.poison(1);
    by_kernel ? kernels.copy() : kernels.get();
    s.verified &= region.holds(1, x);
  }
  std::vector<double> daxpy, get, copy;
  const uint64_t warm = order.verify ? 0 : order.iterations / 10 + 1;
  for (uint64_t i = 0; i < warm + order.iterations; ++i) {
    const double times[] = {kernels.daxpy(), kernels.get(), kernels.copy()};
    if (i < warm) continue;
    daxpy.push_back(times[0]);
    get.push_back(times[1]);
    copy.push_back(times[2]);
  }
  s.verified &=
      region.holds(0, [&](size_t i) { return y_at(order.seed, i) + kFactor * static_cast<double>(kernels.rounds()) * x(i); });
  s.verified &= region.holds(1, x);
  s.seconds = percentile(daxpy, 50);
  s.bytes = order.size / sizeof(double) * sizeof(double);
  const double bytes = static_cast<double>(s.bytes) * kernels.each();
  const double by_get = percentile(get, 50), by_copy = percentile(copy, 50);
  s.figures = {{"get", bytes / by_get / 1e9, "GB/s"},
               {"of_get", 100 * by_get / s.seconds, "%"},
               {"copy_kernel", bytes / by_copy / 1e9, "GB/s"},
               {"of_copy_kernel", 100 * by_copy / s.seconds, "%"}};
  s.messages = kernels.each();
  s.route = std::string(tw_endpoint_transport(p.endpoint)) + " kernel on " + kernels.place() + ", mapped, " +
            kernels.way().text + ", " + std::to_string(kernels.way().blocks) + " x " + std::to_string(kThreads);
  return s;
}

}  // namespace

Sample daxpy_kernel(Pair& p, const Order& order) {
  if (!any_device(order)) return daxpy(p, order);
  Sample s;
  Region region(p.context, order.memory[p.rank], order.size / sizeof(double) * sizeof(double));
  region.fill([&](size_t i) { return p.rank == 1 ? x_at(order.seed, i) : y_at(order.seed, i); });
  {
    const SharedWindow shared(p, region.memory());
    if (p.rank == 0) s = measured(p, order, region, shared.get());
    p.sync();
  }
  if (p.rank == 1) s.verified = region.holds(0, [&](size_t i) { return x_at(order.seed, i); });
  return s;
}

}  // namespace perf
