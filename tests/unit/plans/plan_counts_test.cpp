// SPDX-License-Identifier: Apache-2.0
// Steps of plans in the counters of ways: by each run that the host starts, under the name that tw_plan_explain says.
#include <gtest/gtest.h>

#include <atomic>

#include "../../fixtures/rooms.hpp"
#include "unit/plans/pair.hpp"

namespace thalweg::tests {
namespace {

constexpr size_t kLength = 3'001;

class PlanCounts : public Pair {
 protected:
  struct Count {
    unsigned long long operations = 0, bytes = 0;
    bool operator==(const Count&) const = default;
    friend std::ostream& operator<<(std::ostream& out, const Count& one) {
      return out << one.operations << " operations, " << one.bytes << " bytes";
    }
  };
  static Count count(tw_context* context, const char* way) {
    char text[1 << 16];
    size_t size = sizeof text;
    EXPECT_EQ(tw_context_counters(context, text, &size), TW_OK);
    const char* const at = std::strstr(text, (std::string("\"") + way + "\": {").c_str());
    Count found;
    EXPECT_EQ(
        std::sscanf(at + std::strlen(way) + 2, ": {\"operations\": %llu, \"bytes\": %llu", &found.operations, &found.bytes), 2);
    return found;
  }
  const char* way(bool reads) const { return std::strcmp(GetParam().place, "host") == 0 ? "mapped" : reads ? "pull" : "push"; }
};
INSTANTIATE_TEST_SUITE_P(Mapped, PlanCounts, testing::Values(kWays[0], kWays[1]),
                         [](const auto& info) { return info.param.name; });
TEST_P(PlanCounts, EachRunThatTheHostStarts) {
  tw_memory* memory = nullptr;
  this->memory(b, kLength, &memory);
  unsigned char key[kKeyRoom];
  size_t size = sizeof key;
  tw_remote_memory* remote = nullptr;
  ASSERT_EQ(tw_memory_export(memory, key, &size), TW_OK);
  ASSERT_EQ(tw_memory_import(a.endpoint, key, size, &remote), TW_OK) << tw_last_error();
  a.last.emplace_back([remote] { tw_remote_memory_release(remote); });
  unsigned char* const mine = this->memory(a, 3 * kLength);
  tw_plan* const steps = plan(a);
  for (const unsigned i : {0u, 1u}) {
    ASSERT_EQ(tw_plan_put(steps, a.endpoint, mine + i * kLength, kLength - i, remote, 0, nullptr, nullptr), TW_OK);
  }
  ASSERT_EQ(tw_plan_get(steps, a.endpoint, mine + 2 * kLength, kLength, remote, 0, nullptr, nullptr), TW_OK);
  ASSERT_EQ(tw_plan_copy(steps, mine + kLength, mine, 7, nullptr, nullptr), TW_OK);  // goes nowhere
  tw_queue* const qa = queue(a);
  std::atomic<bool> stop{false};
  std::thread progress([&] {
    while (!stop) tw_worker_progress(b.worker);
  });
  EXPECT_EQ(tw_plan_prepare(steps, kLong), TW_OK) << tw_last_error();
  stop = true;
  progress.join();
  EXPECT_NE(explain(steps).find(std::string("mapped, way: ") + way(false)), std::string::npos) << explain(steps);
  const Count before = count(a.context, way(false)), read_before = count(a.context, way(true));
  EXPECT_EQ(tw_plan_run(steps, kLong), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_plan_trigger(steps, qa), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_queue_synchronize(qa), TW_OK) << tw_last_error();
  Count puts{2 * 2, 2 * (2 * kLength - 1)}, gets{2, 2 * kLength};
  if (std::strcmp(way(true), way(false)) == 0) puts = gets = {puts.operations + gets.operations, puts.bytes + gets.bytes};
  const auto more = [&](bool reads, const Count& since) {
    const Count now = count(a.context, way(reads));
    return Count{now.operations - since.operations, now.bytes - since.bytes};
  };
  EXPECT_EQ(more(false, before), puts);
  EXPECT_EQ(more(true, read_before), gets);
  // A graph is started by others than the host.
  tw_graph* graph = nullptr;
  ASSERT_EQ(tw_queue_begin_capture(qa), TW_OK);
  ASSERT_EQ(tw_plan_trigger(steps, qa), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_queue_end_capture(qa, &graph), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_graph_launch(graph, qa), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_queue_synchronize(qa), TW_OK) << tw_last_error();
  tw_graph_destroy(graph);
  EXPECT_EQ(more(false, before), puts);
}

/// A message counts at its sender; what its plan has counted stays when it is gone.
TEST_P(PlanCounts, AChannelsMessagesOnceAndForGood) {
  unsigned char *const from = memory(a, kLength), *const to = memory(b, kLength);
  tw_plan *sends = nullptr, *receives = plan(b);
  tw_plan_options options = TW_PLAN_OPTIONS_INIT;
  options.place = GetParam().place;
  ASSERT_EQ(tw_plan_create(a.context, &options, &sends), TW_OK);
  ASSERT_EQ(tw_plan_send(sends, a.endpoint, from, kLength, 3, nullptr, nullptr), TW_OK);
  ASSERT_EQ(tw_plan_recv(receives, b.endpoint, to, kLength, 3, nullptr, nullptr), TW_OK);
  prepare_both(sends, receives);
  const Count of_a = count(a.context, way(false)), of_b = count(b.context, way(false));
  for (int i = 0; i < 3; ++i) {
    both([&] { ASSERT_EQ(tw_plan_run(sends, kLong), TW_OK) << tw_last_error(); },
         [&] { ASSERT_EQ(tw_plan_run(receives, kLong), TW_OK) << tw_last_error(); });
  }
  ASSERT_EQ(tw_plan_destroy(sends), TW_OK) << tw_last_error();
  EXPECT_EQ(count(a.context, way(false)).operations, of_a.operations + 3);
  EXPECT_EQ(count(a.context, way(false)).bytes, of_a.bytes + 3 * kLength);
  EXPECT_EQ(count(b.context, way(false)), of_b);
}

}  // namespace
}  // namespace thalweg::tests
