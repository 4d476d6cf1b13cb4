// SPDX-License-Identifier: Apache-2.0
// thalweg-perf: starts or finds the other process, then orders one measurement after another.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

#include "check.hpp"
#include "collectives.hpp"
#include "machine/alone.hpp"
#include "processes.hpp"
#include "tests.hpp"

namespace perf {
namespace {

const std::vector<size_t> kLatencySizes = {8, 64, 1024, 8192, 65536, 1u << 20, 16u << 20};
const std::vector<size_t> kBandwidthSizes = {4096, 65536, 1u << 20, 16u << 20};

const std::vector<Test>& tests() {
  static const std::vector<Test> all = {
      {"tag_lat", true, kLatencySizes, tag_latency, channel_latency, channel_latency_kernel},
      {"tag_bw", false, kBandwidthSizes, tag_window},
      {"tag_bibw", false, kBandwidthSizes, tag_both},
      {"tag_rate", false, {8}, tag_window},
      {"am_lat", true, kLatencySizes, am_latency},
      {"am_bw", false, kBandwidthSizes, am_window},
      {"am_rate", false, {8}, am_window},
      {"bytes_lat", true, kLatencySizes, bytes_latency},
      {"bytes_bw", false, kBandwidthSizes, bytes_window},
      {"put_lat", true, kLatencySizes, put_latency, put_latency_planned, put_latency_kernel},
      {"put_bw", false, kBandwidthSizes, put_window, nullptr, put_window_kernel},
      {"get_lat", true, kLatencySizes, get_latency},
      {"get_bw", false, kBandwidthSizes, get_window},
      {"blocks_bw", false, {65536, 4096, 64}, blocks_window},
      {"atomic_lat", true, {4, 8}, atomic_latency},
      {"atomic_rate", false, {4, 8}, atomic_window},
      {"overlap", true, {65536, 1u << 20, 16u << 20}, overlap},
      {"daxpy", false, {65536, 1u << 20, 16u << 20}, daxpy, nullptr, daxpy_kernel},
      {"signal_lat", true, {8}, nullptr, signal_latency, signal_latency_kernel},
      {"chain", true, {512, 4096, 262144, 4u << 20}, nullptr, chain},
      {"strided_put", true, {8 * 64 * 64, 8 * 128 * 128, 8 * 256 * 256}, nullptr, faces, faces_kernel}};
  return all;
}

/// Null: the test has no such trigger.
Sample (*run_of(const Test& test, Trigger trigger))(Pair&, const Order&) {
  if (trigger == Trigger::call) return test.run;
  return trigger == Trigger::kernel ? test.kernel : test.planned;
}

/// Runs one order on both ranks; rank 0 gets its sample with both ranks' results.
Sample execute(Pair& pair, const Test& test, Order order) {
  if (pair.rank == 0) pair.send(&order, sizeof order, kControlTag);
  const auto run = run_of(test, static_cast<Trigger>(order.trigger));
  if (run == nullptr) die(test.name, TW_ERR_UNSUPPORTED);
  Sample sample = run(pair, order);
  char verdict = sample.verified;
  if (pair.rank == 0) {
    pair.receive(&verdict, 1, kControlTag);
    sample.verified = sample.verified && verdict;
  } else {
    pair.send(&verdict, 1, kControlTag);
  }
  return sample;
}

Order order_of(const Options& o, const Test& test, size_t size) {
  Order order{};
  std::snprintf(order.test, sizeof order.test, "%s", test.name);
  order.size = size;
  order.window = o.window;
  order.seed = size * 2654435761u + static_cast<uint64_t>(getpid());
  order.layout = o.layout;
  for (int side = 0; side < 2; ++side) std::snprintf(order.memory[side], kMemoryName, "%s", o.memory[side].c_str());
  order.sleep = o.sleep;
  order.reuse = o.reuse;
  order.waits = o.waits;
  order.trigger = static_cast<uint8_t>(test.run == nullptr && o.trigger == Trigger::call ? Trigger::host : o.trigger);
  return order;
}

/// A window of buffers has room in memory: fewer of those that would be too large. That of blocks_bw is no window.
Order order_with_room(const Options& o, const Test& test, size_t size) {
  constexpr size_t kMost = size_t{2} << 30;
  Order order = order_of(o, test, size);
  if (test.latency || test.run == blocks_window || o.window <= 1 || size <= kMost / o.window) return order;
  order.window = std::max<uint64_t>(1, kMost / size);
  return order;
}

}  // namespace

Result measure(Pair& pair, const Options& o, const Test& test, size_t size) {
  Order order = order_with_room(o, test, size);
  order.verify = 1;
  order.iterations = 2;
  bool verified = execute(pair, test, order).verified;
  order.verify = 0;
  order.iterations = 3;
  Sample quick = execute(pair, test, order);
  const unsigned batch = quick.batch != 0 ? quick.batch : batch_of(order);
  double each = test.latency ? percentile(quick.latency_us, 50) * 2e-6 * batch : quick.seconds;
  order.iterations = static_cast<uint64_t>(std::clamp(o.seconds / std::max(each, 1e-9), 3.0, test.latency ? 50000.0 : 20000.0));
  Sample s = execute(pair, test, order);
  Result r;
  r.test = test.name;
  r.transport = tw_endpoint_transport(pair.endpoint);
  r.route = s.route;
  r.predicted_us = pair.predicted_us;
  r.size = s.bytes != 0 ? s.bytes : order.size;
  for (int side = 0; side < 2; ++side) r.memory[side] = order.memory[side];
  r.iterations = order.iterations * (test.latency ? batch : s.messages);
  r.verified = verified && quick.verified && s.verified;
  r.figures = std::move(s.figures);
  r.fresh = s.fresh;
  r.trigger = trigger_name(static_cast<Trigger>(order.trigger));
  if (test.latency) {
    double us = percentile(s.latency_us, 50);
    r.latency_us = std::move(s.latency_us);
    r.bandwidth = static_cast<double>(r.size) / us / 1e3;
    r.rate = 1 / us;
  } else {
    r.bandwidth = static_cast<double>(r.size * s.messages) / s.seconds / 1e9;
    r.rate = static_cast<double>(s.messages) / s.seconds / 1e6;
  }
  return r;
}

namespace {

/// Rank 0 of every thread measures the same size at the same time; rates add up, latencies are pooled.
Result measure_all(std::vector<std::unique_ptr<Pair>>& pairs, const Options& o, const Test& test, size_t size) {
  std::vector<Result> results(pairs.size());
  std::vector<std::thread> threads;
  for (size_t t = 1; t < pairs.size(); ++t) threads.emplace_back([&, t] { results[t] = measure(*pairs[t], o, test, size); });
  results[0] = measure(*pairs[0], o, test, size);
  for (std::thread& t : threads) t.join();
  Result sum = results[0];
  for (size_t t = 1; t < results.size(); ++t) {
    sum.latency_us.insert(sum.latency_us.end(), results[t].latency_us.begin(), results[t].latency_us.end());
    sum.iterations += results[t].iterations;
    sum.bandwidth += results[t].bandwidth;
    sum.rate += results[t].rate;
    sum.verified = sum.verified && results[t].verified;
  }
  return sum;
}

void obey(Pair& pair) {
  for (;;) {
    Order order{};
    pair.receive(&order, sizeof order, kControlTag);
    if (order.test[0] == 0) return pair.part();
    order.test[sizeof order.test - 1] = 0;
    for (auto& memory : order.memory) memory[kMemoryName - 1] = 0;
    const Test* test = find_test(order.test);
    if (test == nullptr) die(order.test, TW_ERR_UNSUPPORTED);
    if (const std::string why = why_refused(order); !why.empty()) end_with("the other process orders what is refused: " + why);
    pair.sleep = order.sleep;
    execute(pair, *test, order);
  }
}

const std::vector<size_t>& default_sizes(const Options& o, const Test& test) {
  static const std::vector<size_t> kOfDevices = {1u << 20, 16u << 20, 256u << 20};
  return o.test == "daxpy" && (on_device(o.memory[0]) || on_device(o.memory[1])) ? kOfDevices : test.sizes;
}

void command(std::vector<std::unique_ptr<Pair>>& pairs, const Options& o) {
  const Test& test = *find_test(o.test);
  print_header(o.format, o.test + " over " + tw_endpoint_transport(pairs[0]->endpoint) + ", " + std::to_string(o.threads) +
                             (o.threads == 1 ? " pair" : " pairs") +
                             (test.latency ? "" : ", window " + std::to_string(o.window)) + ", memory " + o.memory[0] +
                             " and " + o.memory[1]);
  for (size_t size : o.sizes.empty() ? default_sizes(o, test) : o.sizes) print(o.format, measure_all(pairs, o, test, size));
}

void end_all(std::vector<std::unique_ptr<Pair>>& pairs) {
  for (auto& pair : pairs) {
    pair->part();
    Order end{};
    pair->send(&end, sizeof end, kControlTag);
  }
}

using Pairs = std::vector<std::unique_ptr<Pair>>;

void serve_threads(Pairs& pairs) {
  std::vector<std::thread> threads;
  for (size_t t = 1; t < pairs.size(); ++t) threads.emplace_back([&, t] { obey(*pairs[t]); });
  obey(*pairs[0]);
  for (std::thread& t : threads) t.join();
}

tw_context* make_context(const Options& o) {
  tw_context_options c = TW_CONTEXT_OPTIONS_INIT;
  c.tls = o.tls;
  tw_context* context = nullptr;
  must(tw_context_create(&c, &context), "tw_context_create");
  return context;
}

/// A progress thread or a host queue would share the core that a process is pinned to.
bool one_thread(const Options& o) {
  return o.threads == 1 && !o.progress_thread && o.trigger != Trigger::queue && o.trigger != Trigger::graph;
}

/// Both sides of a locally started pair of processes. Rank 0 watches the other.
void local(const Options& o, int socket, int rank, Watch* watch = nullptr) {
  tw_context* context = make_context(o);  // before the pinning: the first one of a machine measures costs on two cores
  if (one_thread(o)) pin_to_core(static_cast<unsigned>(rank));
  {
    Pairs pairs;
    for (unsigned t = 0; t < o.threads; ++t) {
      pairs.push_back(std::make_unique<Pair>(o, context, rank));
      pairs.back()->connect_local(socket, o.transport.c_str());
    }
    if (rank == 0) {
      o.check ? check_link(*pairs[0], o) : o.test == "tune" ? tune_link(*pairs[0], o) : command(pairs, o);
      watch->over();
      end_all(pairs);
    } else {
      serve_threads(pairs);
    }
  }
  tw_context_destroy(context);
}

}  // namespace

int start_locally(const Options& o, char** argv) {
  int sockets[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) die("socketpair", TW_ERR_IO);
  const pid_t child = start_child();
  if (child == 0) {
    ::close(sockets[0]);
    std::string fd = std::to_string(sockets[1]), threads = std::to_string(o.threads);
    std::vector<char*> args = {argv[0],
                               const_cast<char*>("--inherit"),
                               fd.data(),
                               const_cast<char*>("--threads"),
                               threads.data(),
                               const_cast<char*>("--transport"),
                               const_cast<char*>(o.transport.c_str())};
    if (o.tls) args.push_back(const_cast<char*>("--tls"));
    if (o.progress_thread) args.insert(args.end(), {const_cast<char*>("--progress"), const_cast<char*>("thread")});
    if (o.trigger != Trigger::call) {
      args.insert(args.end(), {const_cast<char*>("--trigger"), const_cast<char*>(trigger_name(o.trigger))});
    }
    args.push_back(nullptr);
    ::execv("/proc/self/exe", args.data());
    _exit(127);
  }
  ::close(sockets[1]);
  ::fcntl(sockets[0], F_SETFD, FD_CLOEXEC);
  int code = 0;
  {
    Watch watch(sockets[0]);
    local(o, sockets[0], 0, &watch);
    code = exit_code_of(child);
  }
  ::close(sockets[0]);
  return code;
}

namespace {

/// One client, to its end. A byte into `listening` once the port is there.
void serve_one(const Options& o, int listening) {
  tw_context* context = make_context(o);
  {
    Pair pair(o, context, 1);
    tw_listener* listener = nullptr;
    must(tw_listen(pair.worker, (":" + std::to_string(o.listen_port)).c_str(), nullptr, &listener), "tw_listen");
    std::fprintf(stderr, "thalweg perf: serving on port %u\n", tw_listener_port(listener));
    if (::write(listening, "", 1) != 1) die("write", TW_ERR_IO);
    pair.accept_from(listener);
    tw_listener_close(listener);
    obey(pair);
  }
  tw_context_destroy(context);
}

/// Each client has a process of its own: one that is lost, or orders nonsense, ends no other's.
int serve(const Options& o) {
  for (;;) {
    int ready[2];
    if (::pipe2(ready, O_CLOEXEC) != 0) die("pipe2", TW_ERR_IO);
    const pid_t child = start_child();
    if (child == 0) {
      ::close(ready[0]);
      serve_one(o, ready[1]);
      _exit(0);
    }
    ::close(ready[1]);
    char byte = 0;
    const bool listened = ::read(ready[0], &byte, 1) == 1;
    ::close(ready[0]);
    const int code = exit_code_of(child);
    if (!listened) return code;
    if (code != 0) std::fprintf(stderr, "thalweg perf: that client did not come to its end\n");
  }
}

int connect(const Options& o) {
  tw_context* context = make_context(o);
  {
    Pairs pairs;
    pairs.push_back(std::make_unique<Pair>(o, context, 0));
    pairs[0]->connect_to(o.host);
    command(pairs, o);
    end_all(pairs);
  }
  tw_context_destroy(context);
  return 0;
}

}  // namespace

const Test* find_test(const std::string& name) {
  for (const Test& t : tests()) {
    if (name == t.name) return &t;
  }
  return nullptr;
}

namespace {

/// Reports what of the user's sizes and options is refused, before anything is started.
bool can_measure(const Options& o) {
  const Test* const test = find_test(o.test);
  if (test == nullptr) return true;
  for (const size_t size : o.sizes.empty() ? default_sizes(o, *test) : o.sizes) {
    const std::string why = why_refused(order_of(o, *test, size));
    if (why.empty()) continue;
    std::fprintf(stderr, "thalweg perf: %s\n", why.c_str());
    return false;
  }
  return true;
}

}  // namespace

/// Reports a test without such a trigger.
bool can_trigger(const Options& o) {
  const Test* test = find_test(o.test);
  if (o.trigger == Trigger::call || (test != nullptr && run_of(*test, o.trigger) != nullptr)) return true;
  std::string those;
  for (const Test& one : tests()) {
    if (run_of(one, o.trigger) != nullptr) those += std::string(" ") + one.name;
  }
  std::fprintf(stderr, "thalweg perf: --trigger %s is for%s, not for %s\n", trigger_name(o.trigger), those.c_str(),
               o.test.c_str());
  return false;
}

int run(int argc, char** argv) {
  Options o;
  if (!parse(argc, argv, &o)) return 2;
  if (o.inherited >= 0) {
    local(o, o.inherited, 1);
    return 0;
  }
  if (o.listen_port >= 0) return serve(o);
  if (const AloneTest test = find_alone(o.test); test != nullptr) {
    test(o);
    return 0;
  }
  if (is_collective(o.test)) return run_collective(o, argv);
  if (!can_trigger(o) || !can_measure(o)) return 2;
  if (o.test == "tune") return o.check ? run_check(o, argv) : run_tune(o, argv);
  if (o.transport == "self") {
    run_self(o);
    return 0;
  }
  if (o.host.empty()) return start_locally(o, argv);
  if (o.threads != 1) {
    std::fprintf(stderr, "thalweg perf: --threads works without HOST\n");
    return 2;
  }
  return connect(o);
}

}  // namespace perf

int main(int argc, char** argv) {
  perf::hear_of_children();
  const int code = perf::run(argc, argv);
  perf::flush_results();
  return code == 0 && perf::wrong_data() ? 1 : code;
}
