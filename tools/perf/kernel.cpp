// SPDX-License-Identifier: Apache-2.0
// --trigger kernel: device code of include/thalweg/device stores into the other side's memory and waits for its answer, without a
// call of the library. Here it is that code's twin on the CPU; gpu_rounds.cpp has it on GPUs.
#include <thalweg/device/window.hpp>

#include "rounds.hpp"
#include "shared_window.hpp"
#include "tests.hpp"

namespace perf {
namespace {

using thalweg::device::u64;

/// Round trips of `bytes` bytes (0: the signal alone). Buffer 0 is the target, buffer 1 begins with the signal.
Sample rounds(Pair& p, const Order& order, uint64_t bytes) {
  using thalweg::device::Block;
  Sample s;
  Buffers source(p.context, order, 1, p.rank), target(p.context, order, 2, p.rank);
  Rounds rounds(order, p.rank, bytes == 0 ? nullptr : &source, bytes == 0 ? Rounds::Right() : all_right(target, 1));
  constexpr u64 kZero = 0;
  target.write(1, &kZero, sizeof kZero);
  const SharedWindow shared(p, target);
  const thalweg::device::Window window = shared.bind("host");
  const auto there = static_cast<uint32_t>(!p.rank);
  u64 round = 0;
  bool ok = true;
  auto send = [&] {
    rounds.before_send();
    ok = ok &&
         (bytes == 0 ? thalweg::device::signal(Block(), window, there, target.offset(1), round)
                     : thalweg::device::put_signal(Block(), window, there, 0, source.at(0), bytes, target.offset(1), round));
  };
  auto see = [&] {
    ok = ok && thalweg::device::wait(Block(), window, target.offset(1), thalweg::device::Compare::greater_equal, round);
    rounds.behind_receive();
  };
  p.sync();
  time_batches(order, p.rank == 0 ? &s.latency_us : nullptr, [&] {
    ++round;
    if (p.rank == 0) send();
    see();
    if (p.rank == 1) send();
  });
  if (!ok) shared.check();
  s.route = std::string(tw_endpoint_transport(p.endpoint)) + " device code, mapped";
  u64 seen = 0;
  target.read(1, &seen, sizeof seen);
  s.verified = ok && seen == round && rounds.verified();
  p.sync();
  return s;
}

}  // namespace

Sample signal_latency_kernel(Pair& p, const Order& order) {
  return any_device(order) ? signal_latency_gpu(p, order) : rounds(p, order, 0);
}
Sample put_latency_kernel(Pair& p, const Order& order) {
  return any_device(order) ? put_latency_gpu(p, order) : rounds(p, order, order.size);
}

}  // namespace perf
