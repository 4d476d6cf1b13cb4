// SPDX-License-Identifier: Apache-2.0
// Kernels of collectives that cannot be launched, threads that call at once, and ranks that cannot measure.
#include <gmock/gmock.h>

#include <atomic>

#include "collectives/collectives.hpp"
#include "devices/emulated/emulated.hpp"
#include "groups/exchange.hpp"
#include "own_queue.hpp"
#include "plans/proxy.hpp"
#include "plans/queue.hpp"

namespace thalweg::test {
namespace {

using impl::DeviceArea;
using impl::emulated::Operation;
using ::testing::HasSubstr;

impl::Executor& executor_of(tw_queue* queue) { return queue->executor; }
impl::emulated::Faults& faults_of(tw_queue* queue) {
  return static_cast<impl::emulated::EmulatedDevice*>(executor_of(queue).device())->faults();
}

/// Only emulated devices can be told to fail.
bool emulated_places() { return std::getenv("THALWEG_TEST_PLACES") == nullptr; }

/// A word of pinned memory for which a queue waits.
class Gate {
 public:
  explicit Gate(GroupRank& rank) : room_(rank.rank.context, "pinned", sizeof(uint64_t)) { room_.store(std::string(8, '\0')); }
  void close(tw_queue* queue) { ASSERT_EQ(queue->queue->wait_geq(reinterpret_cast<uint64_t>(word()), 1), TW_OK); }
  void open() { __atomic_store_n(word(), 1, __ATOMIC_RELEASE); }

 private:
  uint64_t* word() const { return reinterpret_cast<uint64_t*>(room_.data()); }
  Room room_;
};

void call(tw_queue* queue, GroupRank& rank) { ASSERT_EQ(tw_barrier_on(queue, rank.group, nullptr), TW_OK) << tw_last_error(); }

/// What else is on the queue of a launch that failed holds up no later kernel.
TEST(KernelsFaults, AFailedLaunchIsNotWaitedFor) {
  if (!emulated_places()) GTEST_SKIP() << "real devices cannot be told to fail";
  run_group(2, [](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    OwnQueue queue(rank, place), beside(rank, place);
    Gate gate(rank);
    call(beside, rank);
    call(queue, rank);
    rank.rank.barrier();
    if (rank.rank.number == 0) {
      gate.close(beside);
      faults_of(beside).inject(Operation::launch, 1);
      EXPECT_EQ(tw_barrier_on(beside, rank.group, nullptr), TW_ERR_DEVICE);
    }
    rank.rank.barrier();
    call(queue, rank);
    queue.synchronize();
    EXPECT_EQ(tw_queue_check(queue), TW_OK) << tw_last_error();
    gate.open();
    beside.synchronize();
    call(beside, rank);
    beside.synchronize();
    EXPECT_EQ(tw_queue_check(beside), TW_OK) << tw_last_error();
    rank.rank.barrier();
  });
}

alignas(4096) char pinned_by_turns[2][8192];

/// A kernel is not launched with an address that its device reaches no more; no call that is refused harms later ones.
TEST(KernelsFaults, HostMemoryThatIsPinnedNoMoreIsRefused) {
  run_group(2, [](GroupRank& rank) {
    constexpr size_t kCount = 301, kBytes = kCount * sizeof(int32_t), kOut = 4096;
    OwnQueue queue(rank, place_of(rank, true));
    impl::Device& device = *executor_of(queue).device();
    char* const in = pinned_by_turns[rank.rank.number];
    const auto sum = [&] {
      tw_collective_options options = TW_COLLECTIVE_OPTIONS_INIT;
      options.algorithm = "ll";
      return tw_allreduce_on(queue, rank.group, in, in + kOut, kCount, TW_TYPE_INT32, TW_REDUCE_XOR, &options);
    };
    for (int turn = 0; turn < 3; ++turn) {
      ASSERT_EQ(device.register_host(in, sizeof pinned_by_turns[0]), TW_OK) << impl::last_error();
      for (int call = 0; call < 2; ++call) {
        const std::string mine = random_bytes(kBytes);
        std::string all(2 * kBytes, '\0'), wanted(kBytes, '\0');
        ASSERT_EQ(Rank::exchange(&rank.rank, mine.data(), kBytes, all.data()), TW_OK);
        for (size_t i = 0; i < kBytes; ++i) wanted[i] = static_cast<char>(all[i] ^ all[kBytes + i]);
        std::copy(mine.begin(), mine.end(), in);
        ASSERT_EQ(sum(), TW_OK) << tw_last_error();
        queue.synchronize();
        EXPECT_TRUE(std::string(in + kOut, kBytes) == wanted) << "turn " << turn;
      }
      ASSERT_EQ(device.unregister_host(in), TW_OK) << impl::last_error();
      EXPECT_EQ(sum(), TW_ERR_UNSUPPORTED);
      EXPECT_THAT(tw_last_error(), HasSubstr("pinned"));
    }
    EXPECT_EQ(tw_queue_check(queue), TW_OK) << tw_last_error();
    rank.rank.barrier();
  });
}

/// The next kernel still comes behind the one before the launch that failed.
TEST(KernelsFaults, AFailedLaunchLeavesTheOrder) {
  if (!emulated_places()) GTEST_SKIP() << "real devices cannot be told to fail";
  run_group(2, [](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    OwnQueue queue(rank, place);
    OwnPlan first(rank, place), second(rank, place);
    Target targets[] = {first.target(), second.target()};
    for (Target& target : targets) {
      target.options.algorithm = "kernel";
      ASSERT_EQ(tw_plan_barrier(target.plan, rank.group, &target.options, nullptr), TW_OK) << tw_last_error();
      ASSERT_EQ(tw_plan_prepare(target.plan, kLong), TW_OK) << tw_last_error();
      ASSERT_EQ(tw_plan_run(target.plan, kLong), TW_OK) << tw_last_error();
    }
    call(queue, rank);
    queue.synchronize();
    rank.rank.barrier();
    const bool ahead = rank.rank.number == 0;
    if (!ahead) rank.rank.barrier();  // the other rank's kernels wait for this one's
    ASSERT_EQ(tw_plan_trigger(first, nullptr), TW_OK) << tw_last_error();
    if (ahead) {
      faults_of(queue).inject(Operation::launch, 1);
      EXPECT_EQ(tw_plan_trigger(second, nullptr), TW_ERR_DEVICE);
    }
    call(queue, rank);
    if (ahead) rank.rank.barrier();
    queue.synchronize();
    EXPECT_EQ(tw_queue_check(queue), TW_OK) << tw_last_error();
    EXPECT_EQ(tw_plan_finish(first, kLong), TW_OK) << tw_last_error();
    rank.rank.barrier();
  });
}

/// Neither a call nor a plan's run begins while another thread enqueues one of the group; both do afterwards.
TEST(KernelsFaults, AnotherThreadsCallIsRefused) {
  run_group(2, [](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    OwnQueue queue(rank, place);
    OwnPlan plan(rank, place);
    Target target = plan.target();
    target.options.algorithm = "kernel";
    ASSERT_EQ(tw_plan_barrier(plan, rank.group, &target.options, nullptr), TW_OK) << tw_last_error();
    plan.prepare();
    call(queue, rank);
    impl::EnqueueOrder& order = rank.group->collectives->enqueue_order();
    ASSERT_EQ(order.enter(), TW_OK);
    std::thread([&] {
      EXPECT_EQ(tw_barrier_on(queue, rank.group, nullptr), TW_ERR_THREAD);
      EXPECT_THAT(tw_last_error(), HasSubstr("another thread enqueues a collective of this group"));
      EXPECT_EQ(tw_plan_trigger(plan, queue), TW_ERR_THREAD);
    }).join();
    order.unlock();
    std::thread([&] {
      call(queue, rank);
      ASSERT_EQ(tw_plan_trigger(plan, queue), TW_OK) << tw_last_error();
    }).join();
    queue.synchronize();
    EXPECT_EQ(tw_queue_check(queue), TW_OK) << tw_last_error();
    rank.rank.barrier();
  });
}

/// Barriers are all alike, so any order of them will do. Each call is made, or refused.
TEST(KernelsFaults, TwoThreadsNeverRunTwoAtOnce) {
  run_group(3, [](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    OwnQueue queue(rank, place), beside(rank, place);
    call(queue, rank);
    call(beside, rank);
    const auto calls = [&](tw_queue* on) {
      for (int made = 0; made < 40;) {
        const tw_status status = tw_barrier_on(on, rank.group, nullptr);
        ASSERT_TRUE(status == TW_OK || status == TW_ERR_THREAD) << tw_last_error();
        made += status == TW_OK ? 1 : 0;
        if (status != TW_OK) std::this_thread::yield();
      }
    };
    std::thread other([&] { calls(beside); });
    calls(queue);
    other.join();
    queue.synchronize();
    beside.synchronize();
    EXPECT_EQ(tw_queue_check(queue), TW_OK) << tw_last_error();
    EXPECT_EQ(tw_queue_check(beside), TW_OK) << tw_last_error();
    rank.rank.barrier();
  });
}

/// A queue that is captured has no point in time behind which another one could come.
TEST(KernelsFaults, BehindACapturedQueueIsRefused) {
  run_group(2, [](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    OwnQueue queue(rank, place), beside(rank, place);
    call(beside, rank);
    call(queue, rank);
    OwnGraph graph(queue, [&] {
      EXPECT_EQ(tw_barrier_on(beside, rank.group, nullptr), TW_ERR_BUSY);
      EXPECT_THAT(tw_last_error(), HasSubstr("end that capture first"));
    });
    call(beside, rank);
    beside.synchronize();
    rank.rank.barrier();
  });
}

struct Measured {
  tw_status status = TW_OK;
  bool made = false;
  double ll_ns = 0;
  unsigned calls = 0;  // of the operation
  std::string why;
};

/// Where the nth of these operations fails on rank 1's device.
std::vector<Measured> measure(Operation fails, unsigned nth) {
  std::vector<Measured> all(2);
  run_ranks(2, [&](Rank& plain) {
    GroupRank rank(plain, 4 * kSecond);
    Measured& mine = all[plain.number];
    OwnQueue queue(rank, place_of(rank, true));
    faults_of(queue).inject(fails, plain.number == 1 ? nth : 0);
    plain.barrier();
    std::shared_ptr<DeviceArea> area;
    impl::ExchangeEnd end{rank.group->timeout_ns, {}};
    mine.status =
        DeviceArea::agree(*rank.group, executor_of(queue), std::make_shared<impl::EnqueueOrder>(), true, end, &area, &mine.why);
    mine.calls = faults_of(queue).calls(fails);
    faults_of(queue).inject(fails, 0);
    mine.made = area != nullptr;
    impl::CollectiveCosts costs;
    costs.ll.ns = 0;
    if (mine.made) area->set_costs(&costs);
    mine.ll_ns = costs.ll.ns;
    plain.barrier();
    if (area != nullptr) area->end();
    plain.barrier();
    call(queue, rank);  // the group's own area is another one
    queue.synchronize();
    EXPECT_EQ(tw_queue_check(queue), TW_OK) << tw_last_error();
    plain.barrier();
  });
  return all;
}

TEST(KernelsMeasured, ByAllRanksAlike) {
  if (!emulated_places()) GTEST_SKIP() << "real devices cannot be told to fail";
  const std::vector<Measured> all = measure(Operation::queue, 0);
  for (const Measured& one : all) {
    EXPECT_EQ(one.status, TW_OK);
    EXPECT_TRUE(one.made) << one.why;
    EXPECT_GT(one.ll_ns, 0);
    EXPECT_EQ(one.ll_ns, all[0].ll_ns);
  }
}

TEST(KernelsMeasured, EachLineByItsOwnKernel) {
  constexpr const char* kProtocols[] = {"LL",
                                        "LL128",
                                        "LL128 in two phases",
                                        "Simple in two phases",
                                        "Simple",
                                        "symmetric in two phases",
                                        "symmetric, operands by Simple",
                                        "symmetric",
                                        "symmetric"};
  static_assert(std::size(kProtocols) == impl::kAreaLines);
  for (size_t line = 0; line < impl::kAreaLines; ++line) {
    impl::ExchangeStep step;
    impl::measured_by(static_cast<impl::AreaLine>(line), 1, 4, 4'096, &step.what);
    EXPECT_STREQ(step.protocol(), kProtocols[line]);
  }
}

/// Whatever fails on one of them: all go on by steps, and say which rank it was.
TEST(KernelsMeasured, OrByNone) {
  if (!emulated_places()) GTEST_SKIP() << "real devices cannot be told to fail";
  const unsigned queues = measure(Operation::queue, 0)[1].calls;  // the last one is measured with
  for (const auto& [fails, nth] : {std::pair{Operation::queue, queues}, {Operation::launch, 1u}, {Operation::launch, 30u}}) {
    const std::vector<Measured> all = measure(fails, nth);
    for (const Measured& one : all) {
      EXPECT_EQ(one.status, TW_OK);
      EXPECT_FALSE(one.made) << static_cast<int>(fails) << " " << nth;
      EXPECT_THAT(one.why, HasSubstr("could not measure how long kernels take"));
    }
    EXPECT_THAT(all[1].why, HasSubstr("was told to fail"));
  }
}

/// An area whose flags cannot be set to zero is used by nobody.
TEST(KernelsFaults, AnAreaThatCannotBeClearedIsNotUsed) {
  if (!emulated_places()) GTEST_SKIP() << "real devices cannot be told to fail";
  const std::vector<Measured> all = measure(Operation::copy, 1);
  for (const Measured& one : all) {
    EXPECT_EQ(one.status, TW_OK);
    EXPECT_FALSE(one.made);
    EXPECT_THAT(one.why, HasSubstr("does not reach the memory of all others"));
  }
  EXPECT_THAT(all[1].why, HasSubstr("was told to fail"));
}

}  // namespace
}  // namespace thalweg::test
