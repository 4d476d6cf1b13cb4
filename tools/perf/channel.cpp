// SPDX-License-Identifier: Apache-2.0
// tag_lat of plans: a message over a channel and one back over another, a plan each, so that each waits for its peer by itself.
#include "rounds.hpp"
#include "starter.hpp"
#include "tests.hpp"

namespace perf {
namespace {

constexpr uint64_t kTag = 0x7a6;
constexpr const char* kWaits[] = {"auto", "kernel", "ahead"};

}  // namespace

Sample channel_latency(Pair& p, const Order& order) {
  Sample s;
  Buffers out(p.context, order, 1, p.rank), in(p.context, order, 1, p.rank);
  Rounds rounds(order, p.rank, &out, all_right(in, 1));
  in.poison();
  Starter starter(p, order, 2);
  for (unsigned i = 0; i < 2; ++i) {
    tw_op_options step = TW_OP_OPTIONS_INIT;
    const bool sends = (i == 0) == (p.rank == 0);
    const Buffers& buffers = sends ? out : in;
    step.layout = buffers.layout();
    must(sends ? tw_plan_send(starter.plan(i), p.endpoint, buffers.at(0), order.size, kTag, &step, nullptr)
               : tw_plan_recv(starter.plan(i), p.endpoint, buffers.at(0), order.size, kTag, &step, nullptr),
         "tw_plan_send and tw_plan_recv");
  }
  starter.prepare();
  s.route = std::string(tw_endpoint_transport(p.endpoint)) + " channel, " + starter.ways() + ", waits " + kWaits[order.waits];
  p.sync();
  const uint64_t warm = order.verify ? 0 : order.iterations / 10 + 1;
  for (uint64_t i = 0; i < warm + Starter::counted(order); ++i) {
    rounds.before_send();
    const uint64_t start = now_ns();
    starter.start();
    if (i >= warm) s.latency_us.push_back(static_cast<double>(now_ns() - start) / 2e3 / starter.runs());
    rounds.behind_receive();
  }
  p.sync();
  s.verified = rounds.verified();
  return s;
}

}  // namespace perf
