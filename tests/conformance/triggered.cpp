// SPDX-License-Identifier: Apache-2.0
// Operations that are prepared once and triggered by the host, a queue or a captured graph: channels, puts with a signal and a
// waiter, gets. Each row runs its plan several times with fresh data.
#include <thalweg/device/channel.hpp>

#include <algorithm>
#include <cstring>
#include <utility>

#include "prepared.hpp"
#include "routes.hpp"

namespace conformance {
namespace {

void channel(Side& side, const Row& r, Trigger trigger) {
  const uint64_t size = agreed_size(side, r);
  Payload fits(side, r.remote, size, kPlain, r.seed);
  if (fits.bytes() != size) return side.barrier();
  const bool sends = side.rank == 0;
  Payloads data(side, r, sends ? r.local : r.remote, sends ? r.size : size);
  Plan plan(side, r, trigger);
  for (unsigned i = 0; i < many(r); ++i) {
    tw_op_options o = TW_OP_OPTIONS_INIT;
    o.layout = data[i].layout();
    if (sends) {
      must(tw_plan_send(plan.plan, side.endpoint, data[i].address(), size, tag_of(r, i), &o, nullptr), "tw_plan_send");
    } else {
      must(tw_plan_recv(plan.plan, side.endpoint, data[i].address(), size, tag_of(r, i), &o, nullptr), "tw_plan_recv");
    }
  }
  plan.prepare();
  side.barrier();
  Routes routes(side, r, Routes::Kind::channels);
  if (sends) routes.expect_runs(plan.explain(), kRuns, plan.started_by_host());
  for (unsigned run = 0; run < kRuns; ++run) {
    for (unsigned i = 0; i < many(r); ++i) {
      if (sends) {
        data[i].fill(r.seed + run * kMany + i);
      } else {
        data[i].poison();
      }
    }
    plan.run();
    for (unsigned i = 0; i < many(r); ++i) data[i].verify(r.seed + run * kMany + i, size);
  }
  side.barrier();
  routes.check();
  plan.close();
}

/// An end of a channel for code of this program.
class BoundEnd {
 public:
  BoundEnd(Side& side, uint64_t tag, Payloads& data, unsigned count) {
    tw_channel_options options = TW_CHANNEL_OPTIONS_INIT;
    options.timeout_ns = kLong;
    options.message_bytes = data[0].bytes();
    std::vector<tw_channel_buffer> buffers;
    for (unsigned i = 0; i < count; ++i) buffers.push_back({data[i].address(), data[i].bytes(), nullptr});
    must(side.rank == 0 ? tw_channel_bind_send(side.endpoint, tag, &options, &end_)
                        : tw_channel_bind_recv(side.endpoint, buffers.data(), count, tag, &options, &end_),
         "binding an end");
    tw_device_guard words;
    must(tw_channel_end_address(end_, &address), "tw_channel_end_address");
    must(tw_channel_end_guard(end_, &words), "tw_channel_end_guard");
    std::memcpy(&guard, &words, sizeof guard);
  }
  ~BoundEnd() { (void)tw_channel_end_release(end_); }
  uint32_t recv_buffer(unsigned i) const {
    uint32_t number = 0;
    must(tw_channel_end_recv_buffer(end_, i, &number), "tw_channel_end_recv_buffer");
    return number;
  }
  void verify() const { must(tw_channel_end_check(end_), "tw_channel_end_check"); }
  void close() { must(tw_channel_end_release(std::exchange(end_, nullptr)), "tw_channel_end_release"); }
  void* address = nullptr;
  thalweg::device::Guard guard{};

 private:
  tw_channel_end* end_ = nullptr;
};

/// Both ends are run by the twins of kernels on the host, over every transport.
void kernel_channel(Side& side, const Row& r) {
  namespace device = thalweg::device;
  Payloads data(side, r, Shape::contiguous, r.size);
  BoundEnd end(side, tag_of(r, kMany), data, many(r));
  for (unsigned run = 0; run < kRuns; ++run) {
    bool ok = true;
    if (side.rank == 0) {
      device::Sender<> out(static_cast<device::SendEnd*>(end.address), end.guard);
      for (unsigned i = 0; i < many(r); ++i) data[i].fill(r.seed + run * kMany + i);
      for (unsigned i = 0; i < many(r); ++i) ok = ok && out.send(device::Thread(), data[i].address(), r.size);
    } else {
      device::Receiver<> in(static_cast<device::RecvEnd*>(end.address), end.guard);
      for (unsigned i = 0; i < many(r); ++i) data[i].poison();
      for (unsigned i = 0; i < many(r); ++i) ok = ok && in.post(device::Thread(), end.recv_buffer(i));
      for (unsigned i = 0; i < many(r); ++i) ok = ok && in.take(device::Thread());
    }
    end.verify();
    check(ok, "the code gave up, and nothing says why");
    for (unsigned i = 0; i < many(r); ++i) data[i].verify(r.seed + run * kMany + i, r.size);
  }
  end.close();
}

void put(Side& side, const Row& r, Trigger trigger) {
  const uint64_t size = agreed_size(side, r);
  Payload fits(side, r.remote, size, kPlain, r.seed);
  if (fits.bytes() != size) return side.barrier();
  const bool puts = side.rank == 0;
  Payloads data(side, r, puts ? r.local : r.remote, puts ? r.size : size);
  std::unique_ptr<Word> word;
  std::unique_ptr<Imports> target;
  if (puts) {
    target = std::make_unique<Imports>(side, many(r), 1);
  } else {
    Keys keys;
    for (unsigned i = 0; i < many(r); ++i) keys.add(data[i]);
    word = std::make_unique<Word>(side, r.place[1], TW_SIGNAL_ADD, 0, r.seed);
    keys.add(*word);
    keys.send(side);
  }
  Plan plan(side, r, trigger);
  if (puts) {
    for (unsigned i = 0; i < many(r); ++i) {
      tw_op_options o = TW_OP_OPTIONS_INIT;
      o.layout = data[i].layout();
      o.remote_layout = fits.layout();
      o.signal = target->signal[0];
      o.signal_op = TW_SIGNAL_ADD;
      o.signal_value = 1;
      must(tw_plan_put(plan.plan, side.endpoint, data[i].address(), size, target->memory[i], target->offset[i], &o, nullptr),
           "tw_plan_put");
    }
    plan.prepare();
    const bool one = target->one_process;
    plan.expect(
        both(reach_of(side, r.place[0], r.place[1], one), reach_of(side, r.place[0], place_of_word(r.place[1]), one, true)));
  }
  side.barrier();
  Routes routes(side, r, Routes::Kind::plans);
  if (puts) routes.expect_runs(plan.explain(), kRuns, plan.started_by_host());
  for (unsigned run = 0; run < kRuns; ++run) {
    if (puts) {
      for (unsigned i = 0; i < many(r); ++i) data[i].fill(r.seed + run * kMany + i);
      side.barrier();
      plan.run();
    } else {
      for (unsigned i = 0; i < many(r); ++i) data[i].poison();
      side.barrier();
      side.await(word->signal, TW_COMPARE_GE, (run + 1) * many(r));
      for (unsigned i = 0; i < many(r); ++i) data[i].verify(r.seed + run * kMany + i, size);
      word->verify((run + 1) * many(r));
    }
    side.barrier();
  }
  routes.check();
  plan.close();
  side.barrier();
}

void get(Side& side, const Row& r, Trigger trigger) {
  const uint64_t size = agreed_size(side, r);
  Payload fits(side, r.remote, size, kPlain, r.seed);
  if (fits.bytes() != size) return side.barrier();
  const bool gets = side.rank == 0;
  Payloads data(side, r, gets ? r.local : r.remote, gets ? r.size : size);
  std::unique_ptr<Imports> target;
  if (gets) {
    target = std::make_unique<Imports>(side, many(r), 0);
  } else {
    Keys keys;
    for (unsigned i = 0; i < many(r); ++i) keys.add(data[i]);
    keys.send(side);
  }
  Plan plan(side, r, trigger);
  if (gets) {
    for (unsigned i = 0; i < many(r); ++i) {
      tw_op_options o = TW_OP_OPTIONS_INIT;
      o.layout = data[i].layout();
      o.remote_layout = fits.layout();
      must(tw_plan_get(plan.plan, side.endpoint, data[i].address(), size, target->memory[i], target->offset[i], &o, nullptr),
           "tw_plan_get");
    }
    plan.prepare();
    plan.expect(reach_of(side, r.place[0], r.place[1], target->one_process));
  }
  side.barrier();
  Routes routes(side, r, Routes::Kind::plans);
  if (gets) routes.expect_runs(plan.explain(), kRuns, plan.started_by_host());
  for (unsigned run = 0; run < kRuns; ++run) {
    for (unsigned i = 0; i < many(r); ++i) {
      if (gets) {
        data[i].poison();
      } else {
        data[i].fill(r.seed + run * kMany + i);
      }
    }
    side.barrier();
    if (gets) {
      plan.run();
      for (unsigned i = 0; i < many(r); ++i) data[i].verify(r.seed + run * kMany + i, size);
    }
    side.barrier();
  }
  routes.check();
  plan.close();
  side.barrier();
}

}  // namespace

void add_triggered(std::vector<Operation>& all) {
  add_by_each<channel>(all, {"channel_host", "channel_queue", "channel_graph"}, true);
  all.push_back({"channel_ahead", true, true, ~size_t{0}, by<channel, Trigger::ahead>, Devices::all, Rows::few});
  all.push_back({"channel_kernel", false, false, ~size_t{0}, kernel_channel, Devices::none, Rows::few});
  add_by_each<put>(all, {"plan_put_host", "plan_put_queue", "plan_put_graph"}, true);
  add_by_each<get>(all, {"plan_get_host", "plan_get_queue", "plan_get_graph"}, true);
}

}  // namespace conformance
