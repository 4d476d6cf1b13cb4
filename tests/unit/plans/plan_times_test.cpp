// SPDX-License-Identifier: Apache-2.0
// What runs of plans tell the timeline: each step of each run once, within its run and behind what it comes after, whoever runs it and
// however it was started; and what is overwritten before it is read is counted as dropped.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "../trace/timeline_file.hpp"
#include "pair.hpp"
#include "trace/trace.hpp"

namespace thalweg::tests {
namespace {

/// An interval of a plan's line, in the order of their ends.
struct Interval {
  std::string name;
  uint64_t begin, end;
};

class PlanTimes : public Pair {
 protected:
  void SetUp() override {
    Pair::SetUp();
    path_ = (std::filesystem::temp_directory_path() / ("thalweg_times_" + std::to_string(getpid()))).string();
    ASSERT_EQ(impl::trace::start(path_, this), TW_OK) << tw_last_error();
  }
  void TearDown() override {
    if (impl::trace::on()) (void)impl::trace::stop(this);
    std::filesystem::remove(path_);
    Pair::TearDown();
  }
  /// What was recorded, by line of a plan. Ends the timeline.
  std::map<std::string, std::vector<Interval>> recorded() {
    EXPECT_EQ(impl::trace::stop(this), TW_OK) << tw_last_error();
    const TimelineFile file(path_);
    std::map<std::string, std::vector<Interval>> all;
    std::map<uint64_t, std::vector<Interval>> open;
    for (const Seen& one : file.events) {
      const std::string& line = file.tracks.at(one.track);
      if (line.find(", plan ") == std::string::npos) continue;
      std::vector<Interval>& within = open[one.track];
      if (one.type == 1) within.push_back({one.name, one.ns, 0});
      if (one.type != 2) continue;
      EXPECT_FALSE(within.empty());
      if (within.empty()) continue;
      within.back().end = one.ns;
      all[line].push_back(within.back());
      within.pop_back();
    }
    for (const auto& [track, left] : open) EXPECT_TRUE(left.empty());
    return all;
  }
  /// One line's runs, each with its steps ahead of it.
  static void expect_runs(const std::vector<Interval>& all, unsigned runs, std::vector<std::string> steps) {
    ASSERT_EQ(all.size(), runs * (steps.size() + 1));
    std::sort(steps.begin(), steps.end());
    uint64_t before = 0;
    for (unsigned run = 0; run < runs; ++run) {
      const Interval* const first = &all[run * (steps.size() + 1)];
      const Interval& whole = first[steps.size()];
      EXPECT_EQ(whole.name, "run");
      EXPECT_LE(before, whole.begin) << "a run begins before the last one has ended";
      before = whole.end;
      std::vector<std::string> names;
      for (size_t i = 0; i < steps.size(); ++i) {
        names.push_back(first[i].name);
        EXPECT_LE(whole.begin, first[i].begin) << first[i].name;
        EXPECT_LE(first[i].end, whole.end) << first[i].name;
      }
      std::sort(names.begin(), names.end());
      EXPECT_EQ(names, steps);
    }
  }
  static const Interval& find(const Interval* among, size_t n, const char* name) {
    return *std::find_if(among, among + n, [&](const Interval& one) { return one.name == name; });
  }
  std::string path_;
};
INSTANTIATE_TEST_SUITE_P(Ways, PlanTimes, testing::Values(kWays[0], kWays[1]),
                         [](const auto& info) { return info.param.name; });

/// On `run` of the two plans at once.
template <class Run>
void rounds(unsigned n, const Run& run) {
  for (unsigned i = 0; i < n; ++i) run();
}

TEST_P(PlanTimes, EachStepOfEachRunOnce) {
  constexpr unsigned kRounds = 7;
  // For 8 bytes a host's plan takes messages, which have no such steps.
  const size_t sizes[] = {GetParam().place == std::string("host") ? 67u : 8u, 4097, 900'001};
  for (const size_t size : sizes) {
    SCOPED_TRACE(size);
    unsigned char *from = memory(a, size), *to = memory(b, size), *last = memory(b, size);
    tw_plan *sends = plan(a), *receives = plan(b);
    ASSERT_EQ(tw_plan_send(sends, a.endpoint, from, size, size, nullptr, nullptr), TW_OK) << tw_last_error();
    tw_op_options options = TW_OP_OPTIONS_INIT;
    uint32_t received = 0;
    ASSERT_EQ(tw_plan_recv(receives, b.endpoint, to, size, size, nullptr, &received), TW_OK) << tw_last_error();
    options.after_steps = &received;
    options.after_count = 1;
    ASSERT_EQ(tw_plan_copy(receives, last, to, size, &options, nullptr), TW_OK) << tw_last_error();
    prepare_both(sends, receives);
    const Bytes data = random_bytes(size);
    a.store(from, data);
    tw_queue *qa = queue(a), *qb = queue(b);
    rounds(kRounds, [&] {
      ASSERT_EQ(tw_plan_trigger(receives, qb), TW_OK) << tw_last_error();
      ASSERT_EQ(tw_plan_trigger(sends, qa), TW_OK) << tw_last_error();
      ASSERT_EQ(tw_queue_synchronize(qb), TW_OK) << tw_last_error();
      ASSERT_EQ(tw_queue_synchronize(qa), TW_OK) << tw_last_error();
    });
    rounds(kRounds, [&] {
      both([&] { ASSERT_EQ(tw_plan_run(sends, kLong), TW_OK) << tw_last_error(); },
           [&] { ASSERT_EQ(tw_plan_run(receives, kLong), TW_OK) << tw_last_error(); });
    });
    EXPECT_TRUE(b.load(last, size) == data);
  }
  const auto all = recorded();
  ASSERT_EQ(all.size(), 2 * std::size(sizes));
  for (const auto& [line, intervals] : all) {
    SCOPED_TRACE(line);
    const bool sends = std::any_of(intervals.begin(), intervals.end(), [](const Interval& one) { return one.name == "send"; });
    expect_runs(intervals, 2 * kRounds,
                sends ? std::vector<std::string>{"send"} : std::vector<std::string>{"post", "take", "copy"});
    for (size_t i = 0; !sends && i + 3 < intervals.size(); i += 4)
      EXPECT_LE(find(&intervals[i], 3, "take").end, find(&intervals[i], 3, "copy").end) << "copied before it had arrived";
  }
}

TEST_P(PlanTimes, ReplaysOfGraphsAndUpdatesGoOn) {
  constexpr size_t kSize = 5003;
  unsigned char *from = memory(a, kSize), *other = memory(a, kSize), *to = memory(a, kSize);
  tw_plan* copies = plan(a);
  ASSERT_EQ(tw_plan_copy(copies, to, from, kSize, nullptr, nullptr), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_plan_prepare(copies, kLong), TW_OK) << tw_last_error();
  tw_queue* q = queue(a);
  const auto trigger = [&] {
    ASSERT_EQ(tw_plan_trigger(copies, q), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_queue_synchronize(q), TW_OK) << tw_last_error();
  };
  trigger();
  if (std::string(GetParam().place) != "host") {
    tw_graph* graph = nullptr;
    ASSERT_EQ(tw_queue_begin_capture(q), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_plan_trigger(copies, q), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_queue_end_capture(q, &graph), TW_OK) << tw_last_error();
    rounds(3, [&] { ASSERT_EQ(tw_graph_launch(graph, q), TW_OK) << tw_last_error(); });
    ASSERT_EQ(tw_queue_synchronize(q), TW_OK) << tw_last_error();
    tw_graph_destroy(graph);
  } else {
    rounds(3, trigger);
  }
  ASSERT_EQ(tw_plan_update(copies, 0, other, nullptr), TW_OK) << tw_last_error();
  rounds(2, trigger);
  const auto all = recorded();
  ASSERT_EQ(all.size(), 1u);
  expect_runs(all.begin()->second, 6, {"copy"});
}

TEST_P(PlanTimes, WhatIsOverwrittenIsCounted) {
  constexpr unsigned kRuns = 30'000;  // some thousands while the timeline's thread sleeps
  tw_plan* copies = plan(a);
  unsigned char *from = memory(a, 8), *to = memory(a, 8);
  ASSERT_EQ(tw_plan_copy(copies, to, from, 8, nullptr, nullptr), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_plan_prepare(copies, kLong), TW_OK) << tw_last_error();
  const uint64_t dropped = impl::trace::recorded().dropped;
  tw_queue* q = queue(a);
  rounds(kRuns, [&] { ASSERT_EQ(tw_plan_trigger(copies, q), TW_OK) << tw_last_error(); });
  ASSERT_EQ(tw_queue_synchronize(q), TW_OK) << tw_last_error();
  const auto all = recorded();
  ASSERT_EQ(all.size(), 1u);
  // Rings of threads, which note the triggers, may be full as well; a run that was overwritten while it was read lacks its step.
  const uint64_t kept = all.begin()->second.size(), lost = impl::trace::recorded().dropped - dropped;
  EXPECT_GT(kept, 2u * 2048 - 2);
  EXPECT_GE(kept + lost, 2u * kRuns);
}

TEST_P(PlanTimes, OneTimelineHasNothingOfTheLast) {
  tw_plan* copies = plan(a);
  unsigned char *from = memory(a, 64), *to = memory(a, 64);
  ASSERT_EQ(tw_plan_copy(copies, to, from, 64, nullptr, nullptr), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_plan_prepare(copies, kLong), TW_OK) << tw_last_error();
  tw_queue* q = queue(a);
  const auto trigger = [&] {
    ASSERT_EQ(tw_plan_trigger(copies, q), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_queue_synchronize(q), TW_OK) << tw_last_error();
  };
  rounds(2, trigger);
  const auto first = recorded();
  ASSERT_EQ(first.size(), 1u);
  expect_runs(first.begin()->second, 2, {"copy"});
  rounds(5, trigger);
  ASSERT_EQ(impl::trace::start(path_, this), TW_OK) << tw_last_error();
  rounds(3, trigger);
  const auto second = recorded();
  ASSERT_EQ(second.size(), 1u);
  expect_runs(second.begin()->second, 3, {"copy"});
}

TEST_P(PlanTimes, NothingIsKeptWithoutATimeline) {
  ASSERT_EQ(impl::trace::stop(this), TW_OK);
  tw_plan* copies = plan(a);
  unsigned char *from = memory(a, 64), *to = memory(a, 64);
  ASSERT_EQ(tw_plan_copy(copies, to, from, 64, nullptr, nullptr), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_plan_prepare(copies, kLong), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_plan_run(copies, kLong), TW_OK) << tw_last_error();
  ASSERT_EQ(impl::trace::start(path_, this), TW_OK) << tw_last_error();
  EXPECT_TRUE(recorded().empty());
}

}  // namespace
}  // namespace thalweg::tests
