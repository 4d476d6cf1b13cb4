// SPDX-License-Identifier: Apache-2.0
// Collectives by kernels whose ranks have blocks of several lengths, which the host knows.
#include <gmock/gmock.h>

#include "own_queue.hpp"
#include "planned_jobs.hpp"

namespace thalweg::test {
namespace {

using ::testing::HasSubstr;

class KernelsLengths : public testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, KernelsLengths, testing::Values(2, 3, 5, 8));

/// None, few, more than a slot, in a random order that all ranks know.
std::vector<size_t> random_counts(uint32_t ranks, std::mt19937_64& random) {
  std::vector<size_t> counts;
  for (uint32_t i = 0; i < ranks; ++i) {
    const size_t most = random() % 3 == 0 ? 70'001 : 300;
    counts.push_back(random() % 4 == 0 ? 0 : random() % most);
  }
  return counts;
}
/// To release a device's memory waits for its kernels, those of other ranks, too: all of it stays until all are through.
class Rooms {
 public:
  explicit Rooms(Context& context) : context_(context) {}
  Room& add(const char* place, size_t length) { return *all_.emplace_back(std::make_unique<Room>(context_, place, length)); }

 private:
  Context& context_;
  std::vector<std::unique_ptr<Room>> all_;
};
std::string random_text(size_t bytes, std::mt19937_64& random) {
  std::string text(bytes, '\0');
  for (char& byte : text) byte = static_cast<char>(random());
  return text;
}

/// A rank's result may end behind its own block, where other ranks' blocks begin.
TEST_P(KernelsLengths, ReduceScatterInPlace) {
  const uint64_t seed = fresh_seed();
  run_group(GetParam(), [&](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    OwnQueue queue(rank, place);
    const uint32_t size = rank.rank.size, me = rank.rank.number;
    std::mt19937_64 alike(seed);
    Rooms rooms(rank.rank.context);
    for (int round = 0; round < 6; ++round) {
      std::vector<size_t> counts = random_counts(size, alike);
      size_t total = 0, before = 0;
      for (uint32_t i = 0; i < size; ++i) {
        if (i < me) before += counts[i];
        total += counts[i];
      }
      std::vector<Values> inputs(size, Values(total));
      for (Values& values : inputs) {
        for (double& value : values) value = static_cast<double>(alike() % 1'000);
      }
      const Values wanted = reduced(TW_REDUCE_SUM, inputs, 0, size, before, counts[me]);
      Room& buffer = rooms.add(place.c_str(), total * sizeof(int));
      Room& apart = rooms.add(place.c_str(), counts[me] * sizeof(int));
      const std::string input = encode(TW_TYPE_INT32, inputs[me]), result = encode(TW_TYPE_INT32, wanted);
      const bool in_place = (me + static_cast<uint32_t>(round)) % 2 == 0;
      for (int run = 0; run < 2; ++run) {
        buffer.store(input);
        ASSERT_EQ(tw_reduce_scatterv_on(queue, rank.group, in_place ? TW_IN_PLACE : buffer.data(),
                                        in_place ? buffer.data() : apart.data(), counts.data(), TW_TYPE_INT32, TW_REDUCE_SUM,
                                        nullptr),
                  TW_OK)
            << tw_last_error();
        queue.synchronize();
        ASSERT_EQ(tw_queue_check(queue), TW_OK) << tw_last_error();
        EXPECT_TRUE((in_place ? buffer : apart).load().substr(0, result.size()) == result)
            << "round " << round << " seed " << seed;
        EXPECT_TRUE(in_place || buffer.load() == input);
      }
    }
    rank.rank.barrier();
  });
}

/// Types and operations that have kernels of their own, with blocks of several lengths.
TEST_P(KernelsLengths, ReduceScatterOfRareTypes) {
  const uint64_t seed = fresh_seed();
  run_group(GetParam(), [&](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    OwnQueue queue(rank, place);
    std::mt19937_64 alike(seed), own(seed + 1 + rank.rank.number);
    std::vector<size_t> counts = random_counts(rank.rank.size, alike);
    size_t total = 0;
    for (const size_t one : counts) total += one;
    const size_t mine = counts[rank.rank.number];
    Rooms rooms(rank.rank.context);
    for (const auto& [type, op] : {std::pair<uint32_t, uint32_t>{TW_TYPE_FLOAT8_E4M3, TW_REDUCE_SUM},
                                   {TW_TYPE_FLOAT8_E5M2, TW_REDUCE_AVERAGE},
                                   {TW_TYPE_BFLOAT16, TW_REDUCE_AVERAGE},
                                   {TW_TYPE_INT64, TW_REDUCE_AVERAGE},
                                   {TW_TYPE_UINT8, TW_REDUCE_MAX}}) {
      const size_t bytes = size_of(type);
      const std::string input = random_text(total * bytes, own);
      Room &send = rooms.add(place.c_str(), total * bytes), &recv = rooms.add(place.c_str(), mine * bytes);
      Room &host_send = rooms.add("host", total * bytes), &host_recv = rooms.add("host", mine * bytes);
      send.store(input);
      host_send.store(input);
      tw_collective_options options = TW_COLLECTIVE_OPTIONS_INIT;
      options.algorithm = "linear";
      ASSERT_EQ(tw_reduce_scatterv(rank.group, host_send.data(), host_recv.data(), counts.data(), type, op, &options, nullptr),
                TW_OK)
          << tw_last_error();
      ASSERT_EQ(tw_reduce_scatterv_on(queue, rank.group, send.data(), recv.data(), counts.data(), type, op, nullptr), TW_OK)
          << tw_last_error();
      queue.synchronize();
      EXPECT_TRUE(recv.load() == host_recv.load()) << "type " << type << " operation " << op << " seed " << seed;
    }
    rank.rank.barrier();
  });
}

/// In place on some ranks: the own block stays where it is, and nothing around is touched. Captured.
TEST_P(KernelsLengths, AllgatherInPlaceInAGraph) {
  const uint64_t seed = fresh_seed();
  run_group(GetParam(), [&](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    OwnQueue queue(rank, place);
    const uint32_t size = rank.rank.size, me = rank.rank.number;
    std::mt19937_64 alike(seed);
    const std::vector<size_t> counts = random_counts(size, alike);
    std::vector<size_t> offsets(size);
    size_t extent = 3;
    for (uint32_t i = size; i-- > 0;) {
      offsets[i] = extent;
      extent += counts[i] + 5;
    }
    Room send(rank.rank.context, place.c_str(), counts[me]), recv(rank.rank.context, place.c_str(), extent);
    const bool in_place = me % 2 == 0;
    const auto enqueue = [&] {
      ASSERT_EQ(tw_allgatherv_on(queue, rank.group, in_place ? TW_IN_PLACE : send.data(), recv.data(), counts.data(),
                                 offsets.data(), TW_TYPE_UINT8, nullptr),
                TW_OK)
          << tw_last_error();
    };
    std::unique_ptr<OwnGraph> graph;
    for (int round = 0; round < 4; ++round) {
      std::string wanted(extent, '\x33'), before = wanted, own;
      for (uint32_t i = 0; i < size; ++i) {
        const std::string block = random_text(counts[i], alike);
        wanted.replace(offsets[i], counts[i], block);
        if (i == me) own = block;
      }
      if (in_place) before.replace(offsets[me], own.size(), own);
      recv.store(before);
      send.store(own);
      if (graph == nullptr) {
        enqueue();
      } else {
        ASSERT_EQ(tw_graph_launch(*graph, queue), TW_OK) << tw_last_error();
      }
      queue.synchronize();
      ASSERT_EQ(tw_queue_check(queue), TW_OK) << tw_last_error();
      EXPECT_TRUE(recv.load() == wanted) << "round " << round << " seed " << seed;
      if (graph == nullptr) graph = std::make_unique<OwnGraph>(queue, enqueue);
    }
    rank.rank.barrier();
  });
}

/// In plans, too, where all ranks name a kernel; and what explain says.
TEST(KernelsLengthsPlanned, RunByTheName) {
  const uint64_t seed = fresh_seed();
  run_group(3, [&](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    JobCase c;
    c.count = 1'203;
    c.place = place.c_str();
    Jobs jobs(rank, c);
    jobs.add_several_lengths();
    OwnPlan plan(rank, place);
    Target target = plan.target();
    target.options.algorithm = "kernel";
    jobs.call(target);
    plan.prepare();
    EXPECT_THAT(plan.explain(), HasSubstr("one kernel on each device, protocol Simple, blocks of several lengths"));
    for (uint64_t round = 0; round < 3; ++round) {
      jobs.fill(seed + round);
      ASSERT_EQ(tw_plan_run(plan, kLong), TW_OK) << tw_last_error();
      jobs.check(seed + round);
    }
    Room room(rank.rank.context, place.c_str(), 64);
    OwnPlan other(rank, place);
    const size_t counts[] = {1, 2, 3};
    target.options.algorithm = "ll";
    EXPECT_EQ(tw_plan_allgatherv(other, rank.group, TW_IN_PLACE, room.data(), counts, nullptr, TW_TYPE_INT8, &target.options,
                                 nullptr),
              TW_ERR_UNSUPPORTED);
    EXPECT_THAT(tw_last_error(), HasSubstr("needs blocks of the same length"));
    rank.rank.barrier();
  });
}

/// Ranks that disagree about a block are told so, and nothing is written.
TEST(KernelsLengthsErrors, AnotherNumberThanExpectedIsNamed) {
  run_ranks(2, [](Rank& plain) {
    GroupRank rank(plain);
    const std::string place = place_of(rank, true);
    OwnPlan plan(rank, place, kSecond);  // blocks that the other rank's never answer wait for as long
    Room send(plain.context, place.c_str(), 64), recv(plain.context, place.c_str(), 64);
    const size_t sent[] = {4, 5}, received[] = {plain.number == 0 ? 4u : 5u, plain.number == 0 ? 7u : 5u};
    Target target = plan.target();
    target.options.algorithm = "kernel";
    ASSERT_EQ(tw_plan_alltoallv(plan, rank.group, send.data(), sent, nullptr, recv.data(), received, nullptr, TW_TYPE_INT8,
                                &target.options, nullptr),
              TW_OK)
        << tw_last_error();
    plan.prepare();
    const tw_status ended = tw_plan_run(plan, kLong);
    if (plain.number == 0) {
      EXPECT_EQ(ended, TW_ERR_TRUNCATED);
      EXPECT_THAT(tw_last_error(), HasSubstr("rank 1 sends 4 elements, and this rank receives another number from there"));
      EXPECT_EQ(recv.load(), std::string(64, '\x5a'));
    }
    plain.barrier();
  });
}

/// Of a reduce-scatter every rank knows all lengths: all ranks are told of one that has others, and nothing is written. Also where
/// the longest block, and so the blocks of threads, differ.
TEST(KernelsLengthsErrors, OtherLengthsOfAReduceScatterAreNamed) {
  for (const size_t other : {40u, 70u, 70'001u}) {
    run_ranks(3, [other](Rank& plain) {
      GroupRank rank(plain);
      const std::string place = place_of(rank, true);
      const size_t alike[] = {100, 60, 3}, differs[] = {100, other, 3}, total = 103 + std::max<size_t>(60, other);
      Room send(plain.context, place.c_str(), total), recv(plain.context, place.c_str(), std::max<size_t>(100, other));
      const auto run = [&](const size_t* counts) {
        OwnPlan plan(rank, place, 20 * kSecond);  // nobody waits for as long
        Target target = plan.target();
        target.options.algorithm = "kernel";
        EXPECT_EQ(tw_plan_reduce_scatterv(plan, rank.group, send.data(), recv.data(), counts, TW_TYPE_UINT8, TW_REDUCE_MAX,
                                          &target.options, nullptr),
                  TW_OK)
            << tw_last_error();
        plan.prepare();
        return tw_plan_run(plan, 10 * kSecond);
      };
      EXPECT_EQ(run(alike), TW_OK) << tw_last_error();
      const std::string before = recv.load();
      plain.barrier();
      EXPECT_EQ(run(plain.number == 2 ? differs : alike), TW_ERR_TRUNCATED) << tw_last_error();
      EXPECT_THAT(tw_last_error(), HasSubstr("has blocks of other lengths than this rank"));
      EXPECT_THAT(tw_last_error(), HasSubstr(plain.number == 2 ? "rank " : "rank 2"));
      EXPECT_EQ(recv.load(), before);
      plain.barrier();
    });
  }
}

}  // namespace
}  // namespace thalweg::test
