// SPDX-License-Identifier: Apache-2.0
// Which algorithm is chosen, what is predicted for it, and the texts about it.
#include "collectives/choose.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/call.hpp"
#include "collectives/explain.hpp"
#include "collectives/schedule_cache.hpp"

namespace thalweg::impl::test {
namespace {

using Kind = CollectiveKind;
using ::testing::AnyOf;
using ::testing::HasSubstr;

Collective of(Kind kind, uint32_t size, uint64_t count) { return {.kind = kind, .size = size, .count = count, .element = 4}; }
std::string chosen(const Collective& collective, const CollectiveCosts& costs = {}) { return choose(collective, costs)->name; }
const Algorithm& named(const Collective& collective, const char* name) {
  const Algorithm* found = nullptr;
  EXPECT_EQ(find_algorithm(collective, name, &found), TW_OK);
  return *found;
}

TEST(Choose, few_hops_for_short_messages_and_few_bytes_for_long_ones) {
  EXPECT_EQ(chosen(of(Kind::allreduce, 2, 1)), "one_shot");
  EXPECT_THAT(chosen(of(Kind::allreduce, 16, 1)), AnyOf("one_shot", "recursive_doubling"));
  EXPECT_THAT(chosen(of(Kind::allreduce, 8, 4 << 20)), AnyOf("ring", "two_rings", "halving_doubling"));
  EXPECT_THAT(chosen(of(Kind::allreduce, 100, 1)), "recursive_doubling");
  EXPECT_THAT(chosen(of(Kind::broadcast, 16, 1)), AnyOf("binomial", "linear"));
  EXPECT_THAT(chosen(of(Kind::broadcast, 16, 4 << 20)), AnyOf("chain", "scatter_allgather"));
  EXPECT_THAT(chosen(of(Kind::reduce, 16, 4 << 20)), AnyOf("halving_gather", "ring_gather"));
  EXPECT_THAT(chosen(of(Kind::alltoall, 64, 1)), AnyOf("bruck", "bruck4", "bruck8"));
  EXPECT_THAT(chosen(of(Kind::alltoall, 64, 1 << 16)), AnyOf("linear", "pairwise"));
  EXPECT_THAT(chosen(of(Kind::scan, 16, 1)), "recursive_doubling");
}

/// The root sends each byte once in two phases, and to each other rank in one.
TEST(Choose, phases_of_a_broadcast_by_kernels) {
  CollectiveCosts costs;
  costs.ll.ns = 1e9;
  Collective c = of(Kind::broadcast, 4, 1'000);
  c.kernel_room = 1 << 20;
  EXPECT_EQ(chosen(c, costs), "simple");
  c.count = 1 << 20;
  EXPECT_EQ(chosen(c, costs), "two_phases");
  EXPECT_LT(kernel_ns(Kernels::two_phases, c, costs), 0.6 * kernel_ns(Kernels::simple, c, costs));
  costs.two_phases.ns = 1e9;
  EXPECT_EQ(chosen(c, costs), "simple");
  c.size = 2;
  EXPECT_EQ(chosen(c), "simple");
  const Algorithm* none = nullptr;
  EXPECT_EQ(find_algorithm(c, "two_phases", &none), TW_ERR_UNSUPPORTED);
}

TEST(Choose, across_hosts_where_that_is_dear) {
  CollectiveCosts costs;
  costs.host_message_ns = 20000;
  costs.host_byte_ns = 1;
  Collective c = of(Kind::allreduce, 12, 1);
  c.ranks_per_host = 3;
  EXPECT_EQ(chosen(c, costs), "leaders");
  c.count = 1 << 20;
  EXPECT_THAT(chosen(c, costs), AnyOf("hierarchical_ring", "hierarchical_halving"));
  c.size = 96;
  EXPECT_THAT(chosen(c, costs), AnyOf("hierarchical_ring", "hierarchical_halving"));
}

TEST(Choose, the_same_on_all_ranks_and_for_all_costs_where_the_order_has_to_be) {
  for (Kind kind : {Kind::reduce, Kind::gather, Kind::allreduce, Kind::alltoall}) {
    for (uint64_t count : {1u, 1000u, 1000000u}) {
      Collective c = of(kind, 6, count);
      c.root = 2;
      const std::string first = chosen(c);
      for (c.rank = 1; c.rank < c.size; ++c.rank) {
        c.in_place = kind != Kind::alltoall && kind != Kind::allreduce && c.rank == c.root;
        EXPECT_EQ(chosen(c), first) << kind_name(kind) << " " << c.rank;
      }
    }
  }
  Collective c = of(Kind::allreduce, 8, 1 << 16);
  CollectiveCosts slow;
  slow.message_ns = 1e7;
  EXPECT_NE(chosen(c, slow), chosen(c));
  c.repeatable = true;
  EXPECT_EQ(chosen(c, slow), chosen(c));
  const std::string always = chosen(c);
  c.ranks_per_host = 2;
  c.chunk = 1000;
  c.in_place = true;
  EXPECT_EQ(chosen(c, slow), always);
}

TEST(Choose, only_what_keeps_the_order_of_ranks) {
  for (uint32_t kind = 0; kind < static_cast<uint32_t>(Kind::count_); ++kind) {
    Collective c = of(static_cast<Kind>(kind), 5, 1 << 20);
    c.commutative = false;
    EXPECT_TRUE(choose(c, {})->applies(c)) << kind_name(c.kind);
  }
}

TEST(Estimate, is_what_messages_and_bytes_take) {
  CollectiveCosts costs{
      .message_ns = 1000, .byte_ns = 1, .reduce_byte_ns = 1, .copy_byte_ns = 0, .step_ns = 0, .scratch_byte_ns = 0};
  Collective c = of(Kind::broadcast, 4, 25);
  EXPECT_DOUBLE_EQ(predicted_ns(named(c, "binomial"), c, costs), 2 * 1100);
  EXPECT_DOUBLE_EQ(predicted_ns(named(c, "chain"), c, costs), 3 * 1100);
  EXPECT_DOUBLE_EQ(predicted_ns(named(c, "linear"), c, costs), 3 * 600 + 500);  // the root posts three, half of each
  c = of(Kind::allreduce, 4, 25);
  EXPECT_DOUBLE_EQ(predicted_ns(named(c, "recursive_doubling"), c, costs), 2 * 1200);
  c = of(Kind::allreduce, 32, 32);  // three ranks are modelled instead of all
  EXPECT_DOUBLE_EQ(predicted_ns(named(c, "recursive_doubling"), c, costs), 5 * 1256);
  c.count = 1;  // as one element a block, or the ring would seem to be short
  EXPECT_GT(predicted_ns(named(c, "ring"), c, costs), 62 * 1000);
  c = of(Kind::barrier, 4, 0);
  EXPECT_DOUBLE_EQ(predicted_ns(named(c, "dissemination"), c, costs), 2 * 1001);
}

/// Where ranks do different things, too.
TEST(Estimate, of_many_ranks_models_few_and_goes_on_from_there) {
  CollectiveCosts costs{
      .message_ns = 1000, .byte_ns = 1, .reduce_byte_ns = 1, .copy_byte_ns = 0, .step_ns = 0, .scratch_byte_ns = 0};
  Collective c = of(Kind::broadcast, 1024, 25);
  EXPECT_DOUBLE_EQ(predicted_ns(named(c, "binomial"), c, costs), 10 * 1100);
  EXPECT_DOUBLE_EQ(predicted_ns(named(c, "chain"), c, costs), 1023 * 1100);
  EXPECT_DOUBLE_EQ(predicted_ns(named(c, "linear"), c, costs), 1023 * 600 + 500);
  c.size = 1000;
  c.root = 999;
  EXPECT_NEAR(predicted_ns(named(c, "binomial"), c, costs), 10'500, 1'000);
  costs.host_message_ns = 20'000;
  costs.host_byte_ns = 1;
  c.size = 1024;
  c.root = 0;
  c.ranks_per_host = 64;
  EXPECT_DOUBLE_EQ(predicted_ns(named(c, "binomial"), c, costs), 4 * 20'100 + 6 * 1100);

  static size_t steps;
  const Algorithm counted{"", Kind::reduce, nullptr, [](const Collective& one, Schedule* schedule) {
                            ring_gather_reduce(one, schedule);
                            steps += schedule->steps.size();
                          }};
  for (const uint32_t ranks_per_host : {0u, 1u, 64u}) {
    steps = 0;
    c = of(Kind::reduce, 1024, 1024);
    c.ranks_per_host = ranks_per_host;
    EXPECT_GT(predicted_ns(counted, c, costs), 1023 * 1000) << ranks_per_host;
    EXPECT_GT(steps, 0u) << ranks_per_host;
    EXPECT_LT(steps, 500'000u) << ranks_per_host;  // of all ranks: more than 3 million
  }
}

TEST(Estimate, overlaps_chunks_unless_one_cpu_does_all) {
  CollectiveCosts costs;
  Collective c = of(Kind::broadcast, 8, 16 << 20);
  const Algorithm& chain = named(c, "chain");
  const double once = costs.byte_ns * static_cast<double>(c.bytes());
  EXPECT_LT(predicted_ns(chain, c, costs), 1.2 * once);
  c.chunk = 0;
  EXPECT_GT(predicted_ns(chain, c, costs), 6.9 * once);
  c.chunk = 256 << 10;
  costs.cpu_moves = true;
  EXPECT_GT(predicted_ns(chain, c, costs), 1.9 * once);
}

TEST(Algorithms, are_found_by_name_or_the_error_says_why_not) {
  const Algorithm* found = nullptr;
  Collective c = of(Kind::allgather, 6, 1);
  EXPECT_EQ(find_algorithm(c, "star", &found), TW_ERR_INVALID);
  EXPECT_THAT(last_error(),
              HasSubstr("allgather has no algorithm star; there are: bruck, linear, recursive_doubling, ring, direct"));
  EXPECT_EQ(find_algorithm(c, "recursive_doubling", &found), TW_ERR_UNSUPPORTED);
  EXPECT_THAT(last_error(), HasSubstr("needs a power of two of ranks"));
  EXPECT_EQ(found, nullptr);
}

TEST(Explain, prints_steps_and_candidates) {
  Collective c = of(Kind::allreduce, 2, 4);
  c.rank = 1;
  Schedule schedule;
  one_shot_allreduce(c, &schedule);
  EXPECT_EQ(schedule_text(schedule),
            "0 recv scratch[0, 16) from 0\n"
            "1 send input[0, 16) to 0\n"
            "2 reduce output[0, 16) = scratch[0, 16), input[0, 16) after 0\n");
  const std::string table = candidates_text(c, {});
  EXPECT_THAT(table, HasSubstr("* one_shot"));
  EXPECT_THAT(table, HasSubstr("leaders                         -  ranks are not spread over hosts evenly, host by host\n"));
}

/// Which of two such calls comes first must not matter: the caches of two groups begin with different ones.
TEST(Choose, a_repeatable_reduction_by_counts_forgets_the_calls_before_it) {
  bool mattered = false;
  for (const uint32_t size : {3u, 5u, 8u, 16u}) {
    for (uint64_t count = 64; count <= 4 << 20; count *= 4) {
      const std::vector<uint64_t> even(size, count);
      std::vector<uint64_t> uneven(size, 0);
      uneven[0] = count;
      Collective what = of(Kind::reduce_scatter, size, count);
      what.repeatable = true;
      const auto text = [&](ScheduleCache& cache, const std::vector<uint64_t>& counts) {
        what.recv_counts = counts.data();
        std::shared_ptr<const PreparedSchedule> found;
        EXPECT_EQ(cache.find(what, nullptr, &found), TW_OK);
        return schedule_text(found->schedule());
      };
      ScheduleCache fresh{CollectiveCosts{}}, used{CollectiveCosts{}};
      (void)text(used, uneven);
      EXPECT_EQ(text(used, even), text(fresh, even)) << size << " ranks, " << count;
      what.recv_counts = uneven.data();
      const std::string for_uneven = chosen(what);
      what.recv_counts = even.data();
      mattered = mattered || for_uneven != chosen(what);
    }
  }
  EXPECT_TRUE(mattered) << "the counts never change the choice";
}

/// Plans cut long messages by their length: lengths that are alike share a choice.
TEST(Choose, a_plans_lengths_that_are_alike_share_a_choice) {
  ScheduleCache cache{CollectiveCosts{}};
  for (const Kind kind : {Kind::allreduce, Kind::allgather, Kind::broadcast}) {
    const size_t before = cache.choices();
    for (uint64_t i = 1; i <= 40; ++i) {
      Collective what = of(kind, 3, (uint64_t{1} << 24) + i * 99'991);
      what.chunk = planned_chunk(what);
      std::shared_ptr<const PreparedSchedule> found;
      ASSERT_EQ(cache.find(what, nullptr, &found), TW_OK);
      ASSERT_NE(found, nullptr);
    }
    EXPECT_LE(cache.choices() - before, 2u) << kind_name(kind);
  }
}

}  // namespace
}  // namespace thalweg::impl::test
