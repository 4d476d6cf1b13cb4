// SPDX-License-Identifier: Apache-2.0
// Collectives of float32 among N processes. A size is that of the longer of a rank's two buffers, and bandwidths are those of NCCL's
// tests: size over time, and beside it, as the bus's, times the part of it that the busiest link has to carry. Each sample is the
// slowest rank's time of some calls in a row, or of what --trigger starts (triggered.hpp); between samples is a barrier.
#include "collectives.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>

#include "buffers.hpp"
#include "computation.hpp"
#include "ranks.hpp"
#include "starter.hpp"
#include "tests.hpp"
#include "triggered.hpp"

namespace perf {
namespace {

constexpr size_t kElement = sizeof(float);

/// One of the tests: what its buffers are, in blocks of `count` elements, and what it does.
struct Kind {
  const char* test;
  const char* collective;   // of tw_group_explain
  bool send_all, recv_all;  // the buffer has a block for each rank
  double (*bus)(double ranks);
  tw_status (*run)(const Form&, tw_group*, const void* send, void* recv, size_t count, const tw_collective_options*);
};

double whole(double) { return 1; }
double both_ways(double n) { return 2 * (n - 1) / n; }
double one_way(double n) { return (n - 1) / n; }

const Kind kKinds[] = {{"allreduce", "allreduce", false, false, both_ways,
                        [](const Form& f, tw_group* g, const void* send, void* recv, size_t n, const tw_collective_options* o) {
                          return f(tw_allreduce, tw_allreduce_on, tw_plan_allreduce, g, send, recv, n, TW_TYPE_FLOAT32,
                                   TW_REDUCE_SUM, o);
                        }},
                       {"alltoall", "alltoall", true, true, one_way,
                        [](const Form& f, tw_group* g, const void* send, void* recv, size_t n, const tw_collective_options* o) {
                          return f(tw_alltoall, tw_alltoall_on, tw_plan_alltoall, g, send, recv, n, TW_TYPE_FLOAT32, o);
                        }},
                       {"allgather", "allgather", false, true, one_way,
                        [](const Form& f, tw_group* g, const void* send, void* recv, size_t n, const tw_collective_options* o) {
                          return f(tw_allgather, tw_allgather_on, tw_plan_allgather, g, send, recv, n, TW_TYPE_FLOAT32, o);
                        }},
                       {"reduce_scatter", "reduce_scatter", true, false, one_way,
                        [](const Form& f, tw_group* g, const void* send, void* recv, size_t n, const tw_collective_options* o) {
                          return f(tw_reduce_scatter, tw_reduce_scatter_on, tw_plan_reduce_scatter, g, send, recv, n,
                                   TW_TYPE_FLOAT32, TW_REDUCE_SUM, o);
                        }},
                       {"bcast", "broadcast", false, false, whole,
                        [](const Form& f, tw_group* g, const void*, void* recv, size_t n, const tw_collective_options* o) {
                          return f(tw_broadcast, tw_broadcast_on, tw_plan_broadcast, g, recv, n, TW_TYPE_FLOAT32, 0u, o);
                        }},
                       {"barrier", "barrier", false, false, whole,
                        [](const Form& f, tw_group* g, const void*, void*, size_t, const tw_collective_options* o) {
                          return f(tw_barrier, tw_barrier_on, tw_plan_barrier, g, o);
                        }}};

const Kind* find_kind(const std::string& test) {
  const auto* const found = std::find_if(std::begin(kKinds), std::end(kKinds), [&](const Kind& k) { return test == k.test; });
  return found == std::end(kKinds) ? nullptr : found;
}

/// Small whole numbers, whose sums are exact in any order.
float element_of(uint64_t seed, uint32_t rank, uint64_t index) {
  uint64_t x = index * 0x9E3779B97F4A7C15u + rank * 0x94D049BB133111EBu + seed;
  x = (x ^ (x >> 32)) * 0xD6E8FEB86659FD93u;
  return static_cast<float>(static_cast<int>((x >> 40) % 17) - 8);
}

/// Each rank's place: a device without a number is the rank's own.
std::string place_of(const std::string& memory, uint32_t rank) {
  return on_device(memory) && memory.find(':') == std::string::npos ? memory + ":" + std::to_string(rank) : memory;
}

Order order_for(const std::string& memory, size_t bytes, const Options& o) {
  Order order{};
  order.size = bytes;
  order.reuse = o.reuse;
  std::snprintf(order.memory[0], kMemoryName, "%s", memory.c_str());
  return order;
}

/// One collective of one size, on this rank.
class Measured {
 public:
  Measured(const Ranks& ranks, const Options& o, const Kind& kind, size_t size)
      : ranks_(ranks),
        kind_(kind),
        trigger_(o.trigger),
        nonblocking_(o.nonblocking),
        barrier_(std::string(kind.test) == "barrier"),
        count_(count_for(size)),
        send_bytes_(blocks(kind.send_all) * count_ * kElement),
        recv_bytes_(blocks(kind.recv_all) * count_ * kElement),
        place_(place_of(o.memory[ranks.rank != 0], ranks.rank)),
        send_(ranks.context, order_for(place_, std::max(send_bytes_, kElement), o), 1, 0),
        recv_(ranks.context, order_for(place_, std::max(recv_bytes_, kElement), o), 1, 0) {
    options_.algorithm = o.algorithm.empty() ? nullptr : o.algorithm.c_str();
    if (trigger_ == Trigger::call) return;
    triggered_.emplace(ranks, o, plan_place(order_for(place_, bytes(), o), 0), batch(),
                       [this](const Form& form) { return run(form); });
  }
  size_t bytes() const { return barrier_ ? 0 : std::max(send_bytes_, recv_bytes_); }
  bool renews() const { return send_.renews() && trigger_ == Trigger::call; }
  /// Of a sample. What is enqueued at once is more, so that to wait for the last of it does not matter.
  unsigned batch() const {
    return trigger_ == Trigger::call || trigger_ == Trigger::host ? batch_of(bytes()) : bytes() <= 65536 ? 50 : 20;
  }
  const std::string& place() const { return place_; }

  /// Two calls with new data; false: something is wrong on a rank.
  bool verify(uint64_t seed) {
    bool right = true;
    for (uint64_t i = 0; i < 2 && !barrier_; ++i) {
      fill(seed + i);
      once();
      right = check(seed + i) && right;
    }
    return ranks_.all(right);
  }

  /// Microseconds of a call, of the slowest rank, by batches; steps: of a computation between begin and end.
  std::vector<double> time(uint64_t batches, uint64_t steps) {
    std::vector<double> samples;
    const uint64_t warm = batches / 10 + 1;
    for (uint64_t b = 0; b < warm + batches; ++b) {
      if (!barrier_) ranks_.barrier();
      const uint64_t start = now_ns();
      if (triggered_) triggered_->start();
      for (unsigned i = 0; i < batch() && !triggered_; ++i) call(steps);
      if (b >= warm) samples.push_back(static_cast<double>(now_ns() - start) / 1e3 / batch());
    }
    return ranks_.slowest(samples);
  }

  /// The name of the algorithm.
  std::string route() const {
    char text[1u << 16];
    size_t length = sizeof text;
    const tw_status status =
        triggered_ ? tw_group_explain_on(triggered_->queue(), ranks_.group, kind_.collective, count_, TW_TYPE_FLOAT32,
                                         &options_, text, &length)
                   : tw_group_explain(ranks_.group, kind_.collective, count_, TW_TYPE_FLOAT32, &options_, text, &length);
    const char* const chosen = status < 0 && status != TW_ERR_TRUNCATED ? nullptr : std::strstr(text, "chosen: ");
    return chosen == nullptr ? "" : std::string(chosen + 8, std::strcspn(chosen + 8, ",;\n"));
  }

 private:
  size_t blocks(bool all) const { return all ? ranks_.size : 1; }
  size_t count_for(size_t size) const {
    if (barrier_) return 0;
    return std::max<size_t>(1, size / kElement / blocks(kind_.send_all || kind_.recv_all));
  }

  tw_status run(const Form& form) { return kind_.run(form, ranks_.group, send_.at(0), recv_.at(0), count_, &options_); }
  void once() {
    if (triggered_) return triggered_->start();
    call(0);
  }
  void call(uint64_t steps) {
    const bool broadcast = kind_.run == find_kind("bcast")->run;
    Buffers& written = broadcast ? recv_ : send_;
    if (!barrier_ && (!broadcast || ranks_.rank == 0)) written.renew(0);
    if (!nonblocking_) return must(run({}), kind_.test);
    tw_request request = TW_REQUEST_NONE;
    must(run({.request = &request}), kind_.test);
    if (steps != 0) compute(steps);
    if (request != TW_REQUEST_NONE) must(tw_request_finish(request), kind_.test);
  }

  void fill(uint64_t seed) {
    const bool broadcast = std::string(kind_.test) == "bcast";
    std::vector<float> values(blocks(kind_.send_all) * count_);
    for (size_t i = 0; i < values.size(); ++i) values[i] = element_of(seed, ranks_.rank, i);
    send_.write(0, values.data(), values.size() * kElement);
    recv_.poison();
    if (broadcast && ranks_.rank == 0) recv_.write(0, values.data(), values.size() * kElement);
  }

  float expected(uint64_t seed, size_t i) const {
    const size_t share = ranks_.rank * count_;
    if (kind_.recv_all) return element_of(seed, static_cast<uint32_t>(i / count_), i % count_ + (kind_.send_all ? share : 0));
    if (kind_.run == find_kind("bcast")->run) return element_of(seed, 0, i);
    float sum = 0;
    for (uint32_t r = 0; r < ranks_.size; ++r) sum += element_of(seed, r, i + (kind_.send_all ? share : 0));
    return sum;
  }

  bool check(uint64_t seed) const {
    std::vector<float> values(blocks(kind_.recv_all) * count_);
    recv_.read(0, values.data(), values.size() * kElement);
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] != expected(seed, i)) return false;
    }
    return true;
  }

  const Ranks& ranks_;
  const Kind& kind_;
  const Trigger trigger_;
  const bool nonblocking_, barrier_;
  const size_t count_, send_bytes_, recv_bytes_;
  const std::string place_;
  Buffers send_, recv_;
  tw_collective_options options_ = TW_COLLECTIVE_OPTIONS_INIT;
  std::optional<Triggered> triggered_;  // ends before the buffers
};

/// All ranks compute for as long as the collective takes, between its begin and its end.
double overlap_of(const Ranks& ranks, Measured& measured, double transfer_us, uint64_t batches) {
  const uint64_t steps = steps_for(transfer_us / 1e6);
  std::vector<double> alone;
  for (int i = 0; i < 9; ++i) alone.push_back(seconds_of(steps) * 1e6);
  const double computation = ranks.largest(percentile(alone, 50));
  return hidden_percent(transfer_us, computation, percentile(measured.time(batches, steps), 50));
}

uint64_t batches_for(const Ranks& ranks, const Options& o, double us, unsigned batch) {
  const double most = std::min(20000.0, static_cast<double>((8u << 20) / sizeof(double) / ranks.size));  // that are exchanged
  return static_cast<uint64_t>(ranks.agree(std::clamp(o.seconds * 1e6 / std::max(us * batch, 1e-3), 3.0, most)));
}

Result measure_size(const Ranks& ranks, const Options& o, const Kind& kind, size_t size) {
  Measured measured(ranks, o, kind, size);
  const auto seed = static_cast<uint64_t>(ranks.agree(static_cast<double>(now_ns() % 1000003)));
  Result r;
  r.verified = measured.verify(seed);
  const uint64_t batches = batches_for(ranks, o, percentile(measured.time(3, 0), 50), measured.batch());
  r.latency_us = measured.time(batches, 0);
  r.verified = measured.verify(seed + 7) && r.verified;
  const double us = percentile(r.latency_us, 50);
  r.test = kind.test;
  r.trigger = trigger_name(o.trigger);
  r.transport = ranks.transport();
  r.route = measured.route();
  r.size = measured.bytes();
  r.memory[0] = place_of(o.memory[0], 0);
  r.memory[1] = place_of(o.memory[1], ranks.size - 1);
  r.iterations = batches * measured.batch();
  r.fresh = measured.renews();
  r.bandwidth = static_cast<double>(r.size) / us / 1e3;
  r.rate = 1 / us;
  r.figures = {{"ranks", static_cast<double>(ranks.size), ""}, {"min", percentile(r.latency_us, 0), "us"}};
  if (r.size != 0) r.figures.push_back({"bus", r.bandwidth * kind.bus(ranks.size), "GB/s"});
  if (o.nonblocking) r.figures.push_back({"hidden", overlap_of(ranks, measured, us, batches), "%"});
  return r;
}

}  // namespace

bool is_collective(const std::string& test) { return find_kind(test) != nullptr; }

int run_collective(const Options& o, char** argv) {
  const Kind& kind = *find_kind(o.test);
  Ranks ranks(o, argv);
  if (ranks.rank == 0) {
    print_header(o.format, o.test + " of float32 among " + std::to_string(ranks.size) + " ranks over " + ranks.transport() +
                               (o.nonblocking ? ", non-blocking" : "") +
                               (o.trigger == Trigger::call ? "" : std::string(", trigger ") + trigger_name(o.trigger)) +
                               ", memory " + o.memory[0] + " and " + o.memory[1]);
  }
  std::vector<size_t> sizes = o.sizes;
  if (sizes.empty()) sizes = {8, 1024, 65536, 1u << 20, 16u << 20};
  if (o.test == "barrier") sizes = {0};
  bool verified = true;
  for (const size_t size : sizes) {
    const Result result = measure_size(ranks, o, kind, size);
    if (ranks.rank == 0) print(o.format, result);
    verified = verified && result.verified;
  }
  return std::max(ranks.end(), verified ? 0 : 1);
}

}  // namespace perf
