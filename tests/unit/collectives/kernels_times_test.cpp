// SPDX-License-Identifier: Apache-2.0
// What kernels of collectives tell the timeline: each run once, on each rank's line, one after the other, with its name and bytes; of queues,
// graphs and plans alike, by whatever protocol.
#include <unistd.h>

#include <filesystem>
#include <map>

#include "../trace/timeline_file.hpp"
#include "own_queue.hpp"
#include "planned_jobs.hpp"
#include "trace/trace.hpp"

namespace thalweg::test {
namespace {

using tests::Seen;
using tests::TimelineFile;

struct KernelRun {
  std::string name;
  uint64_t begin, end, bytes;
};
using Line = std::vector<KernelRun>;

class KernelsTimes : public testing::TestWithParam<uint32_t> {
 protected:
  void SetUp() override {
    path_ = (std::filesystem::temp_directory_path() / ("thalweg_kernels_" + std::to_string(getpid()))).string();
    ASSERT_EQ(impl::trace::start(path_, this), TW_OK) << tw_last_error();
  }
  void TearDown() override {
    if (impl::trace::on()) (void)impl::trace::stop(this);
    std::filesystem::remove(path_);
  }
  /// By line of a group's kernels; those that measured it are left out. Ends the timeline.
  std::map<std::string, Line> recorded() {
    EXPECT_EQ(impl::trace::stop(this), TW_OK) << tw_last_error();
    std::map<std::string, Line> all;
    const TimelineFile file(path_);
    EXPECT_EQ(file.count("dropped"), 0u);
    std::map<uint64_t, Seen> open;
    for (const Seen& one : file.events) {
      const std::string& line = file.tracks.at(one.track);
      if (line.find(", collectives ") == std::string::npos) continue;
      const bool begins = one.type == 1;
      EXPECT_EQ(open.contains(one.track), !begins) << "a kernel of " << line << " began before the one ahead had ended";
      if (begins) open[one.track] = one;
      if (begins || !open.contains(one.track)) continue;
      const Seen first = open[one.track];
      open.erase(one.track);
      EXPECT_LE(first.ns, one.ns);
      if (first.name.find("measuring") == std::string::npos) all[line].push_back({first.name, first.ns, one.ns, first.bytes});
    }
    EXPECT_TRUE(open.empty());
    return all;
  }
  std::string path_;
};
INSTANTIATE_TEST_SUITE_P(Ranks, KernelsTimes, testing::Values(2, 3));

/// Random types and roots, verified; called once, then captured with others and replayed.
constexpr unsigned kReplays = 3;
void call_and_replay(GroupRank& rank, const char* algorithm, size_t count, bool in_windows, uint64_t seed) {
  const std::string place = place_of(rank, true);
  OwnQueue queue(rank, place);
  JobCase c;
  c.count = count;
  c.place = place.c_str();
  c.windows = in_windows ? static_cast<tw_queue*>(queue) : nullptr;
  Jobs jobs(rank, c);
  jobs.add_allreduce();
  jobs.add_broadcast();
  Target target = queue.target();
  target.options.algorithm = algorithm;
  const auto round = [&](uint64_t number, const auto& run) {
    jobs.fill(seed + number);
    rank.rank.barrier();
    run();
    queue.synchronize();
    ASSERT_EQ(tw_queue_check(queue), TW_OK) << tw_last_error();
    jobs.check(seed + number);
    rank.rank.barrier();
  };
  round(0, [&] { jobs.call(target); });
  OwnGraph graph(queue, [&] { jobs.call(target); });
  for (uint64_t number = 1; number <= kReplays; ++number)
    round(number, [&] { ASSERT_EQ(tw_graph_launch(graph, queue), TW_OK) << tw_last_error(); });
}

TEST_P(KernelsTimes, EachRunOfEachProtocolOnce) {
  struct Way {
    const char *algorithm, *allreduce, *broadcast;
    size_t count;
    bool in_windows;
  };
  const bool two = GetParam() == 2;  // where slices make no sense for a broadcast
  const Way ways[] = {
      {"ll", "allreduce, LL", "broadcast, LL", 3, false},      // a word for each thread
      {"ll", "allreduce, LL", "broadcast, LL", 1'999, false},  // several
      {"ll128", "allreduce, LL128 in two phases", two ? "broadcast, LL128" : "broadcast, LL128 in two phases", 2'001, false},
      {"simple", "allreduce, Simple in two phases", "broadcast, Simple", 40'001, false},
      {"symmetric", "allreduce, symmetric in two phases", two ? "broadcast, symmetric" : "broadcast, symmetric in two phases",
       4'099, true},
  };
  const uint64_t seed = fresh_seed();
  run_group(GetParam(), [&](GroupRank& rank) {
    for (const Way& way : ways) call_and_replay(rank, way.algorithm, way.count, way.in_windows, seed);
  });
  const auto all = recorded();
  ASSERT_EQ(all.size(), GetParam());
  for (const auto& [line, runs] : all) {
    SCOPED_TRACE(line);
    ASSERT_EQ(runs.size(), std::size(ways) * 2 * (1 + kReplays));
    size_t next = 0;
    for (const Way& way : ways) {
      for (unsigned round = 0; round <= kReplays; ++round) {
        for (const char* const name : {way.allreduce, way.broadcast}) {
          EXPECT_EQ(runs[next].name, name);
          EXPECT_EQ(runs[next++].bytes, way.count * sizeof(float));
        }
      }
    }
  }
}

/// Of a plan with other steps, started in all three ways; those have a line of their own.
TEST_P(KernelsTimes, WithinPlans) {
  constexpr size_t kCount = 2'001;
  run_group(GetParam(), [&](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    OwnQueue queue(rank, place);
    OwnPlan plan(rank, place);
    Room input(rank.rank.context, place.c_str(), kCount * 8), sum(rank.rank.context, place.c_str(), kCount * 8);
    uint32_t copied = 0;
    ASSERT_EQ(tw_plan_copy(plan, sum.data(), input.data(), kCount * 8, nullptr, &copied), TW_OK) << tw_last_error();
    tw_collective_options options = TW_COLLECTIVE_OPTIONS_INIT;
    options.algorithm = "simple";
    options.after_steps = &copied;
    options.after_count = 1;
    ASSERT_EQ(
        tw_plan_allreduce(plan, rank.group, TW_IN_PLACE, sum.data(), kCount, TW_TYPE_INT64, TW_REDUCE_SUM, &options, nullptr),
        TW_OK)
        << tw_last_error();
    plan.prepare();
    std::vector<int64_t> values(kCount), sums(kCount);
    std::mt19937_64 random(fresh_seed());
    for (int64_t& value : values) value = static_cast<int64_t>(random() % 1'000'000);
    const auto bytes_of = [](const std::vector<int64_t>& of) {
      return std::string(reinterpret_cast<const char*>(of.data()), of.size() * 8);
    };
    input.store(bytes_of(values));
    ASSERT_EQ(tw_allreduce(rank.group, values.data(), sums.data(), kCount, TW_TYPE_INT64, TW_REDUCE_SUM, nullptr, nullptr),
              TW_OK)
        << tw_last_error();
    const auto round = [&](const auto& run) {
      rank.rank.barrier();
      run();
      queue.synchronize();
      ASSERT_EQ(tw_queue_check(queue), TW_OK) << tw_last_error();
      EXPECT_TRUE(sum.load() == bytes_of(sums));
    };
    round([&] { ASSERT_EQ(tw_plan_trigger(plan, queue), TW_OK) << tw_last_error(); });
    round([&] { ASSERT_EQ(tw_plan_run(plan, kLong), TW_OK) << tw_last_error(); });
    {
      OwnGraph graph(queue, [&] { ASSERT_EQ(tw_plan_trigger(plan, queue), TW_OK) << tw_last_error(); });
      round([&] { ASSERT_EQ(tw_graph_launch(graph, queue), TW_OK) << tw_last_error(); });
    }
    rank.rank.barrier();
  });
  const auto all = recorded();
  ASSERT_EQ(all.size(), GetParam());
  for (const auto& [line, runs] : all) {
    ASSERT_EQ(runs.size(), 3u) << line;
    for (const KernelRun& run : runs) {
      EXPECT_EQ(run.name, "allreduce, Simple in two phases");
      EXPECT_EQ(run.bytes, kCount * 8);
    }
  }
}

/// Counts that the device reads: how much moves is not known here.
TEST_P(KernelsTimes, OfCountsInDeviceMemory) {
  constexpr uint64_t kRows = 50;
  run_group(GetParam(), [&](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    const uint32_t size = rank.rank.size;
    OwnQueue queue(rank, place);
    Room from(rank.rank.context, place.c_str(), kRows * size), to(rank.rank.context, place.c_str(), kRows * size);
    Room counts(rank.rank.context, place.c_str(), size * 8), found(rank.rank.context, place.c_str(), size * 8);
    std::vector<uint64_t> rows(size, kRows);
    counts.store({reinterpret_cast<const char*>(rows.data()), rows.size() * 8});
    std::string sent;
    for (uint32_t i = 0; i < size; ++i) sent += std::string(kRows, static_cast<char>('a' + 8 * rank.rank.number + i));
    from.store(sent);
    const auto words = [](const Room& room) { return reinterpret_cast<uint64_t*>(room.data()); };
    for (unsigned round = 0; round < 4; ++round) {
      ASSERT_EQ(tw_alltoallv_counted_on(queue, rank.group, from.data(), words(counts), nullptr, kRows * size, to.data(),
                                        words(found), nullptr, kRows * size, 1, nullptr),
                TW_OK)
          << tw_last_error();
    }
    queue.synchronize();
    ASSERT_EQ(tw_queue_check(queue), TW_OK) << tw_last_error();
    std::string wanted;
    for (uint32_t i = 0; i < size; ++i) wanted += std::string(kRows, static_cast<char>('a' + 8 * i + rank.rank.number));
    EXPECT_EQ(to.load(), wanted);
    rank.rank.barrier();
  });
  const auto all = recorded();
  ASSERT_EQ(all.size(), GetParam());
  for (const auto& [line, runs] : all) {
    ASSERT_EQ(runs.size(), 4u) << line;
    for (const KernelRun& run : runs) {
      EXPECT_EQ(run.name, "alltoallv_counted, Simple, counts by device");
      EXPECT_EQ(run.bytes, 0u);
    }
  }
}

}  // namespace
}  // namespace thalweg::test
