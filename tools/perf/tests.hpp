// SPDX-License-Identifier: Apache-2.0
// The measurements. Each runs on both ranks with the same order; rank 0's sample is reported.
#pragma once
#include <vector>

#include "gpu.hpp"
#include "pair.hpp"
#include "report.hpp"

namespace perf {

struct Sample {
  std::vector<double> latency_us;  // one way, one per batch
  double seconds = 0;              // of all windows
  uint64_t messages = 0;
  uint64_t bytes = 0;  // of a message; 0: as many as the order says
  unsigned batch = 0;  // round trips, or gets, in a time of latency_us; 0: batch_of(order)
  bool verified = true;
  bool fresh = false;  // each message was new data
  std::string route;
  std::vector<Figure> figures;
};

struct Test {
  const char* name;
  bool latency;
  std::vector<size_t> sizes;  // defaults
  Sample (*run)(Pair&, const Order&);
  Sample (*planned)(Pair&, const Order&) = nullptr;  // with --trigger host, queue or graph; null: refused
  Sample (*kernel)(Pair&, const Order&) = nullptr;   // with --trigger kernel; null: refused
};
const Test* find_test(const std::string& name);

Sample tag_latency(Pair&, const Order&);
Sample tag_window(Pair&, const Order&);  // bandwidth and rate
Sample tag_both(Pair&, const Order&);    // both directions at once
Sample am_latency(Pair&, const Order&);
Sample am_window(Pair&, const Order&);
Sample bytes_latency(Pair&, const Order&);
Sample bytes_window(Pair&, const Order&);
Sample put_latency(Pair&, const Order&);
Sample put_window(Pair&, const Order&);
Sample get_latency(Pair&, const Order&);
Sample get_window(Pair&, const Order&);
Sample blocks_window(Pair&, const Order&);
Sample atomic_latency(Pair&, const Order&);
Sample atomic_window(Pair&, const Order&);
Sample overlap(Pair&, const Order&);
Sample daxpy(Pair&, const Order&);
// Of plans (plans.cpp, faces.cpp): the order's trigger is one of theirs.
Sample signal_latency(Pair&, const Order&);
Sample channel_latency(Pair&, const Order&);
Sample put_latency_planned(Pair&, const Order&);
Sample chain(Pair&, const Order&);
Sample signal_latency_kernel(Pair&, const Order&);
Sample put_latency_kernel(Pair&, const Order&);
Sample faces(Pair&, const Order&);
// Of kernels on GPUs (gpu_*.cpp), or where the order has no device of their twins on the CPU.
Sample signal_latency_gpu(Pair&, const Order&);
Sample put_latency_gpu(Pair&, const Order&);
Sample put_window_kernel(Pair&, const Order&);
Sample channel_latency_kernel(Pair&, const Order&);
Sample faces_kernel(Pair&, const Order&);
Sample daxpy_kernel(Pair&, const Order&);

/// How many round trips are timed together, so that reading the clock does not matter.
inline unsigned batch_of(size_t size) { return size <= 1024 ? 20 : size <= 8192 ? 10 : size <= 65536 ? 4 : 1; }
inline bool any_device(const Order& order) { return on_device(order.memory[0]) || on_device(order.memory[1]); }
/// Of one launch of a kernel. Two processes take turns on one GPU, a slice of time each.
inline unsigned launch_batch_of(const Order& order) {
  const bool both = on_device(order.memory[0]) && on_device(order.memory[1]);
  if (both && ordinal_of(order.memory[0]) == ordinal_of(order.memory[1])) return 4;
  return order.size <= 65536 ? 500 : order.size <= (1u << 20) ? 100 : 20;
}
/// What a queue or a kernel runs by itself is enqueued at once, and the host waits for the last of it: more, so that this
/// does not matter.
inline unsigned batch_of(const Order& order) {
  if (order.trigger == static_cast<uint8_t>(Trigger::kernel) && any_device(order)) return launch_batch_of(order);
  const bool queued =
      order.trigger == static_cast<uint8_t>(Trigger::queue) || order.trigger == static_cast<uint8_t>(Trigger::graph);
  return !queued ? batch_of(order.size) : order.size <= 65536 ? 50 : 20;
}

/// Times order.iterations batches of `round` (one round trip each) after a tenth of them for warming up.
template <class Round>
void time_batches(const Order& order, std::vector<double>* out, Round round) {
  unsigned batch = batch_of(order.size);
  uint64_t warm = order.verify ? 0 : order.iterations / 10 + 1;
  if (out) out->reserve(order.iterations);
  for (uint64_t b = 0; b < warm + order.iterations; ++b) {
    uint64_t start = now_ns();
    for (unsigned i = 0; i < batch; ++i) round();
    if (out && b >= warm) out->push_back(static_cast<double>(now_ns() - start) / 2e3 / batch);
  }
}

/// Runs order.iterations windows after a tenth for warming up and returns the median time of one, in seconds.
template <class Window>
double time_windows(const Order& order, Window window) {
  uint64_t warm = order.verify ? 0 : order.iterations / 10 + 1;
  std::vector<double> times;
  for (uint64_t w = 0; w < warm + order.iterations; ++w) {
    uint64_t start = now_ns();
    window();
    if (w >= warm) times.push_back(static_cast<double>(now_ns() - start) / 1e9);
  }
  return percentile(times, 50);
}

/// Calibrates with a short verified run, then measures for o.seconds. Rank 0; the other rank obeys.
Result measure(Pair& pair, const Options& o, const Test& test, size_t size);
/// Starts the other process and runs o.test. The exit code.
int start_locally(const Options& o, char** argv);
int run_tune(Options options, char** argv);   // measures this machine's costs and keeps them
void tune_link(Pair& pair, Options options);  // its part over one link

void run_self(const Options& options);  // both ends in one worker

}  // namespace perf
