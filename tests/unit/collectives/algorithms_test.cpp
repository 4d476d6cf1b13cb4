// SPDX-License-Identifier: Apache-2.0
// Every algorithm, run by the simulator for many sizes, counts, roots, forms and orders of events, against what has to come
// out.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "world.hpp"

namespace thalweg::impl::test {
namespace {

using Kind = CollectiveKind;
constexpr uint32_t kSizes[] = {1, 2, 3, 4, 5, 7, 8, 16};
constexpr uint64_t kCounts[] = {0, 1, 2, 7, 63, 1000};
constexpr size_t kFewSteps = 200;  // of which all pairs are checked

bool reduces(Kind kind) {
  return kind == Kind::reduce || kind == Kind::allreduce || kind == Kind::reduce_scatter || kind == Kind::scan ||
         kind == Kind::exclusive_scan;
}
bool has_form(Kind kind) {
  return kind == Kind::reduce_scatter || kind == Kind::allgather || kind == Kind::gather || kind == Kind::scatter ||
         kind == Kind::alltoall;
}

std::vector<uint32_t> roots(Kind kind, uint32_t size) {
  std::vector<uint32_t> all{0};
  const bool rooted = kind == Kind::broadcast || kind == Kind::reduce || kind == Kind::gather || kind == Kind::scatter;
  if (rooted && size > 1) all.push_back(size - 1);
  if (rooted && size > 2) all.push_back(size / 2);
  return all;
}

/// Whole messages, and some of many chunks.
std::vector<uint64_t> chunks(uint64_t count) {
  if (count < 7) return {256 << 10};
  return {256 << 10, count > 100 ? 1000u : 40u};
}

/// Does it do anything else, or nothing, when hosts are not known?
bool of_hosts(const Algorithm& algorithm, Collective collective) {
  collective.ranks_per_host = 0;
  return !algorithm.applies(collective);
}

class AlgorithmsTest : public ::testing::TestWithParam<Kind> {
 protected:
  /// Runs one case by all algorithms that can do it.
  void run(const Case& each) {
    World world(each, random_);
    for (const Algorithm& algorithm : algorithms_of(each.collective.kind)) {
      if (!algorithm.applies(each.collective) || !algorithm.applies(world.collective(0))) continue;
      if (each.collective.ranks_per_host != 0 && !of_hosts(algorithm, each.collective)) continue;
      const std::vector<Schedule> schedules = world.write(algorithm);
      std::string wrong;
      for (const Schedule& schedule : schedules) {
        if (wrong.empty() && schedule.steps.size() <= kFewSteps) wrong = check_overlaps(schedule);
      }
      for (Eager eager : {Eager::none, Eager::some}) {
        std::vector<Memory> memories = world.memories();
        if (wrong.empty()) wrong = simulate(schedules, memories, each.operation, eager, random_);
        if (wrong.empty()) wrong = world.compare(memories);
        ++cases_;
      }
      if (wrong.empty()) continue;
      ADD_FAILURE() << algorithm.name << " " << text_of(each) << ": " << wrong;
      if (++failures_ == 5) GTEST_SKIP() << "enough";
    }
  }
  void run_forms(Case each) {
    for (Form form : {Form::equal, Form::counts, Form::offsets}) {
      each.form = form;
      run(each);
      if (!has_form(each.collective.kind)) return;
      if (form == Form::equal || (each.collective.kind != Kind::gather && each.collective.kind != Kind::scatter)) continue;
      each.collective.counts_at_root = true;
      run(each);
      each.collective.counts_at_root = false;
    }
  }
  void run_operations(Case each) {
    Collective& c = each.collective;
    if (!reduces(c.kind)) {
      c.element = 3;
      return run_forms(each);
    }
    c.element = 8;
    each.operation = Operation::add;
    run_forms(each);
    each.operation = Operation::affine;
    c.commutative = false;
    run_forms(each);
    c.repeatable = true;
    c.commutative = true;  // says the caller: any order is good, but always the same one
    each.operation = Operation::add;
    run_forms(each);
  }

  std::mt19937 random_{20240611};
  uint64_t cases_ = 0;
  int failures_ = 0;
};

TEST_P(AlgorithmsTest, do_what_they_have_to) {
  for (uint32_t size : kSizes) {
    for (uint32_t root : roots(GetParam(), size)) {
      for (uint64_t count : kCounts) {
        for (uint64_t chunk : chunks(count)) {
          for (bool in_place : {false, true}) {
            Case each;
            each.collective = {.kind = GetParam(), .size = size, .root = root, .count = count, .in_place = in_place};
            each.collective.chunk = chunk;
            run_operations(each);
            if (IsSkipped()) return;
          }
          if (GetParam() == Kind::barrier) break;
        }
      }
    }
  }
  std::printf("%llu cases\n", static_cast<unsigned long long>(cases_));
}

INSTANTIATE_TEST_SUITE_P(All, AlgorithmsTest,
                         ::testing::Values(Kind::barrier, Kind::broadcast, Kind::reduce, Kind::allreduce, Kind::reduce_scatter,
                                           Kind::allgather, Kind::gather, Kind::scatter, Kind::alltoall, Kind::scan,
                                           Kind::exclusive_scan),
                         [](const auto& of) { return kind_name(of.param); });

class HostsTest : public AlgorithmsTest {};

TEST_P(HostsTest, are_summed_first) {
  for (uint32_t size : {4u, 6u, 8u, 9u, 12u, 16u}) {
    for (uint32_t each_host : {2u, 3u, 4u, 8u}) {
      for (uint64_t count : kCounts) {
        for (bool in_place : {false, true}) {
          Case each;
          each.collective = {.kind = GetParam(), .size = size, .count = count, .in_place = in_place};
          each.collective.ranks_per_host = each_host;
          each.collective.chunk = 100;
          run_operations(each);
          if (IsSkipped()) return;
        }
      }
    }
  }
  std::printf("%llu cases\n", static_cast<unsigned long long>(cases_));
  EXPECT_GT(cases_, 0u);
}

INSTANTIATE_TEST_SUITE_P(All, HostsTest, ::testing::Values(Kind::allreduce),
                         [](const auto& of) { return kind_name(of.param); });

/// For each rank, bits of the ranks that have begun when it is done, by the order of steps and messages alone. Each pair of
/// ranks sends at most one message each way.
std::vector<uint32_t> heard_of(const std::vector<Schedule>& schedules) {
  std::vector<uint32_t> all(schedules.size());
  std::vector<std::vector<uint32_t>> known;  // at the end of each step
  for (const Schedule& schedule : schedules) known.emplace_back(schedule.steps.size());
  for (size_t pass = 0; pass < schedules.size(); ++pass) {
    for (uint32_t rank = 0; rank < schedules.size(); ++rank) {
      const Schedule& schedule = schedules[rank];
      all[rank] |= 1u << rank;
      for (uint32_t i = 0; i < schedule.steps.size(); ++i) {
        const CollectiveStep& step = schedule.steps[i];
        uint32_t& bits = known[rank][i] |= 1u << rank;
        for (uint32_t k = 0; k < step.after; ++k) bits |= known[rank][schedule.after[step.first_after + k]];
        for (uint32_t k = 0; k < schedules[step.peer].steps.size(); ++k) {
          const CollectiveStep& other = schedules[step.peer].steps[k];
          const bool matches = step.verb == StepVerb::recv && other.verb == StepVerb::send && other.peer == rank;
          if (matches) bits |= known[step.peer][k];
        }
        all[rank] |= bits;
      }
    }
  }
  return all;
}

TEST(Barrier, ends_nowhere_before_all_have_begun) {
  for (uint32_t size : kSizes) {
    std::mt19937 random(1);
    Case each;
    each.collective = {.kind = Kind::barrier, .size = size};
    for (const Algorithm& algorithm : algorithms_of(Kind::barrier)) {
      if (!algorithm.applies(each.collective)) continue;
      for (uint32_t bits : heard_of(World(each, random).write(algorithm))) EXPECT_EQ(bits, (1u << size) - 1) << size;
    }
  }
}

/// Outputs of all ranks.
std::vector<Bytes> outputs(const World& world, const Algorithm& algorithm, uint32_t seed) {
  std::vector<Memory> memories = world.memories();
  std::mt19937 random(seed);
  EXPECT_EQ(simulate(world.write(algorithm), memories, Operation::add_floats, seed % 2 ? Eager::some : Eager::none, random),
            "");
  std::vector<Bytes> all;
  for (Memory& memory : memories) all.push_back(memory[Where::output]);
  return all;
}

Case of_floats(Kind kind, uint32_t size, uint32_t root, uint64_t chunk) {
  Case each;
  each.operation = Operation::add_floats;
  each.collective = {.kind = kind, .size = size, .root = root, .count = 300, .element = 4};
  each.collective.repeatable = true;
  each.collective.chunk = chunk;
  return each;
}

TEST(Repeatable, allreduce_gives_all_ranks_the_same_bits_in_any_order_of_events_and_chunks) {
  for (const Algorithm& algorithm : algorithms_of(Kind::allreduce)) {
    for (uint32_t size : {2u, 5u, 8u, 16u}) {
      std::mt19937 random(7), again(7);
      const World world(of_floats(Kind::allreduce, size, 0, 256 << 10), random);
      const World chunked(of_floats(Kind::allreduce, size, 0, 64), again);
      if (!algorithm.applies(world.collective(0))) continue;
      const Bytes expected = outputs(world, algorithm, 0)[0];
      for (uint32_t seed = 1; seed < 8; ++seed) {
        for (const Bytes& each : outputs(seed % 2 ? world : chunked, algorithm, seed)) {
          ASSERT_EQ(each, expected) << algorithm.name << " of " << size;
        }
      }
    }
  }
}

TEST(Repeatable, reduce_gives_any_root_the_same_bits) {
  for (const Algorithm& algorithm : algorithms_of(Kind::reduce)) {
    Bytes expected;
    for (uint32_t root : {0u, 3u, 6u}) {
      std::mt19937 random(7);
      const World world(of_floats(Kind::reduce, 7, root, 64), random);
      if (!algorithm.applies(world.collective(0))) continue;
      // Inputs are drawn in the order of ranks; a root's output behind its input shifts those of later ranks.
      std::vector<Memory> memories = world.memories();
      std::mt19937 values(11);
      for (Memory& memory : memories) {
        for (size_t i = 0; i < memory[Where::input].size(); i += 4) {
          const float value = 1.0f / static_cast<float>(values() % 1000 + 1);
          std::memcpy(&memory[Where::input][i], &value, 4);
        }
      }
      ASSERT_EQ(simulate(world.write(algorithm), memories, Operation::add_floats, Eager::some, values), "");
      if (expected.empty()) expected = memories[root][Where::output];
      EXPECT_EQ(memories[root][Where::output], expected) << algorithm.name << " to " << root;
    }
  }
}

TEST(Simulator, finds_what_is_wrong) {
  const Part a{Where::scratch, 0, 8}, b{Where::scratch, 8, 8};
  std::mt19937 random(1);
  std::vector<Schedule> crossed(2);
  for (uint32_t rank : {0u, 1u}) {
    crossed[rank].scratch = 16;
    const uint32_t sent[] = {crossed[rank].send(1 - rank, a)};
    crossed[rank].recv(1 - rank, b, sent);
  }
  std::vector<Memory> memories(2);
  EXPECT_EQ(simulate(crossed, memories, Operation::bytes, Eager::none, random), "deadlock: 0.0 1.0");
  std::vector<Schedule> longer(2);
  longer[0].scratch = longer[1].scratch = 16;
  longer[0].send(1, a);
  longer[1].recv(0, {Where::scratch, 0, 16});
  EXPECT_EQ(simulate(longer, memories, Operation::bytes, Eager::none, random), "a message of another length from 0 to 1");
  Schedule race;
  race.recv(1, a);
  race.copy(b, a);
  EXPECT_EQ(check_overlaps(race), "steps 0 and 1 overlap");
  longer[1].copy(a, {Where::scratch, 4, 8});
  EXPECT_EQ(check_steps(longer[1], 1, 2, memories[1]), "rank 1, step 1: overlaps itself");
}

}  // namespace
}  // namespace thalweg::impl::test
