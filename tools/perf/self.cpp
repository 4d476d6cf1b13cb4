// SPDX-License-Identifier: Apache-2.0
// --transport self: both ends in one worker. Latency is one send and its receive.
#include <unistd.h>

#include <cstdio>

#include "buffers.hpp"
#include "tests.hpp"

namespace perf {
namespace {

Result measure(Pair& p, const std::string& name, size_t size, const Options& options) {
  Order order{};
  order.size = size;
  order.window = name == "tag_lat" ? 1 : options.window;
  order.layout = options.layout;
  order.reuse = options.reuse;
  for (int side = 0; side < 2; ++side) std::snprintf(order.memory[side], kMemoryName, "%s", options.memory[side].c_str());
  Buffers out(p.context, order, order.window, 0), in(p.context, order, order.window, 1);
  out.fill(size);
  tw_op_options o = TW_OP_OPTIONS_INIT;
  o.layout = out.layout();
  std::vector<tw_request> requests(2 * order.window, TW_REQUEST_NONE);
  auto window = [&] {
    for (size_t i = 0; i < order.window; ++i) {
      must(tw_recv(p.worker, in.at(i), size, kDataTag, ~0ull, &o, &requests[2 * i]), "tw_recv");
      out.renew(i);
      must(tw_send(p.endpoint, out.at(i), size, kDataTag, &o, &requests[2 * i + 1]), "tw_send");
    }
    for (tw_request& r : requests) p.wait(r);
  };
  Result r;
  r.test = name;
  r.transport = "self";
  r.size = size;
  r.fresh = out.renews();
  for (int side = 0; side < 2; ++side) r.memory[side] = order.memory[side];
  r.route = p.route("send", order, out.at(0));
  std::vector<double> times;
  for (uint64_t end = now_ns() + static_cast<uint64_t>(options.seconds * 1e9); now_ns() < end || times.size() < 3;) {
    unsigned batch = batch_of(size);
    uint64_t start = now_ns();
    for (unsigned i = 0; i < batch; ++i) window();
    times.push_back(static_cast<double>(now_ns() - start) / 1e3 / batch);
  }
  r.iterations = times.size() * batch_of(size);
  r.verified = true;
  for (size_t i = 0; i < order.window; ++i) r.verified &= in.check(i, size);
  double us = percentile(times, 50) / static_cast<double>(order.window);
  r.bandwidth = static_cast<double>(size) / us / 1e3;
  r.rate = 1 / us;
  if (name == "tag_lat") r.latency_us = times;
  return r;
}

}  // namespace

void run_self(const Options& options) {
  if (options.test.rfind("tag_", 0) != 0) {
    std::fprintf(stderr, "thalweg perf: --transport self measures tag_lat, tag_bw, tag_bibw and tag_rate\n");
    _exit(2);
  }
  tw_context* context = nullptr;
  must(tw_context_create(nullptr, &context), "tw_context_create");
  {
    Pair pair(options, context, 0);
    const std::vector<unsigned char> address = address_of(pair.worker);
    must(tw_connect(pair.worker, address.data(), address.size(), nullptr, &pair.endpoint), "tw_connect");
    must(tw_endpoint_wait(pair.endpoint, 10000000000ull), "connecting");
    print_header(options.format, options.test + ", both ends in one worker");
    std::vector<size_t> sizes = options.sizes.empty() ? find_test(options.test)->sizes : options.sizes;
    for (size_t size : sizes) print(options.format, measure(pair, options.test, size, options));
  }
  tw_context_destroy(context);
}

}  // namespace perf
