// SPDX-License-Identifier: Apache-2.0
// Collectives on queues whose buffers lie in windows of the group: kernels load and store there.
#include <gmock/gmock.h>

#include <cstring>
#include <span>
#include <tuple>

#include "own_queue.hpp"
#include "planned_jobs.hpp"
#include "plans/queue.hpp"
#include "plans/window.hpp"

namespace thalweg::test {
namespace {

using ::testing::HasSubstr;

class SymmetricKernels : public testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, SymmetricKernels, testing::Values(2, 3, 5, 8));

/// Less than a word for each block of threads, odd ends, several batches.
constexpr size_t kCounts[] = {0, 1, 17, 1'025, 4'099, 33'333};

void run_all(uint32_t ranks, const char* algorithm, std::span<const size_t> counts, void (*add)(Jobs&)) {
  const uint64_t seed = fresh_seed();
  run_group(ranks, [&](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    OwnQueue queue(rank, place);
    std::vector<std::unique_ptr<Jobs>> all;  // to release a device's memory waits for its kernels, those of other ranks, too
    for (size_t i = 0; i < counts.size(); ++i) {
      const uint64_t pick = seed + i;
      JobCase c = random_case(pick, counts[i], rank.rank.size, place);
      c.windows = queue;
      SCOPED_TRACE("count " + std::to_string(c.count) + ", type " + std::to_string(c.type) + ", operation " +
                   std::to_string(c.op));
      Jobs& jobs = *all.emplace_back(std::make_unique<Jobs>(rank, c));
      add(jobs);
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

void add_all(Jobs& jobs) { jobs.add_symmetric(); }
void add_allreduce(Jobs& jobs) { jobs.add_allreduce(); }

TEST_P(SymmetricKernels, ByName) { run_all(GetParam(), "symmetric", kCounts, add_all); }
TEST_P(SymmetricKernels, ByTheOneThatIsChosen) { run_all(GetParam(), nullptr, kCounts, add_all); }
/// Of one piece and several, with short last ones.
TEST_P(SymmetricKernels, ByNameWithOperandsBySlots) {
  constexpr size_t kMany[] = {0, 1, 17, 1'025, 33'333, 400'009};
  run_all(GetParam(), "symmetric_simple", kMany, add_allreduce);
}

/// Kernels that use slots and such that do not, in one graph: their flags are the same words.
void run_captured(uint32_t ranks, std::span<const char* const> algorithms, void (*add)(Jobs&)) {
  const uint64_t seed = fresh_seed();
  run_group(ranks, [&](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    OwnQueue queue(rank, place);
    std::vector<std::unique_ptr<Jobs>> all;
    for (size_t i = 0; i < algorithms.size(); ++i) {
      JobCase c = random_case(seed + i, 20'011 + 333 * i, rank.rank.size, place);
      c.windows = queue;
      all.push_back(std::make_unique<Jobs>(rank, c));
      add(*all.back());
    }
    const auto enqueue = [&] {
      for (size_t i = 0; i < all.size(); ++i) {
        Target target = queue.target();
        target.options.algorithm = algorithms[i];
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
TEST_P(SymmetricKernels, CapturedAmongOthers) {
  constexpr const char* kAlgorithms[] = {"symmetric", "simple", "symmetric"};
  run_captured(GetParam(), kAlgorithms, add_all);
}
TEST_P(SymmetricKernels, OperandsBySlotsCapturedAmongOthers) {
  constexpr const char* kAlgorithms[] = {"symmetric_simple", "simple", "symmetric_simple", "symmetric", "symmetric_simple"};
  run_captured(GetParam(), kAlgorithms, add_allreduce);
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
    const size_t input = 1'000 + 37 * me, gathered = 100'000 + 1'001 * me, combined = 800'000 + 19 * me,
                 by_slots = 900'000 + 23 * me;
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
    options.algorithm = "symmetric_simple";
    ASSERT_EQ(tw_allreduce_on(queue, rank.group, room.data() + input, room.data() + by_slots, kBytes, TW_TYPE_UINT8,
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
    whole.replace(by_slots, kBytes, sum);
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

/// What rank 1 says of its buffers makes no sense to rank 0, which names it before it has stored anything; what comes behind on its
/// queue hears the cause. Places are offsets in a window of kRoom bytes, and a room's guards, on each rank; rank 0 reduces kBytes.
struct Misplaced {
  const char* name;
  size_t input, output, count;
  uint32_t type;
};
class SymmetricPlaces : public testing::TestWithParam<std::tuple<Misplaced, const char*>> {};
constexpr size_t kRoom = 64 << 10, kCount = 2'000, kBytes = kCount * sizeof(float);
constexpr size_t kLimit = kRoom - kBytes;  // where what rank 0 reduces would end with the room
constexpr size_t kOutput = 32'000;         // of rank 0
constexpr Misplaced kMisplaced[] = {{"InputEndsBehindTheWindow", kLimit + 4'096, 16'000, 10, TW_TYPE_FLOAT32},
                                    {"OutputEndsBehindTheWindow", 16'000, kLimit + 4'096, 10, TW_TYPE_FLOAT32},
                                    {"InputEndsBehindItByOneElement", kLimit + sizeof(float), 16'000, 10, TW_TYPE_FLOAT32},
                                    {"InputIsMisaligned", 1'001, 16'000, kBytes, TW_TYPE_UINT8},
                                    {"OutputIsMisaligned", 1'000, 16'002, kBytes, TW_TYPE_UINT8}};
INSTANTIATE_TEST_SUITE_P(OfRank1, SymmetricPlaces,
                         testing::Combine(testing::ValuesIn(kMisplaced), testing::Values("symmetric", "symmetric_simple")),
                         [](const auto& one) {
                           return std::string(std::get<0>(one.param).name) + "_" + std::get<1>(one.param);
                         });

TEST_P(SymmetricPlaces, AreRefusedAndLaterKernelsHearWhy) {
  const auto& [theirs, algorithm] = GetParam();
  run_ranks(2, [&](Rank& plain) {
    GroupRank rank(plain);
    const std::string place = place_of(rank, true);
    OwnQueue queue(rank, place);
    Room room(plain.context, place.c_str(), kRoom);
    std::string whole(kRoom, '\0');
    std::mt19937_64 random(fresh_seed());
    for (char& byte : whole) byte = static_cast<char>(random());
    room.store(whole);
    tw_window* window = nullptr;
    ASSERT_EQ(tw_group_window(rank.group, room.memory(), nullptr, &window), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_window_register_on(window, queue), TW_OK) << tw_last_error();
    const bool misplaced = plain.number == 1;
    const size_t guard = static_cast<size_t>(room.data() - static_cast<char*>(tw_memory_address(room.memory())));
    const auto placed = [&](size_t theirs_at, size_t mine_at) {  // the window ends behind the room's guard
      return !misplaced ? mine_at : theirs_at > kLimit ? theirs_at + guard : theirs_at;
    };
    const size_t input = placed(theirs.input, 512), output = placed(theirs.output, kOutput);
    OwnPlan first(rank, place, kSecond), second(rank, place, kSecond);
    tw_collective_options by = TW_COLLECTIVE_OPTIONS_INIT;
    by.algorithm = algorithm;
    ASSERT_EQ(tw_plan_allreduce(first, rank.group, room.data() + input, room.data() + output, misplaced ? theirs.count : kCount,
                                misplaced ? theirs.type : uint32_t{TW_TYPE_FLOAT32}, TW_REDUCE_SUM, &by, nullptr),
              TW_OK)
        << tw_last_error();
    by.algorithm = "kernel";
    ASSERT_EQ(tw_plan_barrier(second, rank.group, &by, nullptr), TW_OK) << tw_last_error();
    first.prepare();
    second.prepare();
    Room gate(plain.context, "pinned", sizeof(uint64_t));
    gate.store(std::string(sizeof(uint64_t), '\0'));
    auto* const word = reinterpret_cast<uint64_t*>(gate.data());
    ASSERT_EQ(static_cast<tw_queue*>(queue)->queue->wait_geq(reinterpret_cast<uint64_t>(word), 1), TW_OK);
    ASSERT_EQ(tw_plan_trigger(first, queue), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_plan_trigger(second, queue), TW_OK) << tw_last_error();
    plain.barrier();  // both kernels are enqueued before the first one begins
    __atomic_store_n(word, 1, __ATOMIC_RELEASE);
    const tw_status code = misplaced ? TW_ERR_TIMED_OUT : TW_ERR_INVALID;
    const std::string why =
        misplaced ? "rank 0 did not come in time" : "the buffers of rank 1 lie in other windows of the group";
    std::string texts;
    EXPECT_EQ(tw_queue_synchronize(queue), code);
    texts += tw_last_error();
    EXPECT_EQ(tw_queue_check(queue), code);
    texts += std::string("\n") + tw_last_error();
    EXPECT_THAT(texts, HasSubstr("of tw_allreduce: " + why));
    EXPECT_THAT(texts, HasSubstr("of tw_barrier: an earlier one of the group has failed: " + why));
    plain.barrier();
    // Rank 1, to which rank 0's buffers make sense, has stored what it reduced; what rank 0 would have comes before that.
    const size_t element = theirs.type == TW_TYPE_UINT8 ? 1 : sizeof(float);
    const size_t kept = ((theirs.count * element + 1) / 2 + 15) / 16 * 16;
    EXPECT_EQ(room.load().substr(output, kept), whole.substr(output, kept)) << "something was stored";
    plain.barrier();
    EXPECT_EQ(tw_window_destroy(window), TW_OK) << tw_last_error();
    plain.barrier();
  });
}

/// As far as the limits allow: the last element of the window, and any multiple of an element.
TEST(SymmetricRules, BuffersMayEndWithTheWindow) {
  run_group(2, [](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    OwnQueue queue(rank, place);
    Room room(rank.rank.context, place.c_str(), kRoom);
    tw_window* window = nullptr;
    ASSERT_EQ(tw_group_window(rank.group, room.memory(), nullptr, &window), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_window_register_on(window, queue), TW_OK) << tw_last_error();
    const bool turned = rank.rank.number == 1;
    const size_t end = kRoom - kBytes, input = turned ? end : 4, output = turned ? 4 : end;
    std::vector<float> values(kCount), sums(kCount);
    for (size_t i = 0; i < kCount; ++i) {
      values[i] = static_cast<float>(i % 1'009 + 7 * rank.rank.number);
      sums[i] = static_cast<float>(2 * (i % 1'009) + 7);
    }
    std::string whole(kRoom, '\x5a');
    std::memcpy(whole.data() + input, values.data(), kBytes);
    room.store(whole);
    rank.rank.barrier();
    tw_collective_options options = TW_COLLECTIVE_OPTIONS_INIT;
    options.algorithm = "symmetric";
    ASSERT_EQ(tw_allreduce_on(queue, rank.group, room.data() + input, room.data() + output, kCount, TW_TYPE_FLOAT32,
                              TW_REDUCE_SUM, &options),
              TW_OK)
        << tw_last_error();
    queue.synchronize();
    ASSERT_EQ(tw_queue_check(queue), TW_OK) << tw_last_error();
    std::memcpy(whole.data() + output, sums.data(), kBytes);
    EXPECT_TRUE(room.load() == whole);
    rank.rank.barrier();
    EXPECT_EQ(tw_window_destroy(window), TW_OK) << tw_last_error();
  });
}

void name_other_windows(const char* algorithm) {
  run_group(2, [&](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    OwnQueue queue(rank, place);
    Room one(rank.rank.context, place.c_str(), 4096), other(rank.rank.context, place.c_str(), 4096);
    tw_window* windows[2] = {};
    ASSERT_EQ(tw_group_window(rank.group, one.memory(), nullptr, &windows[0]), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_group_window(rank.group, other.memory(), nullptr, &windows[1]), TW_OK) << tw_last_error();
    for (tw_window* window : windows) ASSERT_EQ(tw_window_register_on(window, queue), TW_OK) << tw_last_error();
    EXPECT_EQ(tw_window_register_on(windows[0], queue), TW_ERR_INVALID);  // once
    tw_collective_options options = TW_COLLECTIVE_OPTIONS_INIT;
    options.algorithm = algorithm;
    Room& mine = rank.rank.number == 0 ? one : other;
    ASSERT_EQ(tw_allreduce_on(queue, rank.group, TW_IN_PLACE, mine.data(), 1'000, TW_TYPE_FLOAT32, TW_REDUCE_SUM, &options),
              TW_OK)
        << tw_last_error();
    EXPECT_EQ(tw_queue_synchronize(queue), TW_ERR_INVALID);
    EXPECT_NE(std::string(tw_last_error()).find("window"), std::string::npos) << tw_last_error();
    for (tw_window* window : windows) EXPECT_EQ(tw_window_destroy(window), TW_OK) << tw_last_error();
  });
}
TEST(SymmetricRules, OtherWindowsOnOneRankAreNamed) { name_other_windows("symmetric"); }
TEST(SymmetricRules, OtherWindowsOnOneRankAreNamedWithOperandsBySlots) { name_other_windows("symmetric_simple"); }

/// A rank that is refused alone calls again, as the others do for the first time.
TEST(SymmetricRules, ARegistrationThatIsRefusedTakesNoNumber) {
  run_ranks(2, [](Rank& plain) {
    GroupRank rank(plain, 5 * kSecond);
    const std::string place = place_of(rank, true);
    OwnQueue queue(rank, place);
    Room room(plain.context, place.c_str(), 4096);
    tw_window* window = nullptr;
    ASSERT_EQ(tw_group_window(rank.group, room.memory(), nullptr, &window), TW_OK) << tw_last_error();
    if (plain.number == 0) {
      OwnGraph graph(queue, [&] {
        EXPECT_EQ(tw_window_register_on(window, queue), TW_ERR_INVALID);
        EXPECT_THAT(tw_last_error(), HasSubstr("cannot be captured"));
      });
    }
    EXPECT_EQ(tw_window_register_on(window, queue), TW_OK) << tw_last_error();
    const uint32_t mine = 7 + plain.number;
    uint32_t all[2] = {};
    EXPECT_EQ(tw_group_exchange(rank.group, &mine, sizeof mine, all), TW_OK) << tw_last_error();
    EXPECT_TRUE(all[0] == 7 && all[1] == 8) << all[0] << ", " << all[1];
    EXPECT_EQ(tw_window_destroy(window), TW_OK) << tw_last_error();
    plain.barrier();
  });
}

/// It comes when the other's time is over, whose part has come all the same.
TEST(SymmetricRules, ALateRankRegistersNoWindow) {
  run_ranks(2, [](Rank& plain) {
    GroupRank rank(plain, 2 * kSecond);
    const std::string place = place_of(rank, true);
    OwnQueue queue(rank, place);
    Room room(plain.context, place.c_str(), 4096);
    tw_window* window = nullptr;
    ASSERT_EQ(tw_group_window(rank.group, room.memory(), nullptr, &window), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_barrier_on(queue, rank.group, nullptr), TW_OK) << tw_last_error();  // sets up what kernels need
    EXPECT_EQ(tw_queue_synchronize(queue), TW_OK) << tw_last_error();
    if (plain.number == 1) plain.barrier();
    EXPECT_EQ(tw_window_register_on(window, queue), TW_ERR_TIMED_OUT) << tw_last_error();
    EXPECT_EQ(window->listed, nullptr);
    if (plain.number == 0) plain.barrier();
    plain.barrier();
    EXPECT_EQ(tw_window_register_on(window, queue), TW_OK) << tw_last_error();
    EXPECT_EQ(tw_window_destroy(window), TW_OK) << tw_last_error();
    plain.barrier();
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
