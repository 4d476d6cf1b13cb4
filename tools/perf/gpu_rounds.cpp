// SPDX-License-Identifier: Apache-2.0
#include "gpu_rounds.hpp"

#include <algorithm>

#include "kernels/rounds.hpp"

namespace perf {
namespace {

constexpr size_t kArrived = 0, kTook = 16;  // of DeviceWords: on lines of their own

/// Words and rooms: in the devices, or where one side has none in host memory, which the other side's device polls.
Order order_of_words(const Order& order) {
  Order words = order;
  words.size = thalweg::device::ll_size(KernelRounds::kMostLl);
  words.layout = {};
  if (on_device(order.memory[0]) && on_device(order.memory[1])) return words;
  for (auto& memory : words.memory) std::snprintf(memory, kMemoryName, "host");
  return words;
}

}  // namespace

Shape shape_for(uint64_t bytes, const char* by_thread, const char* by_block, const char* by_blocks) {
  constexpr uint64_t kWord = 16, kOneBlock = 16384, kMuch = 1 << 20;
  if (bytes <= kWord) return {by_thread, 1, 1};
  const auto threads = static_cast<unsigned>((bytes / kWord + 31) / 32 * 32);
  if (bytes <= kOneBlock) return {by_block, 1, std::clamp(threads, 32u, kThreads)};
  return {by_blocks, bytes <= kMuch ? 16u : 64u, kThreads};
}

KernelRounds::KernelRounds(Pair& pair, const Order& order, const Buffers& target)
    : pair_(pair),
      order_(order),
      words_(pair.context, order_of_words(order), 2, pair.rank),
      data_(pair, target),
      flags_(pair, words_) {
  const std::vector<unsigned char> zeros(order_of_words(order).size);
  for (size_t i = 0; i < 2; ++i) words_.write(i, zeros.data(), zeros.size());
  const std::string memory = order.memory[pair.rank];
  if (on_device(memory)) {
    gpu_.emplace(ordinal_of(memory));
    own_.emplace(pair.context, gpu_->place());
  }
  if (gpu_ || !any_device(order)) bound_data_ = data_.bind(gpu_ ? gpu_->place() : "host");
  bound_flags_ = flags_.bind(gpu_ ? gpu_->place() : "host");
}

double KernelRounds::launch(const Shape& shape, Rounds& rounds) {
  rounds.before = rounds_;
  rounds_ += rounds.warm + rounds.rounds;
  u64 took = 0;
  if (gpu_) {
    gpu_->launch(shape.kernel, std::min(shape.blocks, gpu_->multiprocessors()), shape.threads, rounds);
    gpu_->finish(pair_);
    took = own_->read(kTook);
  } else {
    rounds.took = &took;
    const thalweg::device::Block by_cpu;
    rounds.rows != 0 ? play<StridedForm>(rounds, by_cpu) : play<PutForm>(rounds, by_cpu);
  }
  data_.check();
  flags_.check();
  return static_cast<double>(took) / 2e3 / rounds.rounds;
}

std::vector<double> KernelRounds::run(const Shape& shape, Rounds rounds, bool packed) {
  rounds.data = packed ? bound_flags_ : bound_data_;
  rounds.flags = bound_flags_;
  rounds.flag = words_.offset(0);
  if (packed) rounds.to = words_.offset(1);
  rounds.rounds = batch_of(order_);
  rounds.warm = rounds.rounds / 50 + 1;
  rounds.leads = pair_.rank == 0;
  if (gpu_) {
    rounds.arrived = own_->at<u32>(kArrived);
    rounds.took = own_->at<u64>(kTook);
  } else if (any_device(order_)) {  // signals alone
    rounds.data = bound_flags_;
    rounds.bytes = rounds.rows = 0;
  }
  pair_.sync();  // both are ready: their memory is as it should be, and nothing is allocated while kernels wait
  std::vector<double> one_way;
  const uint64_t warm = order_.verify ? 0 : order_.iterations / 10 + 1;
  for (uint64_t i = 0; i < warm + order_.iterations; ++i) {
    const double us = launch(shape, rounds);
    if (i >= warm) one_way.push_back(us);
  }
  pair_.sync();
  return one_way;
}

std::string KernelRounds::route(const Shape& shape) const {
  if (!any_device(order_)) return std::string(tw_endpoint_transport(pair_.endpoint)) + " device code, mapped";
  std::string text = std::string(tw_endpoint_transport(pair_.endpoint)) + " kernel of " + std::to_string(shape.blocks) + " x " +
                     std::to_string(shape.threads) + ", mapped";
  if (on_device(order_.memory[0]) != on_device(order_.memory[1])) text += ", answered by the CPU's signal";
  return text;
}

namespace {

Sample latency(Pair& p, const Order& order, uint64_t bytes) {
  Sample s;
  Buffers source(p.context, order, 1, p.rank), target(p.context, order, 1, p.rank), recv_buffer(p.context, order, 1, p.rank);
  source.fill(order.seed + static_cast<uint64_t>(p.rank));
  KernelRounds kernels(p, order, target);
  Rounds rounds{};
  rounds.from = reinterpret_cast<u64>(source.at(0));
  rounds.recv_buffer = reinterpret_cast<u64>(recv_buffer.at(0));
  rounds.bytes = bytes;
  const uint64_t theirs = order.seed + static_cast<uint64_t>(!p.rank);
  const Shape shape = shape_for(bytes, "perf_put_thread", "perf_put_block", "perf_put_blocks");
  s.latency_us = kernels.run(shape, rounds);
  s.route = kernels.route(shape);
  if (bytes == 0) return s;  // every round waited for its own number
  if (kernels.receives()) s.verified = target.check(0, theirs);
  const bool both = on_device(order.memory[0]) && on_device(order.memory[1]);
  if (!both || bytes > KernelRounds::kMostLl || bytes % sizeof(u32) != 0) return s;
  const uint64_t units = thalweg::device::ll_size(bytes) / sizeof(thalweg::device::Word16);
  const auto threads = static_cast<unsigned>(std::clamp<uint64_t>((units + 31) / 32 * 32, 32, kThreads));
  const Shape packed = units == 1 ? Shape{"perf_packed_thread"} : Shape{"perf_packed_block", 1, threads};
  s.figures = {{"packed", percentile(kernels.run(packed, rounds, true), 50), "us"}};
  s.verified &= recv_buffer.check(0, theirs);
  return s;
}

}  // namespace

Sample signal_latency_gpu(Pair& p, const Order& order) { return latency(p, order, 0); }
Sample put_latency_gpu(Pair& p, const Order& order) { return latency(p, order, order.size); }

// A launch is a window of puts and a signal behind all of them.
namespace {

/// Rank 0. The signal's value: of the last window.
uint64_t bursts(Pair& p, const Order& order, Burst burst, const SharedWindow& shared, unsigned launches, Sample* s) {
  Gpu gpu(ordinal_of(order.memory[0]));
  const DeviceWords own(p.context, gpu.place());
  const Shape shape = {"perf_burst", std::min(gpu.multiprocessors(), 64u), kThreads};
  burst.data = shared.bind(gpu.place());
  burst.arrived = own.at<u32>(kArrived);
  s->seconds = time_windows(order, [&] {
    for (unsigned i = 0; i < launches; ++i) {
      ++burst.value;
      gpu.launch(shape.kernel, shape.blocks, shape.threads, burst);
    }
    gpu.finish(p);
  });
  s->route = std::string(tw_endpoint_transport(p.endpoint)) + " kernel of " + std::to_string(shape.blocks) + " x " +
             std::to_string(shape.threads) + ", mapped";
  return burst.value;
}

/// The same by the twin.
uint64_t bursts_by_cpu(Pair& p, const Order& order, Burst burst, const SharedWindow& shared, unsigned launches, Sample* s) {
  burst.data = shared.bind("host");
  s->seconds = time_windows(order, [&] {
    for (unsigned i = 0; i < launches; ++i) {
      ++burst.value;
      put_all(burst, thalweg::device::Blocks(nullptr, 0, 1));
    }
  });
  s->route = std::string(tw_endpoint_transport(p.endpoint)) + " device code, mapped";
  return burst.value;
}

}  // namespace

Sample put_window_kernel(Pair& p, const Order& order) {
  constexpr uint64_t kEnough = 64 << 20;  // bytes that are enqueued at once
  Sample s;
  Buffers source(p.context, order, order.window, p.rank), target(p.context, order, order.window + 1, p.rank);
  source.fill(order.seed + static_cast<uint64_t>(p.rank));
  const SharedWindow shared(p, target);
  const auto launches =
      static_cast<unsigned>(std::clamp<uint64_t>(kEnough / std::max<uint64_t>(1, order.size * order.window), 1, 16));
  uint64_t value = 0, seen = 0;
  p.sync();
  if (p.rank == 0) {
    Burst burst{};
    burst.from = reinterpret_cast<u64>(source.at(0));
    burst.bytes = order.size;
    burst.pitch = target.offset(1);
    burst.count = order.window;
    burst.flag = target.offset(order.window);
    value = (any_device(order) ? bursts : bursts_by_cpu)(p, order, burst, shared, launches, &s);
    shared.check();
    p.send(&value, sizeof value, kControlTag);
  } else {
    p.receive(&value, sizeof value, kControlTag);
    target.read(order.window, &seen, sizeof seen);
    s.verified = seen == value;
    for (size_t i = 0; i < order.window; ++i) s.verified &= target.check(i, order.seed);
  }
  p.sync();
  s.messages = order.window * launches;
  return s;
}

}  // namespace perf
