// SPDX-License-Identifier: Apache-2.0
// Plans, queues and graphs of a rank in tests of collectives; each ends with its object.
#pragma once
#include <cstdlib>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "planned_jobs.hpp"

namespace thalweg::test {

inline constexpr uint64_t kLong = 60 * kSecond;

inline uint64_t fresh_seed() { return std::random_device{}() % 1'000'000; }

/// Devices by turns: emulated ones, or those that THALWEG_TEST_PLACES names ("cuda:0 cuda:1").
inline std::string place_of(const GroupRank& rank, bool device) {
  if (!device) return "host";
  const char* const given = std::getenv("THALWEG_TEST_PLACES");
  std::istringstream names(given != nullptr ? given : "emulated:0 emulated:1");
  std::vector<std::string> places{std::istream_iterator<std::string>(names), {}};
  return places[rank.rank.number % places.size()];
}

/// A plan of the rank's, which ends with it.
class OwnPlan {
 public:
  OwnPlan(GroupRank& rank, const std::string& place, uint64_t timeout_ns = kLong) {
    tw_plan_options options = TW_PLAN_OPTIONS_INIT;
    options.place = place.c_str();
    options.timeout_ns = timeout_ns;
    EXPECT_EQ(tw_plan_create(rank.rank.context.get(), &options, &plan_), TW_OK) << tw_last_error();
  }
  ~OwnPlan() { EXPECT_EQ(tw_plan_destroy(plan_), TW_OK) << tw_last_error(); }
  OwnPlan(const OwnPlan&) = delete;
  OwnPlan& operator=(const OwnPlan&) = delete;
  operator tw_plan*() const { return plan_; }
  Target target() const {
    Target target;
    target.plan = plan_;
    return target;
  }
  void prepare() { ASSERT_EQ(tw_plan_prepare(plan_, kLong), TW_OK) << tw_last_error(); }
  std::string explain() const {
    size_t size = 0;
    EXPECT_EQ(tw_plan_explain(plan_, nullptr, &size), TW_OK);
    std::string text(size, '\0');
    EXPECT_EQ(tw_plan_explain(plan_, text.data(), &size), TW_OK);
    return text;
  }

 private:
  tw_plan* plan_ = nullptr;
};

class OwnQueue {
 public:
  OwnQueue(GroupRank& rank, const std::string& place) {
    EXPECT_EQ(tw_queue_create(rank.rank.context.get(), place.c_str(), nullptr, &queue_), TW_OK) << tw_last_error();
  }
  ~OwnQueue() { tw_queue_destroy(queue_); }
  OwnQueue(const OwnQueue&) = delete;
  OwnQueue& operator=(const OwnQueue&) = delete;
  operator tw_queue*() const { return queue_; }
  Target target() const {
    Target target;
    target.queue = queue_;
    return target;
  }
  void synchronize() { EXPECT_EQ(tw_queue_synchronize(queue_), TW_OK) << tw_last_error(); }

 private:
  tw_queue* queue_ = nullptr;
};

class OwnGraph {
 public:
  template <class Enqueue>
  OwnGraph(tw_queue* queue, Enqueue enqueue) {
    EXPECT_EQ(tw_queue_begin_capture(queue), TW_OK) << tw_last_error();
    enqueue();
    EXPECT_EQ(tw_queue_end_capture(queue, &graph_), TW_OK) << tw_last_error();
  }
  ~OwnGraph() { tw_graph_destroy(graph_); }
  OwnGraph(const OwnGraph&) = delete;
  OwnGraph& operator=(const OwnGraph&) = delete;
  operator tw_graph*() const { return graph_; }

 private:
  tw_graph* graph_ = nullptr;
};

}  // namespace thalweg::test
