// SPDX-License-Identifier: Apache-2.0
// tag_lat of plans: a message over a channel and one back over another. On queues a plan each, so that each waits for its peer by
// itself; what the host starts is one plan at each end, as each start and each end of a device's would be waited for.
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
  const bool one = order.trigger == static_cast<uint8_t>(Trigger::host);
  Starter starter(p, order, one ? 1 : 2);
  const auto mine = static_cast<uint64_t>(p.rank);
  uint32_t received = 0;
  for (unsigned i = 0; i < 2; ++i) {  // in one plan the receive first, so that it is posted when its message comes
    const bool sends = one ? i == 1 : (i == 0) == (p.rank == 0);
    tw_plan* const plan = starter.plan(one ? 0 : i);
    tw_op_options step = TW_OP_OPTIONS_INIT;
    const Buffers& buffers = sends ? out : in;
    step.layout = buffers.layout();
    step.after_steps = &received;
    step.after_count = one && sends && p.rank == 1 ? 1 : 0;  // the answer
    must(sends ? tw_plan_send(plan, p.endpoint, buffers.at(0), order.size, kTag + mine, &step, nullptr)
               : tw_plan_recv(plan, p.endpoint, buffers.at(0), order.size, kTag + 1 - mine, &step, &received),
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
