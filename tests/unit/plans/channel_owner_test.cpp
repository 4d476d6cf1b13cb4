// SPDX-License-Identifier: Apache-2.0
// Whose runs use a channel's end: one queue's, or those of one plan by the host. Others are busy until the runs are over. Graphs launch
// their plans' runs under the same rule, and none of a plan that is not there any more.
#include "pair.hpp"

namespace thalweg::tests {
namespace {

class ChannelOwners : public Pair {
 protected:
  static constexpr size_t kSize = 1203;
  /// Two plans of each side on one channel, prepared pair by pair.
  struct Plans {
    tw_plan *sends[2], *receives[2];
    unsigned char *from[2], *to[2];
    Bytes data[2];
  };
  Plans make() {
    Plans made;
    for (int i = 0; i < 2; ++i) {
      made.sends[i] = plan(a), made.receives[i] = plan(b);
      made.from[i] = memory(a, kSize), made.to[i] = memory(b, kSize);
      EXPECT_EQ(tw_plan_send(made.sends[i], a.endpoint, made.from[i], kSize, 7, nullptr, nullptr), TW_OK);
      EXPECT_EQ(tw_plan_recv(made.receives[i], b.endpoint, made.to[i], kSize, 7, nullptr, nullptr), TW_OK);
      prepare_both(made.sends[i], made.receives[i]);
      a.store(made.from[i], made.data[i] = random_bytes(kSize));
      b.store(made.to[i], Bytes(kSize, 0xee));
    }
    return made;
  }
  /// The message of a receive that was started by the host.
  void pass(const Plans& all, int i) {
    both([&] { ASSERT_EQ(tw_plan_run(all.sends[i], kLong), TW_OK) << tw_last_error(); },
         [&] { ASSERT_EQ(tw_plan_finish(all.receives[i], kLong), TW_OK) << tw_last_error(); });
    EXPECT_TRUE(b.load(all.to[i], kSize) == all.data[i]);
  }
};
INSTANTIATE_TEST_SUITE_P(Ways, ChannelOwners, testing::ValuesIn(kWays), [](const auto& info) { return info.param.name; });

TEST_P(ChannelOwners, RunsByTheHostTakeTurns) {
  const Plans all = make();
  for (int turn = 0; turn < 4; ++turn) {
    const int first = turn % 2, second = 1 - first;
    ASSERT_EQ(tw_plan_trigger(all.receives[first], nullptr), TW_OK) << tw_last_error();
    EXPECT_EQ(tw_plan_trigger(all.receives[second], nullptr), TW_ERR_BUSY);
    pass(all, first);
    ASSERT_EQ(tw_plan_trigger(all.receives[second], nullptr), TW_OK) << tw_last_error();
    pass(all, second);
  }
}

TEST_P(ChannelOwners, TheHostAndAQueueTakeTurns) {
  const Plans all = make();
  tw_queue *on = queue(b), *other = queue(b);
  ASSERT_EQ(tw_plan_trigger(all.receives[0], nullptr), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_plan_trigger(all.receives[1], on), TW_ERR_BUSY);
  pass(all, 0);
  ASSERT_EQ(tw_plan_trigger(all.receives[1], on), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_plan_trigger(all.receives[0], nullptr), TW_ERR_BUSY);
  EXPECT_EQ(tw_plan_trigger(all.receives[0], other), TW_ERR_BUSY);
  ASSERT_EQ(tw_plan_trigger(all.receives[0], on), TW_OK) << tw_last_error();
  for (const int i : {1, 0}) ASSERT_EQ(tw_plan_run(all.sends[i], kLong), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_queue_synchronize(on), TW_OK) << tw_last_error();
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(b.load(all.to[i], kSize) == all.data[i]);
}

TEST_P(ChannelOwners, AGraphAsksLikeATrigger) {
  const Plans all = make();
  tw_queue* on = queue(b);
  tw_graph* graph = nullptr;
  ASSERT_EQ(tw_queue_begin_capture(on), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_plan_trigger(all.receives[1], on), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_queue_end_capture(on, &graph), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_plan_trigger(all.receives[0], nullptr), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_graph_launch(graph, on), TW_ERR_BUSY);
  pass(all, 0);
  ASSERT_EQ(tw_graph_launch(graph, on), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_plan_trigger(all.receives[0], nullptr), TW_ERR_BUSY);
  ASSERT_EQ(tw_plan_run(all.sends[1], kLong), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_queue_synchronize(on), TW_OK) << tw_last_error();
  EXPECT_TRUE(b.load(all.to[1], kSize) == all.data[1]);
  tw_graph_destroy(graph);
}

/// The run of a queue that wraps a stream goes on when the wrapper has gone.
TEST_P(ChannelOwners, AQueueThatIsGoneHasLeftItsRuns) {
  if (std::strcmp(GetParam().place, "host") == 0) return;  // it has no streams
  const Plans all = make();
  tw_queue *stream = queue(b), *other = queue(b), *wrapper = nullptr;
  ASSERT_EQ(tw_queue_wrap(b.context, tw_queue_native(stream), GetParam().place, nullptr, &wrapper), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_plan_trigger(all.receives[0], wrapper), TW_OK) << tw_last_error();
  tw_queue_destroy(wrapper);
  EXPECT_EQ(tw_plan_trigger(all.receives[1], other), TW_ERR_BUSY);
  ASSERT_EQ(tw_plan_run(all.sends[0], kLong), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_queue_synchronize(stream), TW_OK) << tw_last_error();
  EXPECT_TRUE(b.load(all.to[0], kSize) == all.data[0]);
}

TEST_P(ChannelOwners, AGraphOfAPlanThatWasPreparedAgainOrDestroyedIsStale) {
  tw_plan *sends = plan(a), *receives = plan(b), *copies = nullptr;
  tw_queue* on = queue(a);
  unsigned char *from = memory(a, kSize), *to = memory(b, kSize), *copied = memory(a, kSize);
  tw_plan_options options = TW_PLAN_OPTIONS_INIT;
  options.place = GetParam().place;
  ASSERT_EQ(tw_plan_create(a.context, &options, &copies), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_plan_copy(copies, copied, from, kSize, nullptr, nullptr), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_plan_prepare(copies, 0), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_plan_send(sends, a.endpoint, from, kSize, 7, nullptr, nullptr), TW_OK);
  ASSERT_EQ(tw_plan_recv(receives, b.endpoint, to, kSize, 7, nullptr, nullptr), TW_OK);
  prepare_both(sends, receives);
  tw_graph* graphs[2];
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(tw_queue_begin_capture(on), TW_OK) << tw_last_error();
    EXPECT_EQ(tw_queue_begin_capture(on), TW_ERR_BUSY);  // the one that goes on keeps what it counts
    ASSERT_EQ(tw_plan_trigger(i == 0 ? sends : copies, on), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_queue_end_capture(on, &graphs[i]), TW_OK) << tw_last_error();
  }
  prepare_both(sends, receives);
  EXPECT_EQ(tw_plan_destroy(copies), TW_OK) << tw_last_error();
  for (tw_graph* graph : graphs) {
    EXPECT_EQ(tw_graph_launch(graph, on), TW_ERR_STALE);
    EXPECT_NE(std::strstr(tw_last_error(), "capture the graph anew"), nullptr) << tw_last_error();
    tw_graph_destroy(graph);
  }
  a.store(from, random_bytes(kSize));
  both([&] { ASSERT_EQ(tw_plan_run(sends, kLong), TW_OK) << tw_last_error(); },
       [&] { ASSERT_EQ(tw_plan_run(receives, kLong), TW_OK) << tw_last_error(); });
  EXPECT_TRUE(b.load(to, kSize) == a.load(from, kSize));
}

/// Its runs would be the other graph's, of whose plans nothing is known.
TEST_P(ChannelOwners, AGraphIsNoPartOfAnotherOne) {
  const Plans all = make();
  tw_queue* on = queue(b);
  tw_graph *graph = nullptr, *outer = nullptr;
  ASSERT_EQ(tw_queue_begin_capture(on), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_plan_trigger(all.receives[0], on), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_queue_end_capture(on, &graph), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_queue_begin_capture(on), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_graph_launch(graph, on), TW_ERR_BUSY);
  EXPECT_NE(std::strstr(tw_last_error(), "tw_queue_end_capture"), nullptr) << tw_last_error();
  ASSERT_EQ(tw_queue_end_capture(on, &outer), TW_OK) << tw_last_error();
  // Nothing of it was captured or counted: the plan is idle, and the channel is anyone's.
  EXPECT_EQ(tw_graph_launch(outer, on), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_queue_synchronize(on), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_plan_trigger(all.receives[0], nullptr), TW_OK) << tw_last_error();
  pass(all, 0);
  prepare_both(all.sends[0], all.receives[0]);
  for (tw_graph* one : {graph, outer}) tw_graph_destroy(one);
}

}  // namespace
}  // namespace thalweg::tests
