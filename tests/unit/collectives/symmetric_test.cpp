// SPDX-License-Identifier: Apache-2.0
// Collectives on queues whose buffers lie in windows of the group: kernels load and store there.
#include "own_queue.hpp"
#include "planned_jobs.hpp"

namespace thalweg::test {
namespace {

class SymmetricKernels : public testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, SymmetricKernels, testing::Values(2, 3, 5, 8));

/// Less than a word for each block of threads, odd ends, several batches.
constexpr size_t kCounts[] = {0, 1, 17, 1'025, 4'099, 33'333};

void run_all(uint32_t ranks, const char* algorithm) {
  const uint64_t seed = fresh_seed();
  run_group(ranks, [&](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    OwnQueue queue(rank, place);
    std::vector<std::unique_ptr<Jobs>> all;  // to release a device's memory waits for its kernels, those of other ranks, too
    for (size_t i = 0; i < std::size(kCounts); ++i) {
      const uint64_t pick = seed + i;
      JobCase c = random_case(pick, kCounts[i], rank.rank.size, place);
      c.windows = queue;
      SCOPED_TRACE("count " + std::to_string(c.count) + ", type " + std::to_string(c.type) + ", operation " +
                   std::to_string(c.op));
      Jobs& jobs = *all.emplace_back(std::make_unique<Jobs>(rank, c));
      jobs.add_symmetric();
      Target target = queue.target();
      target.options.algorithm = algorithm;
      for (uint64_t round = 0; round < 3; ++round) {
        jobs.fill(pick + 100 * round);
        rank.rank.barrier();  // inputs are read, and outputs written, by other ranks' kernels from their calls on
        jobs.call(target);
        queue.synchronize();
        ASSERT_EQ(tw_queue_check(queue), TW_OK) << tw_last_error();
        jobs.check(pick + 100 * round);
      }
    }
    rank.rank.barrier();
  });
}

TEST_P(SymmetricKernels, ByName) { run_all(GetParam(), "symmetric"); }
TEST_P(SymmetricKernels, ByTheOneThatIsChosen) { run_all(GetParam(), nullptr); }

/// With kernels that use slots, in one graph: their flags are the same words.
TEST_P(SymmetricKernels, CapturedAmongOthers) {
  const uint64_t seed = fresh_seed();
  run_group(GetParam(), [&](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    OwnQueue queue(rank, place);
    std::vector<std::unique_ptr<Jobs>> all;
    for (size_t i = 0; i < 3; ++i) {
      JobCase c = random_case(seed + i, 20'011 + 333 * i, rank.rank.size, place);
      c.windows = queue;
      all.push_back(std::make_unique<Jobs>(rank, c));
      all.back()->add_symmetric();
    }
    const auto enqueue = [&] {
      for (size_t i = 0; i < all.size(); ++i) {
        Target target = queue.target();
        target.options.algorithm = i == 1 ? "simple" : "symmetric";
        all[i]->call(target);
      }
    };
    const auto round = [&](uint64_t number, const auto& run) {
      for (const auto& jobs : all) jobs->fill(seed + number);
      rank.rank.barrier();
      run();
      queue.synchronize();
      ASSERT_EQ(tw_queue_check(queue), TW_OK) << tw_last_error();
      for (const auto& jobs : all) jobs->check(seed + number);
      rank.rank.barrier();
    };
    round(0, enqueue);
    OwnGraph graph(queue, enqueue);
    for (uint64_t number = 1; number < 4; ++number)
      round(number, [&] { ASSERT_EQ(tw_graph_launch(graph, queue), TW_OK) << tw_last_error(); });
  });
}

/// One large window; each rank's buffers lie at other, odd offsets in it.
TEST_P(SymmetricKernels, AtOtherOffsetsOnEachRank) {
  constexpr size_t kBytes = 50'003, kRoom = 1 << 20;
  const uint64_t seed = fresh_seed();
  run_group(GetParam(), [&](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    OwnQueue queue(rank, place);
    Room room(rank.rank.context, place.c_str(), kRoom);
    tw_window* window = nullptr;
    ASSERT_EQ(tw_group_window(rank.group, room.memory(), nullptr, &window), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_window_register_on(window, queue), TW_OK) << tw_last_error();
    tw_collective_options options = TW_COLLECTIVE_OPTIONS_INIT;
    options.algorithm = "symmetric";
    const uint32_t me = rank.rank.number, size = rank.rank.size;
    const auto bytes_of = [&](uint32_t of) {
      std::mt19937_64 random(seed + of);
      std::string bytes(kBytes, '\0');
      for (char& byte : bytes) byte = static_cast<char>(random());
      return bytes;
    };
    const size_t input = 1'000 + 37 * me, gathered = 100'000 + 1'001 * me, combined = 800'000 + 19 * me;
    std::string whole = room.load();
    whole.replace(input, kBytes, bytes_of(me));
    room.store(whole);
    rank.rank.barrier();
    ASSERT_EQ(tw_allgather_on(queue, rank.group, room.data() + input, room.data() + gathered, kBytes, TW_TYPE_UINT8, &options),
              TW_OK)
        << tw_last_error();
    ASSERT_EQ(tw_allreduce_on(queue, rank.group, room.data() + input, room.data() + combined, kBytes, TW_TYPE_UINT8,
                              TW_REDUCE_XOR, &options),
              TW_OK)
        << tw_last_error();
    queue.synchronize();
    ASSERT_EQ(tw_queue_check(queue), TW_OK) << tw_last_error();
    std::string sum(kBytes, '\0');
    for (uint32_t of = 0; of < size; ++of) {
      const std::string bytes = bytes_of(of);
      whole.replace(gathered + of * kBytes, kBytes, bytes);
      for (size_t i = 0; i < kBytes; ++i) sum[i] = static_cast<char>(sum[i] ^ bytes[i]);
    }
    whole.replace(combined, kBytes, sum);
    EXPECT_TRUE(room.load() == whole) << "rank " << me << " of " << size << " seed " << seed;
    rank.rank.barrier();
    EXPECT_EQ(tw_window_destroy(window), TW_OK) << tw_last_error();
  });
}

TEST(SymmetricRules, BuffersOutsideOfWindowsAreRefused) {
  run_group(2, [](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    OwnQueue queue(rank, place);
    Room room(rank.rank.context, place.c_str(), 4096);
    tw_collective_options options = TW_COLLECTIVE_OPTIONS_INIT;
    options.algorithm = "symmetric";
    EXPECT_EQ(tw_allreduce_on(queue, rank.group, TW_IN_PLACE, room.data(), 100, TW_TYPE_FLOAT32, TW_REDUCE_SUM, &options),
              TW_ERR_UNSUPPORTED);
    EXPECT_NE(std::string(tw_last_error()).find("tw_window_register_on"), std::string::npos) << tw_last_error();
    rank.rank.barrier();
  });
}

TEST(SymmetricRules, OtherWindowsOnOneRankAreNamed) {
  run_group(2, [](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    OwnQueue queue(rank, place);
    Room one(rank.rank.context, place.c_str(), 4096), other(rank.rank.context, place.c_str(), 4096);
    tw_window* windows[2] = {};
    ASSERT_EQ(tw_group_window(rank.group, one.memory(), nullptr, &windows[0]), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_group_window(rank.group, other.memory(), nullptr, &windows[1]), TW_OK) << tw_last_error();
    for (tw_window* window : windows) ASSERT_EQ(tw_window_register_on(window, queue), TW_OK) << tw_last_error();
    EXPECT_EQ(tw_window_register_on(windows[0], queue), TW_ERR_INVALID);  // once
    tw_collective_options options = TW_COLLECTIVE_OPTIONS_INIT;
    options.algorithm = "symmetric";
    Room& mine = rank.rank.number == 0 ? one : other;
    ASSERT_EQ(tw_allreduce_on(queue, rank.group, TW_IN_PLACE, mine.data(), 1'000, TW_TYPE_FLOAT32, TW_REDUCE_SUM, &options),
              TW_OK)
        << tw_last_error();
    EXPECT_EQ(tw_queue_synchronize(queue), TW_ERR_INVALID);
    EXPECT_NE(std::string(tw_last_error()).find("window"), std::string::npos) << tw_last_error();
    for (tw_window* window : windows) EXPECT_EQ(tw_window_destroy(window), TW_OK) << tw_last_error();
  });
}

/// More windows, one after the other, than a queue keeps plans: those of the ones that have ended make room.
TEST(SymmetricWindows, AnyNumberOneAfterTheOther) {
  constexpr int kWindows = 1'030;
  run_group(2, [](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    OwnQueue queue(rank, place);
    Room room(rank.rank.context, place.c_str(), 64);
    tw_collective_options options = TW_COLLECTIVE_OPTIONS_INIT;
    options.algorithm = "symmetric";
    for (int i = 0; i < kWindows; ++i) {
      tw_window* window = nullptr;
      ASSERT_EQ(tw_group_window(rank.group, room.memory(), nullptr, &window), TW_OK) << tw_last_error();
      ASSERT_EQ(tw_window_register_on(window, queue), TW_OK) << tw_last_error();
      ASSERT_EQ(tw_allreduce_on(queue, rank.group, TW_IN_PLACE, room.data(), 16, TW_TYPE_FLOAT32, TW_REDUCE_MAX, &options),
                TW_OK)
          << i << ": " << tw_last_error();
      queue.synchronize();
      ASSERT_EQ(tw_window_destroy(window), TW_OK) << tw_last_error();
    }
    rank.rank.barrier();
  });
}

TEST(SymmetricRules, APlanKnowsThatItsWindowHasEnded) {
  run_group(2, [](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    OwnQueue queue(rank, place);
    Room room(rank.rank.context, place.c_str(), 4096);
    tw_window* window = nullptr;
    ASSERT_EQ(tw_group_window(rank.group, room.memory(), nullptr, &window), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_window_register_on(window, queue), TW_OK) << tw_last_error();
    OwnPlan plan(rank, place);
    tw_collective_options by = TW_COLLECTIVE_OPTIONS_INIT;
    by.algorithm = "symmetric";
    ASSERT_EQ(
        tw_plan_allreduce(plan, rank.group, TW_IN_PLACE, room.data(), 1'000, TW_TYPE_FLOAT32, TW_REDUCE_SUM, &by, nullptr),
        TW_OK)
        << tw_last_error();
    plan.prepare();
    ASSERT_EQ(tw_plan_trigger(plan, queue), TW_OK) << tw_last_error();
    queue.synchronize();
    rank.rank.barrier();
    EXPECT_EQ(tw_window_destroy(window), TW_OK) << tw_last_error();
    EXPECT_EQ(tw_plan_trigger(plan, queue), TW_ERR_STALE);
    rank.rank.barrier();
  });
}

}  // namespace
}  // namespace thalweg::test
