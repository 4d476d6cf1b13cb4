// SPDX-License-Identifier: Apache-2.0
// Plans in which collectives are kernels, each a program of its own among the others.
#include <gmock/gmock.h>

#include "own_queue.hpp"
#include "planned_jobs.hpp"

namespace thalweg::test {
namespace {

using ::testing::HasSubstr;

enum class By { host, queue, graph };

void run_once(OwnPlan& plan, OwnQueue& queue, OwnGraph* graph, By by) {
  if (by == By::host) {
    ASSERT_EQ(tw_plan_run(plan, kLong), TW_OK) << tw_last_error();
    return;
  }
  ASSERT_EQ(by == By::queue ? tw_plan_trigger(plan, queue) : tw_graph_launch(*graph, queue), TW_OK) << tw_last_error();
  queue.synchronize();
  ASSERT_EQ(tw_queue_check(queue), TW_OK) << tw_last_error();
}

class PlannedKernels : public testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, PlannedKernels, testing::Values(2, 3, 5, 8));

/// A ring's message and a copy before an allreduce, in place or not; a copy and another message behind it; a broadcast behind all.
struct Mixed {
  static constexpr size_t kCount = 3'001, kBytes = kCount * sizeof(int64_t);
  Mixed(GroupRank& of, const std::string& place, const char* algorithm, bool placed)
      : rank(of), plan(of, place), in_place(placed) {
    for (Room** each : {&input, &work, &sum, &output, &from_left, &from_right, &shared})
      *each = rooms.emplace_back(std::make_unique<Room>(of.rank.context, place.c_str(), kBytes)).get();
    const uint64_t there = 2 * static_cast<uint64_t>(algorithm[0]), back = there + 1;  // each has channels of its own
    tw_op_options order = TW_OP_OPTIONS_INIT;
    uint32_t before[3] = {}, reduced = 0, copied = 0, last[2] = {};
    EXPECT_EQ(tw_plan_copy(plan, work->data(), input->data(), kBytes, nullptr, &before[0]), TW_OK);
    EXPECT_EQ(tw_plan_send(plan, peer(1), input->data(), kBytes, there, nullptr, &before[1]), TW_OK);
    EXPECT_EQ(tw_plan_recv(plan, peer(of.rank.size - 1), from_left->data(), kBytes, there, nullptr, &before[2]), TW_OK);
    tw_collective_options options = TW_COLLECTIVE_OPTIONS_INIT;
    options.algorithm = algorithm;
    options.after_steps = before;
    options.after_count = 3;
    EXPECT_EQ(tw_plan_allreduce(plan, of.group, in_place ? TW_IN_PLACE : work->data(), result()->data(), kCount, TW_TYPE_INT64,
                                TW_REDUCE_SUM, &options, &reduced),
              TW_OK)
        << tw_last_error();
    order.after_steps = &reduced;
    order.after_count = 1;
    EXPECT_EQ(tw_plan_copy(plan, output->data(), result()->data(), kBytes, &order, &copied), TW_OK);
    EXPECT_EQ(tw_plan_recv(plan, peer(1), from_right->data(), kBytes, back, &order, &last[0]), TW_OK);
    order.after_steps = &copied;
    EXPECT_EQ(tw_plan_send(plan, peer(of.rank.size - 1), output->data(), kBytes, back, &order, &last[1]), TW_OK);
    options.after_steps = last;
    options.after_count = 2;
    root = of.rank.size - 1;
    EXPECT_EQ(tw_plan_broadcast(plan, of.group, shared->data(), kCount, TW_TYPE_INT64, root, &options, nullptr), TW_OK)
        << tw_last_error();
  }
  tw_endpoint* peer(uint32_t further) const {
    tw_endpoint* found = nullptr;
    EXPECT_EQ(tw_group_endpoint(rank.group, (rank.rank.number + further) % rank.rank.size, &found), TW_OK) << tw_last_error();
    return found;
  }
  Room* result() const { return in_place ? work : sum; }
  static std::string values(uint32_t of, uint64_t round) {
    Values values(kCount);
    for (size_t i = 0; i < kCount; ++i) values[i] = static_cast<double>((i * (of + 1) + round) % 1'009);
    return encode(TW_TYPE_INT64, values);
  }
  void fill(uint64_t round) const {
    input->store(values(rank.rank.number, round));
    shared->store(values(rank.rank.number, round + 50));
  }
  void check(uint64_t round) const { check(round, round); }
  /// summed: the round of what the first copy brought.
  void check(uint64_t round, uint64_t summed) const {
    const uint32_t size = rank.rank.size;
    Values sums(kCount);
    for (uint32_t r = 0; r < size; ++r) {
      for (size_t i = 0; i < kCount; ++i) sums[i] += static_cast<double>((i * (r + 1) + summed) % 1'009);
    }
    const std::string wanted = encode(TW_TYPE_INT64, sums);
    EXPECT_TRUE(output->load() == wanted) << "sum, round " << round;
    EXPECT_TRUE(from_right->load() == wanted) << "the sum of the right one, round " << round;
    EXPECT_TRUE(from_left->load() == values((rank.rank.number + size - 1) % size, round)) << "from the left, round " << round;
    EXPECT_TRUE(shared->load() == values(root, round + 50)) << "broadcast, round " << round;
  }

  GroupRank& rank;
  std::vector<std::unique_ptr<Room>> rooms;
  Room *input = nullptr, *work = nullptr, *sum = nullptr, *output = nullptr, *from_left = nullptr, *from_right = nullptr,
       *shared = nullptr;
  OwnPlan plan;
  const bool in_place;
  uint32_t root = 0;
};

TEST_P(PlannedKernels, AmongOtherSteps) {
  const uint64_t seed = fresh_seed();
  run_group(GetParam(), [&](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    for (const char* algorithm : {"kernel", "ll", "ll128", "simple"}) {
      rank.rank.barrier();  // to release a device's memory waits for its kernels, which may wait for this rank
      Mixed mixed(rank, place, algorithm, algorithm[0] != 'l');
      mixed.plan.prepare();
      const std::string text = mixed.plan.explain();
      const std::string protocol = algorithm[0] == 's'   ? "Simple in two phases"
                                   : algorithm[0] == 'l' ? "LL"
                                                         : "";  // "kernel": by costs
      EXPECT_THAT(text, HasSubstr("tw_allreduce: one kernel on each device, protocol " + protocol));
      EXPECT_THAT(text, HasSubstr("of steps 0 1 2; 3; 4 5 6; 7\n"));
      OwnQueue queue(rank, place);
      for (const By by : {By::queue, By::host, By::graph}) {
        std::optional<OwnGraph> graph;
        if (by == By::graph)
          graph.emplace(queue, [&] { ASSERT_EQ(tw_plan_trigger(mixed.plan, queue), TW_OK) << tw_last_error(); });
        for (uint64_t round = 0; round < 4; ++round) {
          mixed.fill(seed + round);
          run_once(mixed.plan, queue, graph ? &*graph : nullptr, by);
          mixed.check(seed + round);
        }
      }
      rank.rank.barrier();
    }
  });
}

/// A group's collectives on queues go on, on all ranks.
void expect_group_goes_on(GroupRank& rank, const std::string& place, uint64_t seed) {
  JobCase c;
  c.count = 703;
  c.place = place.c_str();
  Jobs jobs(rank, c);
  jobs.add_allreduce();
  OwnQueue queue(rank, place);
  jobs.fill(seed);
  jobs.call(queue.target());
  queue.synchronize();
  EXPECT_EQ(tw_queue_check(queue), TW_OK) << tw_last_error();
  jobs.check(seed);
  rank.rank.barrier();
}

/// By all ranks, of a plan that has not failed: its channels begin anew, and its group has not failed with them.
TEST_P(PlannedKernels, ArePreparedAgain) {
  const uint64_t seed = fresh_seed();
  run_group(GetParam(), [&](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    Mixed mixed(rank, place, "ll", false);
    OwnQueue queue(rank, place);
    for (uint64_t round = 0; round < 2; ++round) {
      mixed.plan.prepare();
      rank.rank.barrier();  // what is prepared again gives memory back, which waits for kernels, which may wait for this rank
      mixed.fill(seed + round);
      run_once(mixed.plan, queue, nullptr, By::queue);
      mixed.check(seed + round);
      rank.rank.barrier();
    }
    expect_group_goes_on(rank, place, seed);
  });
}

/// A plan that is idle while its channel begins anew for another one has failed, and leaves its group as it is.
TEST_P(PlannedKernels, EndWithTheirChannelsAndNotTheirGroup) {
  const uint64_t seed = fresh_seed();
  run_group(GetParam(), [&](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    std::optional<Mixed> mixed;
    mixed.emplace(rank, place, "ll", false);
    mixed->plan.prepare();
    rank.rank.barrier();
    OwnQueue queue(rank, place);
    mixed->fill(seed);
    run_once(mixed->plan, queue, nullptr, By::queue);
    mixed->check(seed);
    rank.rank.barrier();
    Room there(rank.rank.context, place.c_str(), 64), here(rank.rank.context, place.c_str(), 64);
    OwnPlan other(rank, place);
    const uint64_t channel = 2 * static_cast<uint64_t>('l');  // one of Mixed's
    ASSERT_EQ(tw_plan_send(other, mixed->peer(1), there.data(), 64, channel, nullptr, nullptr), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_plan_recv(other, mixed->peer(rank.rank.size - 1), here.data(), 64, channel, nullptr, nullptr), TW_OK)
        << tw_last_error();
    other.prepare();
    rank.rank.barrier();
    other.prepare();
    rank.rank.barrier();
    EXPECT_LT(tw_plan_test(mixed->plan), 0);
    mixed.reset();
    rank.rank.barrier();  // as above
    expect_group_goes_on(rank, place, seed);
  });
}

/// Every kind, those that no kernel does, too: they keep the order in which they were added.
TEST_P(PlannedKernels, OfEveryKindInOnePlan) {
  const uint64_t seed = fresh_seed();
  run_group(GetParam(), [&](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    OwnQueue queue(rank, place);
    const auto one = [&](uint64_t i) {
      const JobCase c = random_case(seed + 5 * i, i == 0 ? 1 + seed % 401 : 8'009, rank.rank.size, place);
      Jobs jobs(rank, c);
      jobs.add_all();
      OwnPlan plan(rank, place);
      Target target = plan.target();
      target.options.algorithm = "kernel";
      jobs.call(target);
      plan.prepare();
      EXPECT_THAT(plan.explain(), HasSubstr("one kernel on each device"));
      std::optional<OwnGraph> graph;
      graph.emplace(queue, [&] { ASSERT_EQ(tw_plan_trigger(plan, queue), TW_OK) << tw_last_error(); });
      for (const By by : {By::queue, By::host, By::graph, By::graph}) {
        const uint64_t now = seed + 100 * static_cast<uint64_t>(by);
        jobs.fill(now);
        run_once(plan, queue, &*graph, by);
        jobs.check(now);
      }
    };
    for (uint64_t i = 0; i < 2; ++i) {
      one(i);
      rank.rank
          .barrier();  // behind all that is freed: that waits for kernels on the device, which may be another rank's, of the next plan
    }
  });
}

/// Plans of one group on several queues, by the host, and single calls: in the order of the calls, which all ranks share.
TEST_P(PlannedKernels, OfOneGroupKeepTheirOrder) {
  const uint64_t seed = fresh_seed();
  run_group(GetParam(), [&](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    JobCase c;
    c.count = 703;
    c.place = place.c_str();
    Jobs one(rank, c), two(rank, c), three(rank, c);
    OwnPlan first(rank, place), second(rank, place);
    Target of_first = first.target(), of_second = second.target();
    of_first.options.algorithm = "ll";
    of_second.options.algorithm = "simple";
    for (Jobs* jobs : {&one, &two, &three}) jobs->add_allreduce();
    one.call(of_first);
    two.call(of_second);
    first.prepare();
    second.prepare();
    OwnQueue queue(rank, place), beside(rank, place);
    for (uint64_t round = 0; round < 10; ++round) {
      one.fill(seed + round);
      two.fill(seed + round + 50);
      three.fill(seed + round + 100);
      ASSERT_EQ(tw_plan_trigger(first, round % 3 == 2 ? nullptr : static_cast<tw_queue*>(queue)), TW_OK) << tw_last_error();
      ASSERT_EQ(tw_plan_trigger(second, round % 3 == 1 ? nullptr : static_cast<tw_queue*>(beside)), TW_OK) << tw_last_error();
      three.call(queue.target());
      if (round % 3 == 2) ASSERT_EQ(tw_plan_finish(first, kLong), TW_OK) << tw_last_error();
      if (round % 3 == 1) ASSERT_EQ(tw_plan_finish(second, kLong), TW_OK) << tw_last_error();
      queue.synchronize();
      beside.synchronize();
      one.check(seed + round);
      two.check(seed + round + 50);
      three.check(seed + round + 100);
    }
    rank.rank.barrier();
  });
}

/// A step of a plan of several programs gets another buffer; a graph of before keeps the old one.
TEST(PlannedKernelsSteps, AreUpdated) {
  const uint64_t seed = fresh_seed();
  run_group(3, [&](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    Mixed mixed(rank, place, "kernel", true);
    mixed.plan.prepare();
    OwnQueue queue(rank, place);
    OwnGraph graph(queue, [&] { ASSERT_EQ(tw_plan_trigger(mixed.plan, queue), TW_OK) << tw_last_error(); });
    Room other(rank.rank.context, place.c_str(), Mixed::kBytes);
    ASSERT_EQ(tw_plan_update(mixed.plan, 0, other.data(), nullptr), TW_OK) << tw_last_error();
    for (uint64_t round = 0; round < 4; ++round) {
      mixed.fill(seed + round);
      const bool updated = round % 2 == 0;
      other.store(Mixed::values(rank.rank.number, seed + round + 20));
      run_once(mixed.plan, queue, &graph, updated ? By::queue : By::graph);
      mixed.check(seed + round, seed + round + (updated ? 20 : 0));
    }
    EXPECT_EQ(tw_plan_update(mixed.plan, 3, other.data(), nullptr), TW_ERR_INVALID);
    rank.rank.barrier();
  });
}

/// Without a device of each rank, "kernel" goes by steps, and a protocol by name is refused, on all ranks.
TEST(PlannedKernelsWithout, ADeviceOfEachTakeSteps) {
  const uint64_t seed = fresh_seed();
  run_group(3, [&](GroupRank& rank) {
    const std::string place = place_of(rank, rank.rank.number != 1);
    JobCase c;
    c.count = 97;
    c.place = place.c_str();
    Jobs jobs(rank, c);
    jobs.add_allreduce();
    OwnPlan plan(rank, place);
    Target target = plan.target();
    target.options.algorithm = "kernel";
    jobs.call(target);
    target.options.algorithm = "ll";
    EXPECT_EQ(tw_plan_barrier(plan, rank.group, &target.options, nullptr), TW_ERR_UNSUPPORTED);
    EXPECT_THAT(tw_last_error(), HasSubstr("devices that all reach each other's memory"));
    plan.prepare();
    for (uint64_t round = 0; round < 3; ++round) {
      jobs.fill(seed + round);
      ASSERT_EQ(tw_plan_run(plan, kLong), TW_OK) << tw_last_error();
      jobs.check(seed + round);
    }
    rank.rank.barrier();  // to release a device's memory waits for its kernels, which may wait for this rank
  });
}

/// What waits for a peer without an order to the kernel would hold it up, or be held up.
TEST(PlannedKernelsSteps, ThatWaitHaveAnOrder) {
  run_group(2, [](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    Room room(rank.rank.context, place.c_str(), 64);
    tw_endpoint* peer = nullptr;
    ASSERT_EQ(tw_group_endpoint(rank.group, 1 - rank.rank.number, &peer), TW_OK);
    tw_collective_options options = TW_COLLECTIVE_OPTIONS_INIT;
    options.algorithm = "kernel";
    OwnPlan plan(rank, place);
    ASSERT_EQ(tw_plan_recv(plan, peer, room.data(), 8, 1, nullptr, nullptr), TW_OK);
    ASSERT_EQ(tw_plan_barrier(plan, rank.group, &options, nullptr), TW_OK) << tw_last_error();
    EXPECT_EQ(tw_plan_prepare(plan, kLong), TW_ERR_UNSUPPORTED);
    EXPECT_THAT(tw_last_error(), HasSubstr("step 0 (recv)"));
    EXPECT_THAT(tw_last_error(), HasSubstr("neither before nor after a collective"));
    OwnPlan turned(rank, place);
    tw_op_options order = TW_OP_OPTIONS_INIT;
    uint32_t barrier = 0;
    ASSERT_EQ(tw_plan_barrier(turned, rank.group, &options, &barrier), TW_OK) << tw_last_error();
    order.after_steps = &barrier;
    order.after_count = 1;
    ASSERT_EQ(tw_plan_send(turned, peer, room.data(), 8, 1, &order, nullptr), TW_OK);
    ASSERT_EQ(tw_plan_send(turned, peer, room.data(), 8, 1, nullptr, nullptr), TW_OK);
    EXPECT_EQ(tw_plan_prepare(turned, kLong), TW_ERR_UNSUPPORTED);
    EXPECT_THAT(tw_last_error(), HasSubstr("step 2 (send)"));
  });
}

/// A rank that does not run its part is named at the time limit, also to what comes behind; the group's kernels are over.
TEST(PlannedKernelsFailures, AMissingRankIsNamedAtTheTimeout) {
  run_ranks(3, [&](Rank& plain) {
    GroupRank rank(plain);
    const std::string place = place_of(rank, true);
    Room room(plain.context, place.c_str(), 64), copy(plain.context, place.c_str(), 64);
    OwnPlan plan(rank, place, kSecond / 2);
    tw_collective_options options = TW_COLLECTIVE_OPTIONS_INIT;
    options.algorithm = "ll";
    uint32_t before = 0, step = 0;
    ASSERT_EQ(tw_plan_copy(plan, copy.data(), room.data(), 64, nullptr, &before), TW_OK);
    options.after_steps = &before;
    options.after_count = 1;
    ASSERT_EQ(tw_plan_broadcast(plan, rank.group, room.data(), 64, TW_TYPE_INT8, 0, &options, &step), TW_OK) << tw_last_error();
    tw_op_options order = TW_OP_OPTIONS_INIT;
    order.after_steps = &step;
    order.after_count = 1;
    ASSERT_EQ(tw_plan_copy(plan, copy.data(), room.data(), 64, &order, nullptr), TW_OK);
    plan.prepare();
    ASSERT_EQ(tw_plan_run(plan, kLong), TW_OK) << tw_last_error();
    plain.barrier();
    if (plain.number != 0) {
      EXPECT_EQ(tw_plan_run(plan, kLong), TW_ERR_TIMED_OUT);
      EXPECT_THAT(tw_last_error(), HasSubstr("step 1 (collective) of tw_broadcast: rank 0 did not come in time"));
      EXPECT_NE(tw_plan_run(plan, kLong), TW_OK);
    }
    plain.barrier();
  });
}

}  // namespace
}  // namespace thalweg::test
