// SPDX-License-Identifier: Apache-2.0
// Ping-pong by kernels: each side's runs on the device of its buffers. Where one side has host memory its CPU answers, by device code's
// twin: with a signal alone, as it cannot store into a device. Without any device both sides run the twin.
#pragma once
#include <optional>

#include "gpu.hpp"
#include "kernels/arguments.hpp"
#include "shared_window.hpp"
#include "tests.hpp"

namespace perf {

/// How a kernel is launched.
struct Shape {
  const char* kernel;
  unsigned blocks = 1, threads = 1;
};
/// One thread, a block, or several blocks, as the bytes of a message want it.
Shape shape_for(uint64_t bytes, const char* by_thread, const char* by_block, const char* by_blocks);

class KernelRounds {
 public:
  /// Both ranks. Puts go into `target`.
  KernelRounds(Pair& pair, const Order& order, const Buffers& target);
  KernelRounds(const KernelRounds&) = delete;
  KernelRounds& operator=(const KernelRounds&) = delete;
  /// The order's launches of round trips, as `rounds` says what to put; one way in microseconds, a sample a launch (rank 0 alone has a use
  /// for it). Packed: through the room instead.
  std::vector<double> run(const Shape& shape, Rounds rounds, bool packed = false);
  bool on_gpu() const { return gpu_.has_value(); }
  /// Does the peer put data here, or does its CPU only signal?
  bool receives() const { return on_device(order_.memory[!pair_.rank]) || !any_device(order_); }
  std::string route(const Shape& shape) const;
  static constexpr uint64_t kMostLl = 16384;  // bytes of a message

 private:
  double launch(const Shape& shape, Rounds& rounds);
  Pair& pair_;
  const Order order_;
  Buffers words_;  // buffer 0 begins with the flag; buffer 1 is the room of LL messages
  std::optional<Gpu> gpu_;
  std::optional<DeviceWords> own_;
  SharedWindow data_, flags_;
  thalweg::device::Window bound_data_{}, bound_flags_{};
  uint64_t rounds_ = 0;
};

}  // namespace perf
