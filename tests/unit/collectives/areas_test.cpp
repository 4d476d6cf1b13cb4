// SPDX-License-Identifier: Apache-2.0
// How long the memory lives that kernels of a group's queues store into: as long as a rank of this process may store there, also
// where its owner's group, or context, has ended. Between processes: tests/processes/collectives_test.cpp.
#include <atomic>
#include <chrono>

#include "collectives/collectives.hpp"
#include "devices/registry.hpp"
#include "own_queue.hpp"

namespace thalweg::test {
namespace {

/// Of the rank's own area.
uint64_t area_of(const GroupRank& rank, tw_group* group) {
  impl::ExchangeStep step;
  const auto& area = group->collectives->device();
  EXPECT_NE(area, nullptr) << group->collectives->why_no_device();
  if (area == nullptr) return 0;
  area->fill_counted(&step);
  return step.what.areas[rank.rank.number];
}

bool is_there(uint64_t address) {
  impl::BufferInfo info;
  return impl::find_device(address, &info) == TW_OK;
}

/// A duplicate whose ranks have called a collective on queues.
tw_group* with_area(GroupRank& rank) {
  tw_group* copy = nullptr;
  EXPECT_EQ(tw_group_duplicate(rank.group, &copy), TW_OK) << tw_last_error();
  OwnQueue queue(rank, place_of(rank, true));
  EXPECT_EQ(tw_barrier_on(queue, copy, nullptr), TW_OK) << tw_last_error();
  queue.synchronize();
  EXPECT_EQ(tw_queue_check(queue), TW_OK) << tw_last_error();
  return copy;
}

class Areas : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(OneContext, Areas, testing::Bool());

TEST_P(Areas, LiveUntilTheLastRankOfTheirProcessLetsGo) {
  RankOptions options;
  options.one_context = GetParam();
  std::vector<uint64_t> areas(3);
  run_group(
      3,
      [&](GroupRank& rank) {
        tw_group* const copy = with_area(rank);
        const uint32_t number = rank.rank.number;
        areas[number] = area_of(rank, copy);
        rank.rank.barrier();
        for (uint32_t next = 0; next < 3; ++next) {  // one after the other
          if (next == number) {
            const auto begin = std::chrono::steady_clock::now();
            EXPECT_EQ(tw_group_destroy(copy), TW_OK) << tw_last_error();
            EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
          }
          rank.rank.barrier();
          for (const uint64_t area : areas) EXPECT_EQ(is_there(area), next < 2) << "behind the end of rank " << next;
          rank.rank.barrier();
        }
        EXPECT_EQ(rank.rank.context.get()->registry->left(), 0u);
      },
      options);
}

TEST(AreasOfContexts, OutliveThem) {
  Meeting meeting(2);
  std::atomic<uint64_t> area = 0;
  std::atomic<bool> ended = false;
  std::vector<std::thread> threads;
  for (uint32_t number = 0; number < 2; ++number) {
    threads.emplace_back([&, number] {
      {
        Context context(test_options());
        Rank one(number, 2, meeting, context, {});
        GroupRank rank(one);
        tw_group* const copy = with_area(rank);
        if (number == 0) area = area_of(rank, copy);
        one.barrier();
        if (number == 1) {
          EXPECT_EQ(one.worker->get()->wait_until([&] { return ended.load(); }, kLong), TW_OK);
          EXPECT_TRUE(is_there(area)) << "rank 1 may store there";
        }
        EXPECT_EQ(tw_group_destroy(copy), TW_OK) << tw_last_error();
        if (number == 1) EXPECT_FALSE(is_there(area));
      }
      ended = true;
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace thalweg::test
