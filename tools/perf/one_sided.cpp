// SPDX-License-Identifier: Apache-2.0
// Put, get and atomics. The latency of a put ends when the target's program sees it: it polls the last word of small
// contiguous puts into mapped host memory, a signal otherwise.
#include "exposed.hpp"
#include "rounds.hpp"
#include "tests.hpp"

namespace perf {
namespace {

constexpr uint64_t kZero = 0;

void flush(Pair& p) {
  tw_request r = TW_REQUEST_NONE;
  must(tw_endpoint_flush(p.endpoint, &r), "tw_endpoint_flush");
  p.wait(r);
}

/// Ping-pong of 8-byte puts: the value itself is the flag.
void put_words(Exposed& x, const Order& order, std::vector<double>* out) {
  Pair& p = x.pair;
  auto* word = reinterpret_cast<uint64_t*>(x.target.at(0));
  uint64_t value = 0;
  auto put = [&] { must(tw_put(p.endpoint, &value, sizeof value, x.remote, 0, nullptr, nullptr), "tw_put"); };
  auto seen = [&] { return __atomic_load_n(word, __ATOMIC_ACQUIRE) == value; };
  auto see = [&] {
    if (x.map) return p.await_store(seen);
    while (!seen()) p.progress();
  };
  __atomic_store_n(word, 0, __ATOMIC_RELEASE);
  p.sync();
  if (p.rank == 0)
    time_batches(order, out, [&] {
      ++value;
      put();
      see();
    });
  else
    time_batches(order, nullptr, [&] {
      ++value;
      see();
      put();
    });
}

/// Is what arrived right?
bool put_signals(Exposed& x, const Order& order, std::vector<double>* out) {
  Pair& p = x.pair;
  Rounds rounds(order, p.rank, &x.source, all_right(x.target, 1));
  tw_op_options o = x.options();
  o.signal = x.remote_signal;
  uint64_t round = 0;
  auto put = [&] {
    o.signal_value = round;
    rounds.before_send();
    x.source.renew(0);
    tw_request r = TW_REQUEST_NONE;
    must(tw_put(p.endpoint, x.source.at(0), order.size, x.remote, 0, &o, &r), "tw_put");
    p.wait(r);
  };
  auto see = [&] {
    must(tw_signal_wait(x.signal, round, TW_COMPARE_GE, TW_FOREVER), "tw_signal_wait");
    rounds.behind_receive();
  };
  p.sync();
  if (p.rank == 0)
    time_batches(order, out, [&] {
      ++round;
      put();
      see();
    });
  else
    time_batches(order, nullptr, [&] {
      ++round;
      see();
      put();
    });
  return rounds.verified();
}

}  // namespace

Sample put_latency(Pair& p, const Order& order) {
  Sample s;
  Exposed x(p, order, 1);
  s.route = p.route("put", order, x.source.at(0), x.remote);
  s.fresh = x.source.renews();
  Order once = order;
  once.iterations = once.verify = 1;
  s.verified = put_signals(x, once, nullptr);
  std::vector<double>* out = p.rank == 0 ? &s.latency_us : nullptr;
  x.reset_signal();
  if (order.size == 8 && !order.layout && !on_device(order.memory[0]) && !on_device(order.memory[1]))
    put_words(x, order, out);
  else
    s.verified = put_signals(x, order, out) && s.verified;
  return s;
}

Sample put_window(Pair& p, const Order& order) {
  Sample s;
  Exposed x(p, order, order.window);
  s.route = p.route("put", order, x.source.at(0), x.remote);
  s.fresh = x.source.renews();
  Rounds rounds(order, p.rank, p.rank == 0 ? &x.source : nullptr,
                p.rank == 0 ? Rounds::Right() : all_right(x.target, order.window));
  std::vector<tw_request> requests(order.window, TW_REQUEST_NONE);
  tw_op_options o = x.options();
  p.sync();
  const auto put_all = [&] {
    rounds.before_send();
    for (size_t i = 0; i < order.window; ++i) {
      x.source.renew(i);
      must(tw_put(p.endpoint, x.source.at(i), order.size, x.remote, x.target.offset(i), &o, &requests[i]), "tw_put");
    }
    for (tw_request& r : requests) p.wait(r);
    flush(p);
  };
  s.seconds = time_one_sided(p, order, rounds, put_all);
  p.sync();
  s.messages = order.window;
  s.verified = rounds.verified();
  return s;
}

namespace {

/// Does the owner of what is got write it anew before each get? Both ranks must agree, whatever their own memory is.
bool owner_renews(const Order& order) { return order.reuse == 0 && !on_device(order.memory[1]); }

/// Gets of a window of buffers, so many times in one time.
unsigned batch_of_gets(const Order& order, size_t window) {
  return owner_renews(order) || window > 1 ? 1 : batch_of(order.size);
}

/// Gets of a window of buffers; their owner writes them anew before each one where they are not reused. Rank 0: the times,
/// in ns.
std::vector<double> gets(Exposed& x, const Order& order, size_t window, Rounds& rounds) {
  Pair& p = x.pair;
  const bool renews = owner_renews(order) || order.verify != 0;
  char token = 0;
  const uint64_t warm = order.verify ? 0 : order.iterations / 10 + 1;
  const unsigned batch = order.verify ? 1 : batch_of_gets(order, window);
  const uint64_t counted = order.verify ? order.iterations * batch_of_gets(order, window) : order.iterations;
  std::vector<tw_request> requests(window, TW_REQUEST_NONE);
  const tw_op_options o = x.options();
  std::vector<double> times;
  p.sync();
  for (uint64_t round = 0; round < warm + counted; ++round) {
    if (p.rank == 1) {
      if (!renews) break;
      p.receive(&token, 1, kAckTag);
      rounds.before_send();
      for (size_t i = 0; i < window; ++i) x.target.renew(i);
      p.send(&token, 1, kAckTag);
      continue;
    }
    if (renews) {
      p.send(&token, 1, kAckTag);
      p.receive(&token, 1, kAckTag);
    }
    const uint64_t start = now_ns();
    for (unsigned n = 0; n < batch; ++n) {
      for (size_t i = 0; i < window; ++i)
        must(tw_get(p.endpoint, x.source.at(i), order.size, x.remote, x.target.offset(i), &o, &requests[i]), "tw_get");
      for (tw_request& r : requests) p.wait(r);
    }
    if (round >= warm) times.push_back(static_cast<double>(now_ns() - start) / batch);
    rounds.behind_receive();
  }
  p.sync();
  return times;
}

Sample get_some(Pair& p, const Order& order, size_t window) {
  Sample s;
  Exposed x(p, order, window);
  s.route = p.route("get", order, x.source.at(0), x.remote);
  s.fresh = owner_renews(order);
  Rounds rounds(order, p.rank, p.rank == 1 ? &x.target : nullptr, p.rank == 1 ? Rounds::Right() : all_right(x.source, window));
  const std::vector<double> times = gets(x, order, window, rounds);
  for (const double ns : times) s.latency_us.push_back(ns / 1e3);  // a get is a round trip by itself
  s.seconds = percentile(times, 50) / 1e9;
  s.messages = window;
  s.batch = batch_of_gets(order, window);
  s.verified = rounds.verified();
  return s;
}

}  // namespace

Sample get_latency(Pair& p, const Order& order) { return get_some(p, order, 1); }
Sample get_window(Pair& p, const Order& order) { return get_some(p, order, order.window); }

Sample atomic_latency(Pair& p, const Order& order) {
  Sample s;
  Exposed x(p, order, 1);
  s.route = p.route("atomic", order, nullptr, x.remote);
  x.target.write(0, &kZero, order.size);
  uint64_t expected = 0;
  p.sync();
  if (p.rank == 0) {
    time_batches(order, &s.latency_us, [&] {
      uint64_t old = 0;
      tw_request r = TW_REQUEST_NONE;
      must(tw_atomic(p.endpoint, TW_ATOMIC_ADD, x.remote, 0, order.size, 1, 0, &old, nullptr, &r), "tw_atomic");
      p.wait(r);
      s.verified &= old == expected++;
    });
    for (double& t : s.latency_us) t *= 2;
  }
  p.sync();
  return s;
}

Sample atomic_window(Pair& p, const Order& order) {
  Sample s;
  Exposed x(p, order, 1);
  s.route = p.route("atomic", order, nullptr, x.remote);
  x.target.write(0, &kZero, order.size);
  uint64_t sent = 0;
  p.sync();
  if (p.rank == 0) {
    s.seconds = time_windows(order, [&] {
      for (size_t i = 0; i < order.window; ++i, ++sent)
        must(tw_atomic(p.endpoint, TW_ATOMIC_ADD, x.remote, 0, order.size, 1, 0, nullptr, nullptr, nullptr), "tw_atomic");
      flush(p);
    });
  }
  uint64_t wanted = 0, got = 0;
  x.exchange(&sent, &wanted, sizeof sent);
  x.target.read(0, &got, order.size);
  if (p.rank == 1) s.verified = got == (order.size == 4 ? static_cast<uint32_t>(wanted) : wanted);
  s.messages = order.window;
  return s;
}

}  // namespace perf
