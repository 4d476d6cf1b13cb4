// SPDX-License-Identifier: Apache-2.0
// Does a transfer overlap with its receiver's computation? Rank 0 receives and computes for as long as a transfer takes;
// what the two take together, less the longer of them, is what could not be hidden. Of tagged messages three times: the
// sender progresses meanwhile; it computes, too, and the receive was posted first; the same, and the send was posted first.
#include <cmath>
#include <string>
#include <utility>

#include "computation.hpp"
#include "rounds.hpp"
#include "starter.hpp"
#include "tests.hpp"

namespace perf {
namespace {

/// One receive of rank 0: begin() on both ranks, where rank 1 sends, and end() on both.
class Way {
 public:
  virtual ~Way() = default;
  virtual void begin() = 0;
  virtual void end() = 0;
};

class ByMessage final : public Way {
 public:
  ByMessage(Pair& pair, const Order& order, Buffers& buffers) : pair_(pair), buffers_(buffers), length_(order.size) {
    options_.layout = buffers.layout();
  }
  void begin() override {
    if (pair_.rank == 0) {
      must(tw_recv(pair_.worker, buffers_.at(0), length_, kDataTag, ~0ull, &options_, &request_), "tw_recv");
    } else {
      must(tw_send(pair_.endpoint, buffers_.at(0), length_, kDataTag, &options_, &request_), "tw_send");
    }
  }
  void end() override { pair_.wait(std::exchange(request_, TW_REQUEST_NONE)); }

 private:
  Pair& pair_;
  Buffers& buffers_;
  size_t length_;
  tw_op_options options_ = TW_OP_OPTIONS_INIT;
  tw_request request_ = TW_REQUEST_NONE;
};

/// A receive that is prepared and names its buffer to the sender when it is triggered.
class ByChannel final : public Way {
 public:
  ByChannel(Pair& pair, const Order& order, Buffers& buffers) {
    const std::string place = plan_place(order, pair.rank);
    tw_plan_options o = TW_PLAN_OPTIONS_INIT;
    o.place = place.c_str();
    must(tw_plan_create(pair.context, &o, &plan_), "tw_plan_create");
    tw_op_options step = TW_OP_OPTIONS_INIT;
    step.layout = buffers.layout();
    const size_t n = buffers.layout() ? tw_layout_bytes(buffers.layout()) : order.size;
    const tw_status added = pair.rank == 0 ? tw_plan_recv(plan_, pair.endpoint, buffers.at(0), n, kDataTag, &step, nullptr)
                                           : tw_plan_send(plan_, pair.endpoint, buffers.at(0), n, kDataTag, &step, nullptr);
    must(added, "tw_plan_recv and tw_plan_send");
    must(tw_plan_prepare(plan_, kLimit), "tw_plan_prepare");
  }
  ~ByChannel() override { (void)tw_plan_destroy(plan_); }
  void begin() override { must(tw_plan_trigger(plan_, nullptr), "tw_plan_trigger"); }
  void end() override { must(tw_plan_finish(plan_, kLimit), "tw_plan_finish"); }

 private:
  static constexpr uint64_t kLimit = 60'000'000'000;
  tw_plan* plan_ = nullptr;
};

/// Which rank posts first, and does rank 1 compute, too? Otherwise it progresses until its send is over. Rank 0 computes
/// always.
struct Case {
  bool sender_first, both_compute;
};

/// What receives take with so much computation between begin and end, in seconds, from rank 0's begin to its end. Where both
/// compute, no rank progresses from when both have posted until then.
std::vector<double> receive_and_compute(Pair& p, const Order& order, Way& way, Rounds& rounds, const Case& how,
                                        uint64_t steps) {
  std::vector<double> times;
  char go = 0;
  for (uint64_t i = 0; i < order.iterations * batch_of(order.size); ++i) {
    if (p.rank == 1) {
      rounds.before_send();
      if (!how.sender_first) p.receive(&go, 1, kAckTag);
      way.begin();
      if (how.sender_first) p.send(&go, 1, kAckTag);
      if (how.both_compute && steps != 0) compute(steps);
      way.end();
      continue;
    }
    if (how.sender_first) p.receive(&go, 1, kAckTag);
    const uint64_t start = now_ns();
    way.begin();
    if (!how.sender_first) p.send(&go, 1, kAckTag);
    if (steps != 0) compute(steps);
    way.end();
    times.push_back(static_cast<double>(now_ns() - start) / 1e9);
    rounds.behind_receive();
  }
  return times;
}

struct Hidden {
  std::vector<double> transfer_us;
  double percent = 0;
};

/// Both ranks compute for as long as rank 0's receives took.
constexpr int kLongest = 600;  // seconds: nobody computes for longer because another process says so
double agree(Pair& p, double seconds) {
  if (p.rank == 0) {
    p.send(&seconds, sizeof seconds, kAckTag);
  } else {
    p.receive(&seconds, sizeof seconds, kAckTag);
    if (!std::isfinite(seconds) || seconds < 0 || seconds > kLongest) {
      end_with("the other process says that a transfer takes " + std::to_string(seconds) + " s; up to " +
               std::to_string(kLongest) + " s are measured: a smaller --size");
    }
  }
  return seconds;
}

Hidden measure_way(Pair& p, const Order& order, Way& way, Rounds& rounds, const Case& how) {
  p.sync();
  Hidden h;
  h.transfer_us = receive_and_compute(p, order, way, rounds, how, 0);
  const double transfer = agree(p, percentile(h.transfer_us, 50));
  for (double& t : h.transfer_us) t *= 1e6;
  const uint64_t steps = steps_for(transfer);
  std::vector<double> alone;
  for (uint64_t i = 0; i < order.iterations; ++i) alone.push_back(seconds_of(steps));
  p.sync();
  const double computation = percentile(alone, 50);
  const double both = percentile(receive_and_compute(p, order, way, rounds, how, steps), 50);
  if (p.rank == 0) h.percent = hidden_percent(transfer, computation, both);
  return h;
}

}  // namespace

/// The row is that of a tagged message; a channel's receive is beside it.
Sample overlap(Pair& p, const Order& order) {
  Sample s;
  Buffers buffers(p.context, order, 1, p.rank);
  s.route = p.route("send", order, buffers.at(0));
  Rounds rounds(order, p.rank, p.rank == 1 ? &buffers : nullptr, p.rank == 1 ? Rounds::Right() : all_right(buffers, 1));
  ByMessage message(p, order, buffers);
  const auto verify = [&] {
    s.verified &= rounds.verified();
    if (p.rank == 0) buffers.poison();
  };
  Hidden by_message = measure_way(p, order, message, rounds, {.sender_first = false, .both_compute = false});
  verify();
  const Hidden receiver_first = measure_way(p, order, message, rounds, {.sender_first = false, .both_compute = true});
  verify();
  const Hidden sender_first = measure_way(p, order, message, rounds, {.sender_first = true, .both_compute = true});
  verify();
  ByChannel channel(p, order, buffers);
  const Hidden by_channel = measure_way(p, order, channel, rounds, {.sender_first = false, .both_compute = false});
  verify();
  p.sync();
  s.latency_us = std::move(by_message.transfer_us);
  s.figures = {{"hidden", by_message.percent, "%"},
               {"receiver_first", percentile(receiver_first.transfer_us, 50), "us"},
               {"receiver_first_hidden", receiver_first.percent, "%"},
               {"sender_first", percentile(sender_first.transfer_us, 50), "us"},
               {"sender_first_hidden", sender_first.percent, "%"},
               {"channel", percentile(by_channel.transfer_us, 50), "us"},
               {"channel_hidden", by_channel.percent, "%"}};
  return s;
}

}  // namespace perf
