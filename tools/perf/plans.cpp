// SPDX-License-Identifier: Apache-2.0
// Tests of prepared plans: a signal alone, a put, a chain of pieces with one start, faces of a cube.
#include <cmath>
#include <cstring>

#include "plan_rounds.hpp"

namespace perf {
namespace {

std::string route_of(const Pair& p, const std::string& ways) {
  return std::string(tw_endpoint_transport(p.endpoint)) + " plan, " + ways;
}

/// The whole buffer, with the order's layouts.
std::vector<Piece> whole(const Exposed& x, const Order& order) {
  return {{0, 0, order.size, x.source.layout(), x.target.layout()}};
}

/// k equal pieces, each behind the one before with a gap of its own length.
std::vector<Piece> scattered(uint64_t count, uint64_t length) {
  std::vector<Piece> pieces;
  for (uint64_t i = 0; i < count; ++i) pieces.push_back({2 * i * length, 2 * i * length, length});
  return pieces;
}

/// Do the pieces of the target hold the other side's bytes, and everything else what it was poisoned with?
bool right(const Exposed& x, uint64_t seed, const std::vector<Piece>& pieces, size_t size) {
  std::vector<unsigned char> seen(size), wanted(size, Buffers::kPoisoned), theirs(size);
  Buffers::pattern_into(theirs.data(), size, seed);
  for (const Piece& piece : pieces) std::memcpy(&wanted[piece.to], &theirs[piece.from], piece.length);
  x.target.read(0, seen.data(), size);
  return seen == wanted;
}

/// k single operations, each called by the host; the last one's signal covers all.
std::vector<double> single_calls(Exposed& x, const Order& order, const std::vector<Piece>& pieces, Rounds::Right right,
                                 bool* verified) {
  Pair& p = x.pair;
  Rounds rounds(order, p.rank, &x.source, std::move(right));
  x.reset_signal();
  uint64_t round = 0;
  auto send = [&] {
    rounds.before_send();
    for (const Piece& piece : pieces) {
      must(tw_put(p.endpoint, x.source.at(0) + piece.from, piece.length, x.remote, piece.to, nullptr, nullptr), "tw_put");
    }
    tw_op_options o = TW_OP_OPTIONS_INIT;
    o.flags = TW_OP_AFTER_ALL;
    must(tw_signal_post(x.remote_signal, round, &o, nullptr), "tw_signal_post");
  };
  auto see = [&] {
    must(tw_signal_wait(x.signal, round, TW_COMPARE_GE, TW_FOREVER), "tw_signal_wait");
    rounds.behind_receive();
  };
  std::vector<double> one_way;
  time_batches(order, &one_way, [&] {
    ++round;
    if (p.rank == 0) send();
    see();
    if (p.rank == 1) send();
  });
  p.sync();
  *verified = rounds.verified() && *verified;
  return one_way;
}

/// What the processor spends on a piece while one plan of all of them is started again and again by the host, without an answer.
double cpu_ns(Exposed& x, Order order, const std::vector<Piece>& pieces) {
  constexpr int kStarts = 2000;
  Pair& p = x.pair;
  order.trigger = static_cast<uint8_t>(Trigger::host);
  double each = 0;
  if (p.rank == 0) {
    Starter starter(p, order);
    for (const Piece& piece : pieces) {
      must(tw_plan_put(starter.plan(), p.endpoint, x.source.at(0) + piece.from, piece.length, x.remote, piece.to, nullptr,
                       nullptr),
           "tw_plan_put");
    }
    starter.prepare();
    starter.start();
    const uint64_t begin = thread_ns();
    for (int i = 0; i < kStarts; ++i) starter.start();
    each = static_cast<double>(thread_ns() - begin) / kStarts / starter.runs() / static_cast<double>(pieces.size());
  }
  p.sync();
  return each;
}

}  // namespace

Sample signal_latency(Pair& p, const Order& order) {
  Sample s;
  Exposed x(p, order, 1);
  std::string ways;
  s.latency_us = plan_rounds(x, order, {}, {}, &s.verified, &ways);
  s.route = route_of(p, ways);
  const uint64_t warm = order.verify ? 0 : order.iterations / 10 + 1;
  s.verified = x.signal_value() == (warm + Starter::counted(order)) * (order.verify ? 1 : batch_of(order));
  return s;
}

Sample put_latency_planned(Pair& p, const Order& order) {
  Sample s;
  Exposed x(p, order, 1);
  std::string ways;
  s.latency_us = plan_rounds(x, order, whole(x, order), all_right(x.target, 1), &s.verified, &ways);
  s.route = route_of(p, ways);
  return s;
}

/// order.size: bytes of all pieces, which are order.window.
Sample chain(Pair& p, const Order& order) {
  Sample s;
  const uint64_t each = std::max<uint64_t>(1, order.size / order.window), total = each * order.window;
  const std::vector<Piece> pieces = scattered(order.window, each), contiguous = {{0, 0, total}};
  Order room = order;
  room.size = 2 * total;
  room.layout = {};
  Exposed x(p, room, 1);
  const Rounds::Right scattered_right = [&](uint64_t seed) { return right(x, seed, pieces, room.size); };
  std::string ways;
  s.latency_us = plan_rounds(x, order, pieces, scattered_right, &s.verified, &ways);
  s.route = route_of(p, ways);
  x.target.poison();
  const Rounds::Right contiguous_right = [&](uint64_t seed) { return right(x, seed, contiguous, room.size); };
  const double planned = percentile(s.latency_us, 50);
  const double straight = percentile(plan_rounds(x, order, contiguous, contiguous_right, &s.verified), 50);
  s.bytes = total;
  s.figures = {{"pieces", static_cast<double>(order.window), ""},
               {"contiguous", straight, "us"},
               {"of_contiguous", 100 * planned / straight, "%"}};
  if (on_device(order.memory[0]) || on_device(order.memory[1])) return s;
  x.target.poison();
  s.figures.push_back({"single_calls", percentile(single_calls(x, order, pieces, scattered_right, &s.verified), 50), "us"});
  s.figures.push_back({"cpu_per_piece", cpu_ns(x, order, pieces), "ns"});
  return s;
}

}  // namespace perf
