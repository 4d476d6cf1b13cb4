// SPDX-License-Identifier: Apache-2.0
// Runs that wait in a kernel of one block ahead of their own (tw_queue_options.waits): what they wait for, and how their waits
// end.
#include <chrono>
#include <deque>
#include <random>

#include "../../fixtures/rooms.hpp"
#include "pair.hpp"

namespace thalweg::tests {
namespace {

constexpr unsigned kSlots = 8;  // kernels that an emulated device runs at a time
constexpr uint64_t kShort = 150'000'000;

class Waits : public Pair {
 protected:
  /// A plan whose buffers live as long as the test.
  struct Made {
    tw_plan* plan = nullptr;
    unsigned char *from = nullptr, *to = nullptr;
    size_t size = 0;
  };
  Made made(Side& side, size_t size, uint64_t timeout_ns = kLong) {
    return {plan(side, timeout_ns), memory(side, size), memory(side, size), size};
  }
  static void send(Made& by, Side& side, uint64_t tag, std::vector<uint32_t> after = {}) {
    const tw_op_options options = behind(after);
    ASSERT_EQ(tw_plan_send(by.plan, side.endpoint, by.from, by.size, tag, &options, nullptr), TW_OK) << tw_last_error();
  }
  static void receive(Made& by, Side& side, uint64_t tag, std::vector<uint32_t> after = {}) {
    const tw_op_options options = behind(after);
    ASSERT_EQ(tw_plan_recv(by.plan, side.endpoint, by.to, by.size, tag, &options, nullptr), TW_OK) << tw_last_error();
  }
  static tw_op_options behind(const std::vector<uint32_t>& after) {
    tw_op_options options = TW_OP_OPTIONS_INIT;
    options.after_steps = after.data();
    options.after_count = after.size();
    return options;
  }
  static void prepare(Made& one, Made& other) {
    both([&] { ASSERT_EQ(tw_plan_prepare(one.plan, kLong), TW_OK) << tw_last_error(); },
         [&] { ASSERT_EQ(tw_plan_prepare(other.plan, kLong), TW_OK) << tw_last_error(); });
  }
  static void trigger(Made& what, tw_queue* on) { ASSERT_EQ(tw_plan_trigger(what.plan, on), TW_OK) << tw_last_error(); }
  static void finish(tw_queue* queue) { ASSERT_EQ(tw_queue_synchronize(queue), TW_OK) << tw_last_error(); }
  static void fill(Side& side, Made& what, Bytes* data) {
    *data = random_bytes(what.size);
    side.store(what.from, *data);
    side.store(what.to, Bytes(what.size, 0xee));
  }
  static void expect(Side& side, const Made& what, const Bytes& data) { EXPECT_TRUE(side.load(what.to, what.size) == data); }
  /// Does the queue wait ahead of the plan's kernel?
  static bool ahead(tw_plan* what) { return explain(what).find("so did the last run") != std::string::npos; }

  /// More sends than the device runs kernels, each on a queue of its own; nobody receives yet. begun: each kernel adds 1 when it
  /// begins.
  void fill_device(uint32_t waits, uint64_t timeout_ns, tw_remote_signal* begun = nullptr) {
    for (unsigned i = 0; i <= kSlots; ++i) {
      sends.push_back(made(a, 20'011 + i, timeout_ns));
      receives.push_back(made(b, 20'011 + i));
      send(sends[i], a, i);
      receive(receives[i], b, i);
      if (begun != nullptr) {
        ASSERT_EQ(tw_plan_signal(sends[i].plan, begun, 1, nullptr, nullptr), TW_OK) << tw_last_error();
      }
      prepare(sends[i], receives[i]);
      fill(a, sends[i], &data.emplace_back());
      b.store(receives[i].to, Bytes(receives[i].size, 0xee));
      queues.push_back(queue(a, waits));
    }
    for (unsigned i = 0; i <= kSlots; ++i) trigger(sends[i], queues[i]);
  }
  /// Of additions, in memory of the host.
  static void make_signal(Side& owner, Side& user, tw_signal** signal, tw_remote_signal** remote) {
    tw_signal_options options = TW_SIGNAL_OPTIONS_INIT;
    options.kind = TW_SIGNAL_ADD;
    ASSERT_EQ(tw_signal_create(owner.worker, &options, signal), TW_OK) << tw_last_error();
    unsigned char key[kKeyRoom];
    size_t size = sizeof key;
    ASSERT_EQ(tw_signal_export(*signal, key, &size), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_signal_import(user.endpoint, key, size, remote), TW_OK) << tw_last_error();
    owner.last.emplace_back([made = *signal] { (void)tw_signal_destroy(made); });
    user.last.emplace_back([made = *remote] { tw_remote_signal_release(made); });
  }
  /// Something else on the same device, which needs a kernel.
  void copy_elsewhere(Made& what) {
    ASSERT_EQ(tw_plan_copy(what.plan, what.to, what.from, what.size, nullptr, nullptr), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_plan_prepare(what.plan, kLong), TW_OK) << tw_last_error();
    Bytes bytes;
    fill(a, what, &bytes);
    tw_queue* const other = queue(a);
    trigger(what, other);
    finish(other);
    expect(a, what, bytes);
  }
  std::vector<Made> sends, receives;
  std::vector<tw_queue*> queues;
  std::deque<Bytes> data;
};
INSTANTIATE_TEST_SUITE_P(Ways, Waits, testing::Values(kWays[1]), [](const auto& info) { return info.param.name; });

/// While a run waits ahead, the device has room for something else, and the plan is in use.
TEST_P(Waits, ARunThatWaitsAheadLeavesRoom) {
  for (unsigned i = 0; i + 1 < kSlots; ++i) {
    sends.push_back(made(a, 20'011 + i));
    receives.push_back(made(b, 20'011 + i));
    send(sends[i], a, i);
    receive(receives[i], b, i);
    prepare(sends[i], receives[i]);
    fill(a, sends[i], &data.emplace_back());
    queues.push_back(queue(a, TW_WAITS_AHEAD));
    trigger(sends[i], queues[i]);
  }
  Made copy = made(a, 5'003);
  copy_elsewhere(copy);
  for (Made& one : sends) {
    EXPECT_TRUE(ahead(one.plan)) << explain(one.plan);
    EXPECT_EQ(tw_plan_destroy(one.plan), TW_ERR_BUSY);  // it waits still
  }
  tw_queue* const qb = queue(b, TW_WAITS_AHEAD);
  for (Made& one : receives) trigger(one, qb);
  finish(qb);
  for (size_t i = 0; i < sends.size(); ++i) {
    finish(queues[i]);
    expect(b, receives[i], data[i]);
  }
}

/// Kernels that wait take their places on the device: only when one of them has given up is there room.
TEST_P(Waits, KernelsThatWaitKeepOthersOut) {
  tw_signal* begun = nullptr;
  tw_remote_signal* adds = nullptr;
  make_signal(b, a, &begun, &adds);
  fill_device(TW_WAITS_KERNEL, 10 * kShort, adds);
  ASSERT_EQ(tw_signal_wait(begun, kSlots, TW_COMPARE_GE, kLong), TW_OK) << tw_last_error();
  Made copy = made(a, 5'003);
  copy_elsewhere(copy);
  unsigned gave_up = 0;
  for (unsigned i = 0; i <= kSlots; ++i) {
    EXPECT_FALSE(ahead(sends[i].plan)) << explain(sends[i].plan);
    const tw_status status = tw_queue_check(queues[i]);
    EXPECT_TRUE(status == TW_OK || status == TW_ERR_TIMED_OUT) << tw_last_error();
    gave_up += status == TW_ERR_TIMED_OUT;
  }
  EXPECT_GT(gave_up, 0u);
  for (tw_queue* one : queues) (void)tw_queue_synchronize(one);  // some gave up, see above
}

TEST_P(Waits, WhatAllOfARunNeedsIsAwaited) {
  const struct {
    const char* name;
    std::function<void(Made&, Side&)> fill;
    const char* text;
  } plans[] = {
      {"send", [](Made& m, Side& s) { send(m, s, 1); }, "for step 0;"},
      {"receive", [](Made& m, Side& s) { receive(m, s, 1); }, "for step 0;"},
      {"two receives", [](Made& m, Side& s) { receive(m, s, 1), receive(m, s, 2); }, "for step 0 1;"},
      {"exchange", [](Made& m, Side& s) { receive(m, s, 1), send(m, s, 1); }, "for step 1;"},
      {"answer", [](Made& m, Side& s) { receive(m, s, 1), send(m, s, 1, {0}); }, "for step 0 1;"},
      {"a channel's second send", [](Made& m, Side& s) { send(m, s, 1), send(m, s, 1); }, "for step 0;"},
      {"a send to each of two", [](Made& m, Side& s) { send(m, s, 1), send(m, s, 2); }, "in the kernel; there is no"},
      {"a receive behind a send", [](Made& m, Side& s) { send(m, s, 1), receive(m, s, 2, {0}); }, "for step 0;"},
      {"copy beside a receive",
       [](Made& m, Side& s) {
         receive(m, s, 1);
         EXPECT_EQ(tw_plan_copy(m.plan, m.from, m.to, 1, nullptr, nullptr), TW_OK);
       },
       "in the kernel; there is no"},
  };
  const auto mirror = [](Made& m, Side& s, const std::string& name) {  // channels both ways, whatever the plan uses of them
    const bool both_tags = name.find("two") != std::string::npos;
    if (name == "send" || name == "a send to each of two" || name == "a channel's second send") {
      receive(m, s, 1);
      if (name == "a channel's second send") receive(m, s, 1);
    } else if (name == "a receive behind a send") {
      receive(m, s, 1), send(m, s, 2);
    } else {
      send(m, s, 1);
      if (name == "exchange" || name == "answer") receive(m, s, 1);
    }
    if (both_tags && name == "two receives") send(m, s, 2);
    if (both_tags && name != "two receives") receive(m, s, 2);
  };
  for (const auto& one : plans) {
    SCOPED_TRACE(one.name);
    Made mine = made(a, 99), theirs = made(b, 99);
    one.fill(mine, a);
    mirror(theirs, b, one.name);
    prepare(mine, theirs);
    EXPECT_NE(explain(mine.plan).find(one.text), std::string::npos) << explain(mine.plan);
  }
}

/// Receives in another order than the plan of two sends has them: nothing waits for both.
TEST_P(Waits, APartIsNotHeldUpByAnother) {
  Made two = made(a, 3'001), first = made(b, 3'001), second = made(b, 3'001);
  send(two, a, 1);
  send(two, a, 2);
  receive(first, b, 2);
  receive(second, b, 1);
  both([&] { ASSERT_EQ(tw_plan_prepare(two.plan, kLong), TW_OK) << tw_last_error(); },
       [&] {  // one after the other: a prepare waits for its buffer to be known, which the other side's one prepare sees to
         ASSERT_EQ(tw_plan_prepare(first.plan, kLong), TW_OK) << tw_last_error();
         ASSERT_EQ(tw_plan_prepare(second.plan, kLong), TW_OK) << tw_last_error();
       });
  tw_queue *qa = queue(a, TW_WAITS_AHEAD), *qb = queue(b, TW_WAITS_AHEAD);
  for (int round = 0; round < 20; ++round) {
    Bytes bytes;
    fill(a, two, &bytes);
    for (Made* one : {&first, &second}) b.store(one->to, Bytes(one->size, 0xee));
    trigger(two, qa);
    trigger(first, qb);
    finish(qb);  // with kernels this one ends, too, before the other begins
    expect(b, first, bytes);
    trigger(second, qb);
    finish(qb);
    finish(qa);
    expect(b, second, bytes);
  }
}

/// Pauses of a thread that make partners late by turns.
void dawdle(std::mt19937& random) {
  if (random() % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
}

/// Many runs at a time of each kind of plan, started by either side whenever it likes.
TEST_P(Waits, ManyRunsWithLatePartners) {
  constexpr unsigned kBatches = 40, kPlans = 10, kTurns = 3;
  const size_t sizes[] = {1, 777, 4'097, 70'001};
  std::vector<Made> of[2];
  Side* const sides[] = {&a, &b};
  for (unsigned i = 0; i < kPlans; ++i) {
    for (int k : {0, 1}) {
      Made& one = of[k].emplace_back(made(*sides[k], sizes[i % std::size(sizes)]));
      const bool begins = (i % 2 == 0) == (k == 0);
      switch (i % 3) {
        case 0:  // a message
          begins ? send(one, *sides[k], 1) : receive(one, *sides[k], 1);
          break;
        case 1:  // both ways at once
          receive(one, *sides[k], 2);
          send(one, *sides[k], 2);
          break;
        default:  // a question and its answer
          begins ? send(one, *sides[k], 3) : receive(one, *sides[k], 3);
          begins ? receive(one, *sides[k], 3) : send(one, *sides[k], 3, {0});
      }
    }
    prepare(of[0][i], of[1][i]);
  }
  tw_queue* const on[] = {queue(a, TW_WAITS_AHEAD), queue(b, TW_WAITS_AHEAD)};
  for (unsigned batch = 0; batch < kBatches; ++batch) {
    std::vector<Bytes> filled[2];
    for (unsigned i = 0; i < kPlans; ++i) {
      for (int k : {0, 1}) fill(*sides[k], of[k][i], &filled[k].emplace_back());
    }
    const auto run = [&](int k) {
      std::mt19937 random(std::random_device{}());
      for (unsigned turn = 0; turn < kTurns; ++turn) {
        for (Made& one : of[k]) {
          dawdle(random);
          trigger(one, on[k]);
        }
      }
      finish(on[k]);
    };
    both([&] { run(0); }, [&] { run(1); });
    for (unsigned i = 0; i < kPlans; ++i) {
      for (int k : {0, 1}) {
        const bool begins = (i % 2 == 0) == (k == 0);
        if (i % 3 == 0 && begins) continue;  // it receives nothing
        expect(*sides[k], of[k][i], filled[1 - k][i]);
      }
    }
  }
  for (unsigned i = 0; i < kPlans; ++i) EXPECT_TRUE(ahead(of[0][i].plan) && ahead(of[1][i].plan));
}

/// Counts are read when the block runs, so launches of a graph, which nobody counts, wait ahead like other runs.
TEST_P(Waits, CapturedRunsWaitAheadToo) {
  Made sends = made(a, 3'001), receives = made(b, 3'001);
  send(sends, a, 3);
  receive(receives, b, 3);
  prepare(sends, receives);
  tw_queue *qa = queue(a, TW_WAITS_AHEAD), *qb = queue(b, TW_WAITS_AHEAD);
  tw_graph *ga = nullptr, *gb = nullptr;
  for (auto [queue, what, graph] : {std::tuple{qa, sends.plan, &ga}, std::tuple{qb, receives.plan, &gb}}) {
    ASSERT_EQ(tw_queue_begin_capture(queue), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_plan_trigger(what, queue), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_queue_end_capture(queue, graph), TW_OK) << tw_last_error();
    EXPECT_TRUE(ahead(what)) << explain(what);
  }
  for (int round = 0; round < 50; ++round) {
    Bytes bytes;
    fill(a, sends, &bytes);
    b.store(receives.to, Bytes(receives.size, 0xee));
    if (round % 3 == 0) {
      trigger(sends, qa);
      trigger(receives, qb);
    } else {
      ASSERT_EQ(tw_graph_launch(ga, qa), TW_OK) << tw_last_error();
      ASSERT_EQ(tw_graph_launch(gb, qb), TW_OK) << tw_last_error();
    }
    finish(qb);
    finish(qa);
    expect(b, receives, bytes);
  }
  tw_graph_destroy(ga);
  tw_graph_destroy(gb);
}

/// The wrapper goes with the stream's last plan, and leaves the stream alone, which is captured, or not there any more.
TEST_P(Waits, AStreamsLastPlanLeavesItAlone) {
  for (const bool captured : {true, false}) {
    SCOPED_TRACE(captured);
    tw_queue* owner = nullptr;
    ASSERT_EQ(tw_queue_create(a.context, GetParam().place, nullptr, &owner), TW_OK) << tw_last_error();
    Made sends = made(b, 3'001), receives, copies = made(a, 3'001);
    tw_plan_options options = TW_PLAN_OPTIONS_INIT;
    options.place = GetParam().place;
    options.blocks = 64;
    ASSERT_EQ(tw_plan_create(a.context, &options, &receives.plan), TW_OK) << tw_last_error();
    receives.to = memory(a, receives.size = sends.size);
    send(sends, b, 5);
    receive(receives, a, 5);
    ASSERT_EQ(tw_plan_copy(copies.plan, copies.to, copies.from, copies.size, nullptr, nullptr), TW_OK);
    ASSERT_EQ(tw_plan_prepare(copies.plan, 0), TW_OK) << tw_last_error();
    prepare(sends, receives);
    Bytes data;
    fill(b, sends, &data);
    ASSERT_EQ(tw_plan_trigger_stream(receives.plan, tw_queue_native(owner)), TW_OK) << tw_last_error();
    EXPECT_TRUE(ahead(receives.plan)) << explain(receives.plan);
    ASSERT_EQ(tw_plan_run(sends.plan, kLong), TW_OK) << tw_last_error();
    finish(owner);
    expect(a, receives, data);
    if (!captured) {
      tw_queue_destroy(owner);
      EXPECT_EQ(tw_plan_destroy(receives.plan), TW_OK) << tw_last_error();
      continue;
    }
    ASSERT_EQ(tw_queue_begin_capture(owner), TW_OK) << tw_last_error();
    EXPECT_EQ(tw_plan_destroy(receives.plan), TW_OK) << tw_last_error();
    trigger(copies, owner);
    tw_graph* graph = nullptr;
    ASSERT_EQ(tw_queue_end_capture(owner, &graph), TW_OK) << tw_last_error();
    fill(a, copies, &data);
    EXPECT_EQ(tw_graph_launch(graph, owner), TW_OK) << tw_last_error();
    finish(owner);
    expect(a, copies, data);
    tw_graph_destroy(graph);
    tw_queue_destroy(owner);
  }
}

/// All runs that are enqueued end; the queue says which operation gave up; both sides are told; nothing has arrived.
TEST_P(Waits, AWaitThatExpiresLetsTheQueueGo) {
  for (const bool sender_waits : {true, false}) {
    SCOPED_TRACE(sender_waits);
    const uint64_t tag = sender_waits ? 21 : 22;
    Made sends = made(a, 6'007, kShort), receives = made(b, 6'007, kShort);
    send(sends, a, tag);
    receive(receives, b, tag);
    prepare(sends, receives);
    Made &waits = sender_waits ? sends : receives, &other = sender_waits ? receives : sends;
    tw_queue *mine = queue(sender_waits ? a : b, TW_WAITS_AHEAD), *theirs = queue(sender_waits ? b : a, TW_WAITS_AHEAD);
    const auto exchange = [&] {
      Bytes bytes;
      fill(a, sends, &bytes);
      b.store(receives.to, Bytes(receives.size, 0xee));
      trigger(waits, mine);
      trigger(other, theirs);
      finish(mine);
      finish(theirs);
      expect(b, receives, bytes);
    };
    for (int round = 0; round < 3; ++round) exchange();
    b.store(receives.to, Bytes(receives.size, 0xdd));
    for (int run = 0; run < 40; ++run) trigger(waits, mine);
    EXPECT_EQ(tw_queue_synchronize(mine), TW_ERR_TIMED_OUT) << tw_last_error();
    const std::string text = tw_last_error();
    for (const char* part : {sender_waits ? "send" : "recv", sender_waits ? "channel 21" : "channel 22", "peer",
                             "nothing came in time", "waited for 4, found"}) {
      EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
    }
    EXPECT_EQ(tw_plan_trigger(waits.plan, mine), TW_ERR_TIMED_OUT);
    tw_status told = TW_OK;
    const auto limit = std::chrono::steady_clock::now() + std::chrono::nanoseconds(kLong);
    while (told == TW_OK && std::chrono::steady_clock::now() < limit) told = tw_queue_check(theirs);  // its proxy hears it
    EXPECT_EQ(told, TW_ERR_TIMED_OUT) << tw_last_error();
    expect(b, receives, Bytes(receives.size, 0xdd));
    prepare(sends, receives);
    for (int round = 0; round < 3; ++round) exchange();
  }
}

/// Plans share a channel: when one expires, the others' runs behind it send nothing either.
TEST_P(Waits, RunsBehindOneThatExpiredDoNothing) {
  Made first = made(a, 50'021, kShort), second = made(a, 11, 10 * kShort), takes[] = {made(b, 50'021), made(b, 50'021)};
  send(first, a, 1);
  send(second, a, 1);
  for (Made& one : takes) receive(one, b, 1);
  prepare(first, takes[0]);
  prepare(second, takes[1]);
  for (Made& one : takes) b.store(one.to, Bytes(one.size, 0xdd));
  tw_queue* const qa = queue(a, TW_WAITS_AUTO);  // the large one waits ahead of its kernel, the small one in it
  trigger(first, qa);
  trigger(second, qa);
  EXPECT_TRUE(ahead(first.plan)) << explain(first.plan);
  EXPECT_FALSE(ahead(second.plan)) << explain(second.plan);
  EXPECT_EQ(tw_queue_synchronize(qa), TW_ERR_TIMED_OUT) << tw_last_error();
  EXPECT_EQ(tw_plan_trigger(second.plan, qa), TW_ERR_TIMED_OUT) << tw_last_error();
  for (Made& one : takes) expect(b, one, Bytes(one.size, 0xdd));
}

TEST_P(Waits, AQueueIsDestroyedBehindItsWaits) {
  Made sends = made(a, 6'007), receives = made(b, 6'007);
  send(sends, a, 1);
  receive(receives, b, 1);
  prepare(sends, receives);
  tw_queue_options options = TW_QUEUE_OPTIONS_INIT;
  options.waits = TW_WAITS_AHEAD;
  tw_queue *qa = nullptr, *qb = queue(b, TW_WAITS_AHEAD);
  for (int round = 0; round < 10; ++round) {
    ASSERT_EQ(tw_queue_create(a.context, GetParam().place, &options, &qa), TW_OK) << tw_last_error();
    Bytes bytes;
    fill(a, sends, &bytes);
    b.store(receives.to, Bytes(receives.size, 0xee));
    trigger(sends, qa);
    both([&] { tw_queue_destroy(qa); }, [&] { trigger(receives, qb); });
    finish(qb);
    expect(b, receives, bytes);
  }
  Made alone = made(a, 6'007, kShort), nobody = made(b, 6'007);
  send(alone, a, 2);
  receive(nobody, b, 2);
  prepare(alone, nobody);
  ASSERT_EQ(tw_queue_create(a.context, GetParam().place, &options, &qa), TW_OK) << tw_last_error();
  trigger(alone, qa);
  tw_queue_destroy(qa);  // at the limit of the wait
  EXPECT_EQ(tw_plan_trigger(alone.plan, nullptr), TW_ERR_TIMED_OUT) << tw_last_error();
}

TEST_P(Waits, SingleOperationsAndTheirOptions) {
  tw_queue *qa = queue(a, TW_WAITS_AHEAD), *qb = queue(b, TW_WAITS_AHEAD);
  unsigned char *from = memory(a, 777), *to = memory(b, 777);
  for (int round = 0; round < 60; ++round) {
    const Bytes bytes = random_bytes(777);
    a.store(from, bytes);
    b.store(to, Bytes(777, 0xee));
    both([&] { ASSERT_EQ(tw_send_on(qa, a.endpoint, from, 777, 5, nullptr), TW_OK) << tw_last_error(); },
         [&] { ASSERT_EQ(tw_recv_on(qb, b.endpoint, to, 777, 5, nullptr), TW_OK) << tw_last_error(); });
    finish(qb);
    finish(qa);
    EXPECT_TRUE(b.load(to, 777) == bytes);
  }
  tw_queue* none = nullptr;
  tw_queue_options wrong = TW_QUEUE_OPTIONS_INIT;
  wrong.waits = 3;
  EXPECT_EQ(tw_queue_create(a.context, GetParam().place, &wrong, &none), TW_ERR_INVALID);
  EXPECT_NE(std::string(tw_last_error()).find("waits"), std::string::npos) << tw_last_error();
}

}  // namespace
}  // namespace thalweg::tests
