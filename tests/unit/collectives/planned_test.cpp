// SPDX-License-Identifier: Apache-2.0
// Collectives that are prepared once: by the host, by queues and by graphs, in host memory and an emulated device's, run again and
// again with other data.
#include "own_queue.hpp"
#include "planned_jobs.hpp"

namespace thalweg::test {
namespace {

enum class By { host, queue, graph };

/// Runs a prepared plan of all kinds of collectives again and again.
void run_again(GroupRank& rank, Jobs& jobs, OwnPlan& plan, const std::string& place, By by, uint64_t seed, int rounds) {
  OwnQueue queue(rank, place);
  std::optional<OwnGraph> graph;
  if (by == By::graph) graph.emplace(queue, [&] { ASSERT_EQ(tw_plan_trigger(plan, queue), TW_OK) << tw_last_error(); });
  for (int round = 0; round < rounds; ++round) {
    const uint64_t now = seed + 100 * static_cast<uint64_t>(round);
    jobs.fill(now);
    if (by == By::host) {
      ASSERT_EQ(tw_plan_run(plan, kLong), TW_OK) << tw_last_error();
    } else {
      const tw_status status = by == By::queue ? tw_plan_trigger(plan, queue) : tw_graph_launch(*graph, queue);
      ASSERT_EQ(status, TW_OK) << tw_last_error();
      queue.synchronize();
    }
    jobs.check(now);
  }
}

class Planned : public testing::TestWithParam<uint32_t> {
 protected:
  /// `cases` plans one after the other, each of all kinds; types and operations change from one to the next.
  void run_cases(bool device, By by, int cases, int rounds) {
    const uint64_t seed = fresh_seed();
    run_group(GetParam(), [&](GroupRank& rank) {
      const std::string place = place_of(rank, device);
      for (int i = 0; i < cases; ++i) {
        const uint64_t pick = seed + static_cast<uint64_t>(i);
        JobCase c = random_case(pick, i == 0 ? 1 : i == 1 ? 20'011 : 1 + pick % 301, rank.rank.size, place);
        c.in_place = i % 2 == 1;
        Jobs jobs(rank, c);
        OwnPlan plan(rank, place);
        jobs.add_all();
        jobs.call(plan.target());
        plan.prepare();
        run_again(rank, jobs, plan, place, by, pick, rounds);
      }
    });
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, Planned, testing::Values(2, 3, 5, 8));

TEST_P(Planned, InHostMemoryByTheHost) { run_cases(false, By::host, 4, 4); }
TEST_P(Planned, InHostMemoryByQueues) { run_cases(false, By::queue, 3, 4); }
TEST_P(Planned, InADevicesMemoryByTheHost) { run_cases(true, By::host, 3, 3); }
TEST_P(Planned, InADevicesMemoryByQueues) { run_cases(true, By::queue, 3, 3); }
/// Replayed often by few ranks, because many take seconds for it.
TEST_P(Planned, InADevicesMemoryByGraphs) { run_cases(true, By::graph, 2, GetParam() <= 3 ? 20 : 6); }

/// One type after the other, those that no plan combines, too.
TEST_P(Planned, ExchangeEveryType) {
  const uint64_t seed = fresh_seed();
  run_group(GetParam(), [&](GroupRank& rank) {
    OwnPlan plan(rank, "host");
    std::vector<std::unique_ptr<Jobs>> all;
    for (uint32_t type = TW_TYPE_INT8; type <= TW_TYPE_BOOL; type += 3) {
      JobCase c;
      c.type = type;
      c.count = 1 + (seed + type) % 57;
      all.push_back(std::make_unique<Jobs>(rank, c));
      all.back()->add_exchanges();
      all.back()->call(plan.target());
    }
    plan.prepare();
    for (auto& one : all) one->fill(seed);
    ASSERT_EQ(tw_plan_run(plan, kLong), TW_OK) << tw_last_error();
    for (auto& one : all) one->check(seed);
  });
}

/// Long messages are cut into chunks that follow each other, on several channels.
TEST(PlannedSteps, CutLongMessages) {
  const uint64_t seed = fresh_seed();
  run_group(3, [&](GroupRank& rank) {
    for (const bool device : {false, true}) {
      const std::string place = place_of(rank, device);
      for (const char* algorithm : {"ring", "recursive_doubling"}) {
        JobCase c;
        c.type = TW_TYPE_FLOAT64;
        c.count = 600'011;
        c.in_place = device;
        c.place = place.c_str();
        Jobs jobs(rank, c);
        jobs.add_allreduce();
        OwnPlan plan(rank, place);
        Target target = plan.target();
        target.options.algorithm = algorithm;
        jobs.call(target);
        plan.prepare();
        run_again(rank, jobs, plan, place, By::queue, seed, 3);
      }
    }
  });
}

/// Single calls on a queue: the first one prepares, later ones do not; also with buffers that only some ranks have used before.
TEST_P(Planned, OnAQueue) {
  const uint64_t seed = fresh_seed();
  for (const bool device : {false, true}) {
    run_group(GetParam(), [&](GroupRank& rank) {
      const std::string place = place_of(rank, device);
      JobCase c;
      c.type = TW_TYPE_INT32;
      c.count = 1 + seed % 1'009;
      c.place = place.c_str();
      Jobs first(rank, c), second(rank, c);
      first.add_all();
      second.add_all();
      OwnQueue queue(rank, place);
      for (uint64_t round = 0; round < 4; ++round) {
        Jobs& jobs = round == 2 && rank.rank.number % 2 == 0 ? second : first;
        jobs.fill(seed + round * 100);
        jobs.call(queue.target());
        queue.synchronize();
        jobs.check(seed + round * 100);
      }
    });
  }
}

/// ... captured, after the first use.
TEST_P(Planned, OnAQueueCaptured) {
  const uint64_t seed = fresh_seed();
  run_group(GetParam(), [&](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    JobCase c;
    c.count = 1 + seed % 307;
    c.place = place.c_str();
    Jobs jobs(rank, c);
    jobs.add_all();
    OwnQueue queue(rank, place);
    jobs.fill(seed);
    jobs.call(queue.target());
    queue.synchronize();
    OwnGraph graph(queue, [&] { jobs.call(queue.target()); });
    for (uint64_t round = 1; round < 20; ++round) {
      jobs.fill(seed + round * 100);
      ASSERT_EQ(tw_graph_launch(graph, queue), TW_OK) << tw_last_error();
      queue.synchronize();
      jobs.check(seed + round * 100);
    }
  });
}

/// ... by steps, into memory that is released between the calls, and allocated again at the same address: peers do not store to what
/// was there. In the last turns they have seen it go before the next call.
TEST(PlannedOnAQueue, MemoryThatLiesWhereOtherMemoryDidIsAnother) {
  for (const bool device : {false, true}) {
    run_group(2, [&](GroupRank& rank) {
      const std::string place = place_of(rank, device);
      constexpr size_t kBytes = 40'003;
      OwnQueue queue(rank, place);
      tw_collective_options options = TW_COLLECTIVE_OPTIONS_INIT;
      options.algorithm = "linear";
      const bool root = rank.rank.number == 0;
      std::optional<Room> room;
      const void* last = nullptr;
      int again = 0;
      for (int turn = 0; turn < 8; ++turn) {
        if (!root || !room) {
          room.reset();
          if (turn > 5) std::this_thread::sleep_for(std::chrono::milliseconds(400));
          room.emplace(rank.rank.context, place.c_str(), kBytes);
          again += room->data() == last;
          last = room->data();
        }
        rank.rank.barrier();
        std::string wanted(kBytes, '\0');
        if (root) room->store(wanted = random_bytes(kBytes));
        std::string all(2 * kBytes, '\0');
        ASSERT_EQ(Rank::exchange(&rank.rank, wanted.data(), kBytes, all.data()), TW_OK);
        EXPECT_EQ(tw_broadcast_on(queue, rank.group, room->data(), kBytes, TW_TYPE_UINT8, 0, &options), TW_OK)
            << tw_last_error();
        queue.synchronize();
        EXPECT_TRUE(room->load() == all.substr(0, kBytes)) << "turn " << turn << " rank " << rank.rank.number << " " << place;
      }
      EXPECT_TRUE(root || again > 0) << "no memory lay where other memory did";
    });
  }
}

/// More sets of buffers than a queue keeps plans for, on one rank alone: those that were not used for long go.
void check_many_buffers(bool device) {
  constexpr size_t kCalls = 1'100, kStep = 64, kCount = 4, kBytes = kCount * sizeof(int32_t);
  run_group(2, [&](GroupRank& rank) {
    const std::string place = place_of(rank, device);
    OwnQueue queue(rank, place);
    const bool many = rank.rank.number == 0;
    const size_t room = many ? kCalls * kStep : kStep;
    Room in(rank.rank.context, place.c_str(), room), out(rank.rank.context, place.c_str(), room);
    const std::string mine = random_bytes(kCalls * kStep);
    std::string all(2 * mine.size(), '\0');
    ASSERT_EQ(Rank::exchange(&rank.rank, mine.data(), mine.size(), all.data()), TW_OK);
    if (many) in.store(mine);
    for (size_t i = 0; i < kCalls; ++i) {
      const size_t at = many ? i * kStep : 0;
      if (!many) in.store(mine.substr(i * kStep, kStep));
      ASSERT_EQ(
          tw_allreduce_on(queue, rank.group, in.data() + at, out.data() + at, kCount, TW_TYPE_INT32, TW_REDUCE_XOR, nullptr),
          TW_OK)
          << "call " << i << ": " << tw_last_error();
      queue.synchronize();
      std::string wanted(kBytes, '\0'), got(kBytes, '\0');
      for (size_t k = 0; k < kBytes; ++k) wanted[k] = static_cast<char>(all[i * kStep + k] ^ all[mine.size() + i * kStep + k]);
      ASSERT_EQ(tw_memory_copy(rank.rank.context.get(), got.data(), out.data() + at, kBytes), TW_OK) << tw_last_error();
      ASSERT_TRUE(got == wanted) << "call " << i << " rank " << rank.rank.number;
    }
  });
}
TEST(PlannedOnAQueue, OneRankUsesManyBuffers) { check_many_buffers(false); }
TEST(PlannedOnAQueue, OneRankUsesManyBuffersOfADevice) { check_many_buffers(true); }

/// All use the same channels, which have room for 256 buffers.
TEST(PlannedOnAQueue, CountsMayDifferFromCallToCall) {
  run_group(2, [&](GroupRank& rank) {
    constexpr size_t kCalls = 600;
    OwnQueue queue(rank, "host");
    Room in(rank.rank.context, "host", 8 * kCalls), out(rank.rank.context, "host", 8 * kCalls);
    const std::string mine = random_bytes(8 * kCalls);
    std::string all(2 * mine.size(), '\0');
    ASSERT_EQ(Rank::exchange(&rank.rank, mine.data(), mine.size(), all.data()), TW_OK);
    in.store(mine);
    for (size_t n = 1; n <= kCalls; ++n) {
      const size_t counts[2] = {n, n};
      ASSERT_EQ(
          tw_alltoallv_on(queue, rank.group, in.data(), counts, nullptr, out.data(), counts, nullptr, TW_TYPE_INT32, nullptr),
          TW_OK)
          << n << ": " << tw_last_error();
      queue.synchronize();
      const size_t own = rank.rank.number * 4 * n;
      ASSERT_TRUE(out.load().substr(0, 8 * n) == all.substr(own, 4 * n) + all.substr(mine.size() + own, 4 * n)) << n;
    }
  });
}

// ------------------------------------------------------------------------------------------------ several at once

/// Plans of one group on two queues, and of two groups: which one is enqueued first differs between ranks.
void check_two_at_once(bool two_groups, bool device) {
  const uint64_t seed = fresh_seed();
  run_group(3, [&](GroupRank& rank) {
    const std::string place = place_of(rank, device);
    tw_group* other = rank.group;
    if (two_groups) rank.make(&other);
    {
      JobCase c;
      c.count = 703;
      c.place = place.c_str();
      Jobs one(rank, c), two(rank, c, other);
      one.add_all();
      two.add_all();
      OwnPlan first(rank, place), second(rank, place);
      one.call(first.target());
      two.call(second.target());
      first.prepare();
      second.prepare();
      OwnQueue queue(rank, place), beside(rank, place);
      for (uint64_t round = 0; round < 10; ++round) {
        one.fill(seed + round * 100);
        two.fill(seed + round * 100 + 50);
        const bool turned = (rank.rank.number + round) % 2 == 1;
        ASSERT_EQ(turned ? tw_plan_trigger(second, beside) : tw_plan_trigger(first, queue), TW_OK) << tw_last_error();
        ASSERT_EQ(turned ? tw_plan_trigger(first, queue) : tw_plan_trigger(second, beside), TW_OK) << tw_last_error();
        queue.synchronize();
        beside.synchronize();
        one.check(seed + round * 100);
        two.check(seed + round * 100 + 50);
      }
    }
    if (two_groups) {
      EXPECT_EQ(tw_barrier(other, nullptr, nullptr), TW_OK) << tw_last_error();
      EXPECT_EQ(tw_group_destroy(other), TW_OK) << tw_last_error();
    }
  });
}

TEST(PlannedAtOnce, TwoPlansOfAGroupOnTwoQueues) {
  check_two_at_once(false, false);
  check_two_at_once(false, true);
}
TEST(PlannedAtOnce, TwoGroupsOnTwoQueues) {
  check_two_at_once(true, false);
  check_two_at_once(true, true);
}

/// Two plans that the host runs, progressed by turns.
TEST(PlannedAtOnce, TwoPlansByTheHost) {
  const uint64_t seed = fresh_seed();
  run_group(5, [&](GroupRank& rank) {
    JobCase c;
    c.count = 1'501;
    Jobs one(rank, c), two(rank, c);
    one.add_all();
    two.add_all();
    OwnPlan first(rank, "host"), second(rank, "host");
    one.call(first.target());
    two.call(second.target());
    first.prepare();
    second.prepare();
    for (uint64_t round = 0; round < 5; ++round) {
      one.fill(seed + round);
      two.fill(seed + round);
      ASSERT_EQ(tw_plan_trigger(first, nullptr), TW_OK) << tw_last_error();
      ASSERT_EQ(tw_plan_trigger(second, nullptr), TW_OK) << tw_last_error();
      tw_status a = TW_IN_PROGRESS, b = TW_IN_PROGRESS;
      while (a == TW_IN_PROGRESS || b == TW_IN_PROGRESS) {
        if (a == TW_IN_PROGRESS) a = tw_plan_test(first);
        if (b == TW_IN_PROGRESS) b = tw_plan_test(second);
      }
      ASSERT_EQ(a, TW_OK) << tw_last_error();
      ASSERT_EQ(b, TW_OK) << tw_last_error();
      one.check(seed + round);
      two.check(seed + round);
    }
  });
}

// ------------------------------------------------------------------------------------------------ among other steps

/// A collective comes after the steps that it names, and what names it after all of it.
TEST(PlannedSteps, AreOrderedByAfterSteps) {
  run_group(4, [](GroupRank& rank) {
    constexpr size_t kCount = 30'011;
    for (const bool device : {false, true}) {
      const std::string place = place_of(rank, device);
      const size_t bytes = kCount * sizeof(int64_t);
      Room input(rank.rank.context, place.c_str(), bytes), send(rank.rank.context, place.c_str(), bytes),
          recv(rank.rank.context, place.c_str(), bytes * 4), output(rank.rank.context, place.c_str(), bytes * 4);
      OwnPlan plan(rank, place);
      uint32_t before = 0, gathered = 0, whole = 0;
      ASSERT_EQ(tw_plan_copy(plan, send.data(), input.data(), bytes, nullptr, &before), TW_OK) << tw_last_error();
      tw_collective_options options = TW_COLLECTIVE_OPTIONS_INIT;
      options.after_steps = &before;
      options.after_count = 1;
      options.algorithm = "linear";  // its receives are steps that nothing in it follows
      ASSERT_EQ(tw_plan_allgather(plan, rank.group, send.data(), recv.data(), kCount, TW_TYPE_INT64, &options, &gathered),
                TW_OK)
          << tw_last_error();
      options.algorithm = nullptr;
      options.after_steps = &gathered;
      ASSERT_EQ(tw_plan_barrier(plan, rank.group, &options, &whole), TW_OK) << tw_last_error();
      tw_op_options order = TW_OP_OPTIONS_INIT;
      order.after_steps = &gathered;
      order.after_count = 1;
      ASSERT_EQ(tw_plan_copy(plan, output.data(), recv.data(), bytes * 4, &order, nullptr), TW_OK) << tw_last_error();
      plan.prepare();
      for (int64_t round = 0; round < 5; ++round) {
        Values own(kCount), all;
        for (uint32_t r = 0; r < 4; ++r) {
          for (size_t i = 0; i < kCount; ++i) own[i] = static_cast<double>((i + r) % 101 + static_cast<size_t>(round));
          if (r == rank.rank.number) input.store(encode(TW_TYPE_INT64, own));
          all.insert(all.end(), own.begin(), own.end());
        }
        ASSERT_EQ(tw_plan_run(plan, kLong), TW_OK) << tw_last_error();
        EXPECT_TRUE(output.load() == encode(TW_TYPE_INT64, all)) << round;
      }
    }
  });
}

/// One that has no room for it on one rank, and is given up by all: the next one is in step.
TEST(PlannedSteps, WhatFailsOnOneRankHasItsNumber) {
  const uint64_t seed = fresh_seed();
  run_group(3, [&](GroupRank& rank) {
    JobCase c;
    c.count = 211;
    Jobs jobs(rank, c);
    jobs.add_allreduce();
    const bool full = rank.rank.number == 1;
    std::vector<float> in(16, 1), out(16);
    {
      OwnPlan plan(rank, "host");
      for (int i = 0; full && i < 4095; ++i)
        ASSERT_EQ(tw_plan_copy(plan, out.data(), in.data(), 4, nullptr, nullptr), TW_OK) << tw_last_error();
      EXPECT_EQ(tw_plan_allreduce(plan, rank.group, in.data(), out.data(), in.size(), TW_TYPE_FLOAT32, TW_REDUCE_SUM, nullptr,
                                  nullptr),
                full ? TW_ERR_LIMIT : TW_OK)
          << tw_last_error();
    }
    OwnPlan plan(rank, "host");
    jobs.call(plan.target());
    EXPECT_EQ(tw_plan_prepare(plan, 5 * kSecond), TW_OK) << tw_last_error();
    jobs.fill(seed);
    EXPECT_EQ(tw_plan_run(plan, 5 * kSecond), TW_OK) << tw_last_error();
    jobs.check(seed);
  });
}

/// The numbers of the user's channels are all the user's.
TEST(PlannedSteps, ShareNoChannelWithTheUser) {
  const uint64_t seed = fresh_seed();
  run_group(2, [&](GroupRank& rank) {
    JobCase c;
    c.count = 97;
    Jobs jobs(rank, c);
    jobs.add_all();
    OwnPlan plan(rank, "host");
    jobs.call(plan.target());
    tw_endpoint* peer = nullptr;
    ASSERT_EQ(tw_group_endpoint(rank.group, 1 - rank.rank.number, &peer), TW_OK) << tw_last_error();
    constexpr uint64_t kNumbers[] = {0, 1, 1 << 16, 5 << 16};
    Room out(rank.rank.context, "host", 8 * std::size(kNumbers)), in(rank.rank.context, "host", 8 * std::size(kNumbers));
    for (size_t i = 0; i < std::size(kNumbers); ++i) {
      ASSERT_EQ(tw_plan_send(plan, peer, out.data() + 8 * i, 8, kNumbers[i], nullptr, nullptr), TW_OK) << tw_last_error();
      ASSERT_EQ(tw_plan_recv(plan, peer, in.data() + 8 * i, 8, kNumbers[i], nullptr, nullptr), TW_OK) << tw_last_error();
    }
    plan.prepare();
    for (uint64_t round = 0; round < 3; ++round) {
      const std::string mine(out.load().size(), static_cast<char>('a' + rank.rank.number + 2 * round));
      out.store(mine);
      jobs.fill(seed + round);
      ASSERT_EQ(tw_plan_run(plan, kLong), TW_OK) << tw_last_error();
      jobs.check(seed + round);
      EXPECT_EQ(in.load(), std::string(mine.size(), static_cast<char>('a' + 1 - rank.rank.number + 2 * round)));
    }
  });
}

/// A small allreduce is one program: a send, a receive and one reduction of all.
TEST(PlannedSteps, OfASmallAllreduceAreFew) {
  run_group(4, [](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    JobCase c;
    c.type = TW_TYPE_FLOAT64;
    c.place = place.c_str();
    Jobs jobs(rank, c);
    jobs.add_allreduce();
    OwnPlan plan(rank, place);
    Target target = plan.target();
    target.options.algorithm = "one_shot";
    jobs.call(target);
    plan.prepare();
    const std::string text = plan.explain();
    EXPECT_EQ(text.find("plan of 7 steps"), 0u) << text;
    EXPECT_EQ(text.find("by the host"), std::string::npos) << text;
    EXPECT_NE(text.find("tw_allreduce, from rank"), std::string::npos) << text;
    jobs.fill(1);
    ASSERT_EQ(tw_plan_run(plan, kLong), TW_OK) << tw_last_error();
    jobs.check(1);
  });
}

TEST(PlannedSteps, WhatPlansCannotDoIsRefused) {
  run_group(2, [](GroupRank& rank) {
    OwnPlan plan(rank, "host");
    alignas(8) char in[64] = {}, out[64] = {};
    tw_collective_options options = TW_COLLECTIVE_OPTIONS_INIT;
    const auto allreduce = [&](uint32_t type, uint32_t op) {
      return tw_plan_allreduce(plan, rank.group, in, out, 1, type, op, &options, nullptr);
    };
    EXPECT_EQ(tw_plan_barrier(nullptr, rank.group, nullptr, nullptr), TW_ERR_INVALID);
    EXPECT_EQ(tw_plan_barrier(plan, nullptr, nullptr, nullptr), TW_ERR_INVALID);
    EXPECT_EQ(tw_barrier_on(nullptr, rank.group, nullptr), TW_ERR_INVALID);
    EXPECT_EQ(allreduce(TW_TYPE_FLOAT32, TW_REDUCE_AVERAGE), TW_ERR_UNSUPPORTED);
    EXPECT_EQ(allreduce(TW_TYPE_FLOAT8_E4M3, TW_REDUCE_SUM), TW_ERR_UNSUPPORTED);
    EXPECT_EQ(allreduce(TW_TYPE_BOOL, TW_REDUCE_AND), TW_ERR_UNSUPPORTED);
    EXPECT_EQ(allreduce(TW_TYPE_FLOAT32, TW_REDUCE_XOR), TW_ERR_INVALID);
    options.timeout_ns = 1;
    EXPECT_EQ(allreduce(TW_TYPE_FLOAT32, TW_REDUCE_SUM), TW_ERR_INVALID);
    options = TW_COLLECTIVE_OPTIONS_INIT;
    options.algorithm = "of no such name";
    EXPECT_EQ(allreduce(TW_TYPE_FLOAT32, TW_REDUCE_SUM), TW_ERR_INVALID);
    options = TW_COLLECTIVE_OPTIONS_INIT;
    const uint32_t none = 7;
    options.after_steps = &none;
    options.after_count = 1;
    EXPECT_EQ(allreduce(TW_TYPE_FLOAT32, TW_REDUCE_SUM), TW_ERR_INVALID) << "no such step";
    EXPECT_EQ(tw_barrier(rank.group, &options, nullptr), TW_ERR_INVALID) << "there is no plan";
    EXPECT_EQ(tw_plan_prepare(plan, kLong), TW_ERR_INVALID) << "nothing was added";
    options.after_count = 0;
    uint32_t step = 99;
    ASSERT_EQ(tw_plan_allreduce(plan, rank.group, in, out, 1, TW_TYPE_FLOAT32, TW_REDUCE_SUM, &options, &step), TW_OK)
        << tw_last_error();
    plan.prepare();
    EXPECT_EQ(tw_plan_update(plan, step, out, nullptr), TW_ERR_INVALID);
    EXPECT_EQ(tw_plan_barrier(plan, rank.group, nullptr, nullptr), TW_ERR_INVALID) << "it is prepared";
    ASSERT_EQ(tw_plan_run(plan, kLong), TW_OK) << tw_last_error();
  });
}

// ------------------------------------------------------------------------------------------------ failures

/// Rank 1's context ends: so do the others' runs.
TEST(PlannedFailures, ALostRankEndsTheRun) {
  for (const bool device : {false, true}) {
    run_ranks(3, [&](Rank& plain) {
      GroupRank rank(plain);
      const std::string place = place_of(rank, device);
      JobCase c;
      c.count = 50'003;
      c.place = place.c_str();
      auto jobs = std::make_unique<Jobs>(rank, c);
      jobs->add_all();
      auto plan = std::make_unique<OwnPlan>(rank, place);
      jobs->call(plan->target());
      plan->prepare();
      jobs->fill(1);
      ASSERT_EQ(tw_plan_run(*plan, kLong), TW_OK) << tw_last_error();
      jobs->check(1);
      plain.barrier();
      if (plain.number == 1) {
        plan.reset();
        EXPECT_EQ(tw_group_destroy(std::exchange(rank.group, nullptr)), TW_OK) << tw_last_error();
        plain.endpoints.clear();
        plain.worker.reset();
        jobs.reset();  // a GPU frees memory when its kernels have ended, which wait for this rank
        { const Context gone = std::move(plain.context); }
      } else {
        const auto begin = std::chrono::steady_clock::now();
        const tw_status status = tw_plan_run(*plan, kLong);
        EXPECT_TRUE(status == TW_ERR_PEER_LOST || status == TW_ERR_CLOSED) << status << tw_last_error();
        EXPECT_NE(std::string(tw_last_error()).find("rank 1"), std::string::npos) << tw_last_error();
        EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30)) << tw_last_error();
      }
      plain.barrier();
    });
  }
}

/// A rank that does not run its part is named at the time limit.
TEST(PlannedFailures, AMissingRankIsNamedAtTheTimeout) {
  run_ranks(2, [&](Rank& plain) {
    GroupRank rank(plain);
    Room room(plain.context, "host", 64);
    OwnPlan plan(rank, "host", kSecond / 2);
    ASSERT_EQ(tw_plan_broadcast(plan, rank.group, room.data(), 64, TW_TYPE_INT8, 0, nullptr, nullptr), TW_OK)
        << tw_last_error();
    plan.prepare();
    plain.barrier();
    if (plain.number == 1) {
      EXPECT_EQ(tw_plan_run(plan, kLong), TW_ERR_TIMED_OUT);
      EXPECT_NE(std::string(tw_last_error()).find("rank 0"), std::string::npos) << tw_last_error();
    }
    plain.barrier();
  });
}

/// A message that is shorter than the receive fails, as a longer one does: by an executor's stores, and carried by the host. unit:
/// elements, of which there are 16.
void check_other_lengths(size_t unit,
                         const std::function<tw_status(GroupRank& rank, const std::string& place, const Room& buffer)>& run) {
  for (const bool tcp : {false, true}) {
    for (const bool device : {false, true}) {
      RankOptions options;
      if (tcp) options.transport = "tcp";
      const bool carried = tcp || (!device && unit == 1);  // less than a cache line
      run_ranks(
          2,
          [&](Rank& plain) {
            GroupRank rank(plain);
            const std::string place = place_of(rank, device);
            const Room buffer(plain.context, place.c_str(), 16 * unit * sizeof(int32_t));
            const tw_status ended = run(rank, place, buffer);
            const std::string why = tw_last_error();
            if (plain.number == 1 || !carried) {  // what the host carries is gone when the receiver finds that it is short
              EXPECT_EQ(ended, TW_ERR_TRUNCATED) << why;
              EXPECT_NE(why.find(plain.number == 1 ? "rank 0" : "rank 1"), std::string::npos) << why;
              EXPECT_NE(why.find("its counts are others than this rank's"), std::string::npos) << why;
            }
            plain.barrier();
          },
          options);
    }
  }
}

TEST(PlannedFailures, AMessageOfAnotherLengthIsNamed) {
  for (const size_t unit : {1u, 1'001u}) {
    for (const size_t sent : {5u, 11u}) {
      check_other_lengths(unit, [=](GroupRank& rank, const std::string& place, const Room& buffer) {
        OwnPlan plan(rank, place, 5 * kSecond);
        tw_collective_options options = TW_COLLECTIVE_OPTIONS_INIT;
        options.algorithm = "linear";
        const size_t count = unit * (rank.rank.number == 0 ? sent : 8);
        EXPECT_EQ(tw_plan_broadcast(plan, rank.group, buffer.data(), count, TW_TYPE_INT32, 0, &options, nullptr), TW_OK)
            << tw_last_error();
        plan.prepare();
        return tw_plan_run(plan, kLong);
      });
    }
  }
}

/// Whatever was called before, with other counts of the same name.
TEST(PlannedFailures, AMessageOfAnotherLengthOnAQueueIsNamed) {
  for (const size_t unit : {1u, 1'001u}) {
    check_other_lengths(unit, [=](GroupRank& rank, const std::string& place, const Room& buffer) {
      OwnQueue queue(rank, place);
      tw_collective_options options = TW_COLLECTIVE_OPTIONS_INIT;
      options.algorithm = "linear";
      const auto gather = [&](size_t first) {
        const size_t counts[] = {first * unit, 5 * unit};
        EXPECT_EQ(tw_allgatherv_on(queue, rank.group, TW_IN_PLACE, buffer.data(), counts, nullptr, TW_TYPE_INT32, &options),
                  TW_OK)
            << tw_last_error();
        return tw_queue_synchronize(queue);
      };
      EXPECT_EQ(gather(8), TW_OK) << tw_last_error();
      rank.rank.barrier();
      return gather(rank.rank.number == 0 ? 5 : 8);
    });
  }
}

}  // namespace
}  // namespace thalweg::test
