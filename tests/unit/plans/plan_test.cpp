// SPDX-License-Identifier: Apache-2.0
// Plans between two contexts: every verb, by every trigger, mapped and carried by the host, again and again.
#include "../../fixtures/rooms.hpp"
#include "pair.hpp"

namespace thalweg::tests {
namespace {

class Plans : public Pair {};
INSTANTIATE_TEST_SUITE_P(Ways, Plans, testing::ValuesIn(kWays), [](const auto& info) { return info.param.name; });

/// Sizes around words, and some that several blocks share.
constexpr size_t kSizes[] = {1, 7, 8, 4097, 65536, 300001};

TEST_P(Plans, ChannelByQueues) {
  tw_queue *qa = queue(a), *qb = queue(b);
  for (const size_t size : kSizes) {
    SCOPED_TRACE(size);
    unsigned char *from = memory(a, size + 3) + 3, *to = memory(b, size + 32) + 16;
    tw_plan *sends = plan(a), *receives = plan(b);
    ASSERT_EQ(tw_plan_send(sends, a.endpoint, from, size, size, nullptr, nullptr), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_plan_recv(receives, b.endpoint, to, size, size, nullptr, nullptr), TW_OK) << tw_last_error();
    both([&] { ASSERT_EQ(tw_plan_prepare(sends, kLong), TW_OK) << tw_last_error(); },
         [&] { ASSERT_EQ(tw_plan_prepare(receives, kLong), TW_OK) << tw_last_error(); });
    const bool by_messages = size < 64 && GetParam().place == std::string("host");
    EXPECT_EQ(explain(sends).find("by the host") == std::string::npos, GetParam().mapped && !by_messages) << explain(sends);
    for (int round = 0; round < 5; ++round) {
      const Bytes data = random_bytes(size), guard = random_bytes(size + 32);
      a.store(from, data);
      b.store(to - 16, guard);
      ASSERT_EQ(tw_plan_trigger(receives, qb), TW_OK) << tw_last_error();
      ASSERT_EQ(tw_plan_trigger(sends, qa), TW_OK) << tw_last_error();
      ASSERT_EQ(tw_queue_synchronize(qb), TW_OK) << tw_last_error();
      ASSERT_EQ(tw_queue_synchronize(qa), TW_OK) << tw_last_error();
      Bytes wanted = guard;
      std::copy(data.begin(), data.end(), wanted.begin() + 16);
      EXPECT_TRUE(b.load(to - 16, size + 32) == wanted);
    }
  }
}

/// What goes through channel 7 and a message with tag 7 never meet, whichever comes first.
TEST_P(Plans, AChannelIsNoTag) {
  constexpr size_t kSize = 701;
  constexpr uint64_t kNumber = 7;
  unsigned char *from = memory(a, kSize), *to = memory(b, kSize);
  tw_plan *sends = plan(a), *receives = plan(b);
  ASSERT_EQ(tw_plan_send(sends, a.endpoint, from, kSize, kNumber, nullptr, nullptr), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_plan_recv(receives, b.endpoint, to, kSize, kNumber, nullptr, nullptr), TW_OK) << tw_last_error();
  prepare_both(sends, receives);
  EXPECT_NE(explain(sends).find("channel 7"), std::string::npos) << explain(sends);
  for (const bool message_first : {true, false}) {
    const Bytes channeled = random_bytes(kSize), tagged = random_bytes(kSize);
    Bytes received(kSize);
    a.store(from, channeled);
    tw_request request = TW_REQUEST_NONE;
    ASSERT_EQ(tw_recv(b.worker, received.data(), kSize, kNumber, UINT64_MAX, nullptr, &request), TW_IN_PROGRESS);
    const auto send = [&] { ASSERT_EQ(tw_send_blocking(a.endpoint, tagged.data(), kSize, kNumber), TW_OK) << tw_last_error(); };
    if (message_first) send();
    both([&] { ASSERT_EQ(tw_plan_run(sends, kLong), TW_OK) << tw_last_error(); },
         [&] { ASSERT_EQ(tw_plan_run(receives, kLong), TW_OK) << tw_last_error(); });
    EXPECT_TRUE(b.load(to, kSize) == channeled);
    if (!message_first) {
      EXPECT_EQ(tw_request_test(request), TW_IN_PROGRESS);
      send();
    }
    ASSERT_EQ(tw_request_finish(request), TW_OK) << tw_last_error();
    EXPECT_TRUE(received == tagged);
  }
}

TEST_P(Plans, ExchangeByTheHost) {
  constexpr size_t kSize = 5003;
  unsigned char* buffers[2][2];
  Side* sides[2] = {&a, &b};
  tw_plan* plans[2];
  for (int i = 0; i < 2; ++i) {
    for (unsigned char*& buffer : buffers[i]) buffer = memory(*sides[i], kSize);
    plans[i] = plan(*sides[i]);
    ASSERT_EQ(tw_plan_recv(plans[i], sides[i]->endpoint, buffers[i][1], kSize, 1, nullptr, nullptr), TW_OK);
    ASSERT_EQ(tw_plan_send(plans[i], sides[i]->endpoint, buffers[i][0], kSize, 1, nullptr, nullptr), TW_OK);
  }
  const auto prepare = [&](int i) { ASSERT_EQ(tw_plan_prepare(plans[i], kLong), TW_OK) << tw_last_error(); };
  both([&] { prepare(0); }, [&] { prepare(1); });
  for (int round = 0; round < 20; ++round) {
    Bytes data[2];
    for (int i = 0; i < 2; ++i) {
      data[i] = random_bytes(kSize);
      sides[i]->store(buffers[i][0], data[i]);
      sides[i]->store(buffers[i][1], Bytes(kSize, 0xee));
    }
    const auto run = [&](int i) {
      if (round % 2 == 0) {
        ASSERT_EQ(tw_plan_run(plans[i], kLong), TW_OK) << tw_last_error();
        return;
      }
      ASSERT_EQ(tw_plan_trigger(plans[i], nullptr), TW_OK) << tw_last_error();
      ASSERT_EQ(tw_plan_finish(plans[i], kLong), TW_OK) << tw_last_error();
    };
    both([&] { run(0); }, [&] { run(1); });
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(sides[i]->load(buffers[i][1], kSize) == data[1 - i]);
  }
}

/// More steps than an executor looks at together; some sends come after others, whatever channel those are of.
TEST_P(Plans, LongOnesKeepTheOrderOfEachChannel) {
  constexpr uint32_t kSteps = 40, kChannels = 3;
  constexpr size_t kEach = 1003;
  std::mt19937 random(std::random_device{}());
  unsigned char *from = memory(a, kSteps * kEach), *to = memory(b, kSteps * kEach);
  tw_plan *sends = plan(a), *receives = plan(b);
  for (uint32_t i = 0; i < kSteps; ++i) {
    const uint64_t tag = random() % kChannels;
    tw_op_options options = TW_OP_OPTIONS_INIT;
    const uint32_t earlier = i == 0 ? 0 : random() % i;
    options.after_steps = &earlier;
    options.after_count = i != 0 && random() % 3 == 0 ? 1 : 0;
    ASSERT_EQ(tw_plan_send(sends, a.endpoint, from + i * kEach, kEach, tag, &options, nullptr), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_plan_recv(receives, b.endpoint, to + i * kEach, kEach, tag, nullptr, nullptr), TW_OK) << tw_last_error();
  }
  both([&] { ASSERT_EQ(tw_plan_prepare(sends, kLong), TW_OK) << tw_last_error(); },
       [&] { ASSERT_EQ(tw_plan_prepare(receives, kLong), TW_OK) << tw_last_error(); });
  tw_queue *qa = queue(a), *qb = queue(b);
  for (int round = 0; round < 5; ++round) {
    const Bytes data = random_bytes(kSteps * kEach);
    a.store(from, data);
    b.store(to, Bytes(data.size(), 0xee));
    ASSERT_EQ(tw_plan_trigger(receives, qb), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_plan_trigger(sends, qa), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_queue_synchronize(qb), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_queue_synchronize(qa), TW_OK) << tw_last_error();
    EXPECT_TRUE(b.load(to, data.size()) == data);
  }
}

TEST_P(Plans, PutWithSignalThenWait) {
  constexpr size_t kSize = 70001;
  Target target;
  make_target(b, a, GetParam().place, kSize, TW_SIGNAL_SET, &target);
  unsigned char* from = memory(a, kSize);
  tw_queue *qa = queue(a), *qb = queue(b);
  tw_plan *puts = plan(a), *waits = plan(b);
  tw_op_options options = TW_OP_OPTIONS_INIT;
  options.signal = target.remote_signal;
  options.signal_value = 1;
  options.increment = 1;
  ASSERT_EQ(tw_plan_put(puts, a.endpoint, from, kSize, target.remote, 0, &options, nullptr), TW_OK) << tw_last_error();
  tw_op_options later = TW_OP_OPTIONS_INIT;
  later.increment = 1;
  ASSERT_EQ(tw_plan_wait(waits, target.signal, 1, TW_COMPARE_GE, &later, nullptr), TW_OK) << tw_last_error();
  std::atomic<bool> stop{false};
  std::thread progress([&] {  // b's worker serves a's imports, and frames over tcp
    while (!stop) tw_worker_progress(b.worker);
  });
  ASSERT_EQ(tw_plan_prepare(puts, kLong), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_plan_prepare(waits, kLong), TW_OK) << tw_last_error();
  for (int round = 0; round < 10; ++round) {
    const Bytes data = random_bytes(kSize);
    a.store(from, data);
    ASSERT_EQ(tw_plan_trigger(waits, qb), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_plan_trigger(puts, qa), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_queue_synchronize(qb), TW_OK) << tw_last_error();
    EXPECT_TRUE(b.load(target.address, kSize) == data);
    ASSERT_EQ(tw_queue_synchronize(qa), TW_OK) << tw_last_error();
  }
  EXPECT_EQ(tw_signal_read(target.signal), 10u);
  stop = true;
  progress.join();
}

TEST_P(Plans, GraphReplays) {
  constexpr size_t kSize = 3001;
  unsigned char *from = memory(a, kSize), *to = memory(b, kSize);
  tw_queue *qa = queue(a), *qb = queue(b);
  tw_plan *sends = plan(a), *receives = plan(b);
  ASSERT_EQ(tw_plan_send(sends, a.endpoint, from, kSize, 3, nullptr, nullptr), TW_OK);
  ASSERT_EQ(tw_plan_recv(receives, b.endpoint, to, kSize, 3, nullptr, nullptr), TW_OK);
  both([&] { ASSERT_EQ(tw_plan_prepare(sends, kLong), TW_OK) << tw_last_error(); },
       [&] { ASSERT_EQ(tw_plan_prepare(receives, kLong), TW_OK) << tw_last_error(); });
  tw_graph *ga = nullptr, *gb = nullptr;
  for (auto [queue, what, graph] : {std::tuple{qa, sends, &ga}, std::tuple{qb, receives, &gb}}) {
    ASSERT_EQ(tw_queue_begin_capture(queue), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_plan_trigger(what, queue), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_queue_end_capture(queue, graph), TW_OK) << tw_last_error();
  }
  for (int round = 0; round < 20; ++round) {
    const Bytes data = random_bytes(kSize);
    a.store(from, data);
    ASSERT_EQ(tw_graph_launch(ga, qa), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_graph_launch(gb, qb), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_queue_synchronize(qb), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_queue_synchronize(qa), TW_OK) << tw_last_error();
    EXPECT_TRUE(b.load(to, kSize) == data);
  }
  tw_graph_destroy(ga);
  tw_graph_destroy(gb);
}

/// A captured run is none until its graph is launched; then the plan stays until it is over.
TEST_P(Plans, GraphsAreRunsWhenTheyAreLaunched) {
  constexpr size_t kSize = 501;
  unsigned char *from = memory(a, kSize), *to = memory(b, kSize);
  tw_queue *qa = queue(a), *qb = queue(b);
  tw_plan* sends = plan(a);
  tw_plan* receives = nullptr;
  tw_plan_options options = TW_PLAN_OPTIONS_INIT;
  options.place = GetParam().place;
  ASSERT_EQ(tw_plan_create(b.context, &options, &receives), TW_OK);
  ASSERT_EQ(tw_plan_send(sends, a.endpoint, from, kSize, 3, nullptr, nullptr), TW_OK);
  ASSERT_EQ(tw_plan_recv(receives, b.endpoint, to, kSize, 3, nullptr, nullptr), TW_OK);
  both([&] { ASSERT_EQ(tw_plan_prepare(sends, kLong), TW_OK) << tw_last_error(); },
       [&] { ASSERT_EQ(tw_plan_prepare(receives, kLong), TW_OK) << tw_last_error(); });
  tw_graph* graph = nullptr;
  ASSERT_EQ(tw_queue_begin_capture(qb), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_plan_trigger(receives, qb), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_queue_end_capture(qb, &graph), TW_OK) << tw_last_error();
  const Bytes data = random_bytes(kSize);
  a.store(from, data);
  ASSERT_EQ(tw_graph_launch(graph, qb), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_plan_destroy(receives), TW_ERR_BUSY);
  ASSERT_EQ(tw_plan_trigger(sends, qa), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_queue_synchronize(qb), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_queue_synchronize(qa), TW_OK) << tw_last_error();
  EXPECT_TRUE(b.load(to, kSize) == data);
  ASSERT_EQ(tw_queue_begin_capture(qb), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_plan_trigger(receives, qb), TW_OK) << tw_last_error();
  tw_graph_destroy(graph);
  ASSERT_EQ(tw_queue_end_capture(qb, &graph), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_plan_destroy(receives), TW_OK) << tw_last_error();  // the second graph was not launched
  tw_graph_destroy(graph);
}

TEST_P(Plans, SingleOperationsOnQueues) {
  constexpr size_t kSize = 777;
  unsigned char *from = memory(a, kSize), *to = memory(b, kSize);
  tw_queue *qa = queue(a), *qb = queue(b);
  for (int round = 0; round < 10; ++round) {
    const Bytes data = random_bytes(kSize);
    a.store(from, data);
    both([&] { ASSERT_EQ(tw_send_on(qa, a.endpoint, from, kSize, 5, nullptr), TW_OK) << tw_last_error(); },
         [&] { ASSERT_EQ(tw_recv_on(qb, b.endpoint, to, kSize, 5, nullptr), TW_OK) << tw_last_error(); });
    ASSERT_EQ(tw_queue_synchronize(qb), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_queue_synchronize(qa), TW_OK) << tw_last_error();
    EXPECT_TRUE(b.load(to, kSize) == data);
  }
}

/// The first one waits for its partner, which comes only when both calls about other plans have returned.
TEST_P(Plans, NobodyWaitsForTheFirstOperationOfAQueue) {
  constexpr size_t kSize = 99;
  unsigned char *from = memory(a, kSize), *to = memory(b, kSize);
  tw_queue *qa = queue(a), *qb = queue(b);
  tw_plan* other = nullptr;
  ASSERT_EQ(tw_plan_create(b.context, nullptr, &other), TW_OK) << tw_last_error();
  const Bytes data = random_bytes(kSize);
  a.store(from, data);
  std::thread first([&] { EXPECT_EQ(tw_recv_on(qb, b.endpoint, to, kSize, 5, nullptr), TW_OK) << tw_last_error(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // it waits by now
  EXPECT_EQ(tw_queue_synchronize(qb), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_plan_destroy(other), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_send_on(qa, a.endpoint, from, kSize, 5, nullptr), TW_OK) << tw_last_error();
  first.join();
  ASSERT_EQ(tw_queue_synchronize(qb), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_queue_synchronize(qa), TW_OK) << tw_last_error();
  EXPECT_TRUE(b.load(to, kSize) == data);
}

/// Many at a time on the queue, and one in a graph that later ones must not change.
TEST_P(Plans, SignalsOnAQueueCarryTheirOwnValues) {
  Target target;
  make_target(b, a, GetParam().place, 8, TW_SIGNAL_ADD, &target);
  tw_queue* qa = queue(a);
  std::atomic<bool> stop{false};
  std::thread progress([&] {  // b's worker serves a's imports, and frames over tcp
    while (!stop) tw_worker_progress(b.worker);
  });
  std::mt19937_64 random(std::random_device{}());
  uint64_t sum = 0;
  const auto signal = [&](uint64_t value) {
    EXPECT_EQ(tw_signal_on(qa, target.remote_signal, value, nullptr), TW_OK) << tw_last_error();
    sum += value;
  };
  signal(random() % 1000);
  const uint64_t captured = random() % 1000;
  tw_graph* graph = nullptr;
  EXPECT_EQ(tw_queue_begin_capture(qa), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_signal_on(qa, target.remote_signal, captured, nullptr), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_queue_end_capture(qa, &graph), TW_OK) << tw_last_error();
  for (int round = 0; round < 20; ++round) {
    signal(random() % 1000);
    EXPECT_EQ(tw_graph_launch(graph, qa), TW_OK) << tw_last_error();
    sum += captured;
  }
  EXPECT_EQ(tw_queue_synchronize(qa), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_signal_read(target.signal), sum);
  tw_graph_destroy(graph);
  stop = true;
  progress.join();
}

TEST_P(Plans, TheOtherEndNeverComes) {
  unsigned char *from = memory(a, 8), *to = memory(b, 8);
  tw_queue* qb = queue(b);
  tw_plan *sends = plan(a), *receives = plan(b, 100'000'000);
  ASSERT_EQ(tw_plan_send(sends, a.endpoint, from, 8, 11, nullptr, nullptr), TW_OK);
  ASSERT_EQ(tw_plan_recv(receives, b.endpoint, to, 8, 11, nullptr, nullptr), TW_OK);
  EXPECT_EQ(tw_plan_prepare(receives, 50'000'000), TW_ERR_TIMED_OUT);
  EXPECT_NE(std::string(tw_last_error()).find("11"), std::string::npos) << tw_last_error();
  both([&] { ASSERT_EQ(tw_plan_prepare(sends, kLong), TW_OK) << tw_last_error(); },
       [&] { ASSERT_EQ(tw_plan_prepare(receives, kLong), TW_OK) << tw_last_error(); });
  ASSERT_EQ(tw_plan_trigger(receives, qb), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_queue_synchronize(qb), TW_ERR_TIMED_OUT) << tw_last_error();  // the queue is released, with the step's name
  EXPECT_NE(std::string(tw_last_error()).find("recv"), std::string::npos) << tw_last_error();
  EXPECT_EQ(tw_plan_trigger(receives, qb), TW_ERR_TIMED_OUT);
  // Both prepare again, and go on.
  tw_queue* qa = queue(a);
  both([&] { ASSERT_EQ(tw_plan_prepare(sends, kLong), TW_OK) << tw_last_error(); },
       [&] { ASSERT_EQ(tw_plan_prepare(receives, kLong), TW_OK) << tw_last_error(); });
  const Bytes data = random_bytes(8);
  a.store(from, data);
  ASSERT_EQ(tw_plan_trigger(sends, qa), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_plan_trigger(receives, qb), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_queue_synchronize(qb), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_queue_synchronize(qa), TW_OK) << tw_last_error();
  EXPECT_TRUE(b.load(to, 8) == data);
}

/// A message that nobody receives is of an epoch that ends: neither its sender nor what is sent later waits for a receive of it.
class UnreceivedMessages : public Pair {
 protected:
  struct Exchange {
    tw_plan *sends, *receives;
    unsigned char *from, *to;
  };
  Exchange make(size_t length, uint64_t limit) {
    const Exchange made{plan(a, limit), plan(b, limit), memory(a, length), memory(b, length)};
    EXPECT_EQ(tw_plan_send(made.sends, a.endpoint, made.from, length, 11, nullptr, nullptr), TW_OK);
    EXPECT_EQ(tw_plan_recv(made.receives, b.endpoint, made.to, length, 11, nullptr, nullptr), TW_OK);
    return made;
  }
  void pass(const Exchange& one, size_t length) {
    const Bytes data = random_bytes(length);
    a.store(one.from, data);
    both([&] { ASSERT_EQ(tw_plan_run(one.sends, kLong), TW_OK) << tw_last_error(); },
         [&] { ASSERT_EQ(tw_plan_run(one.receives, kLong), TW_OK) << tw_last_error(); });
    EXPECT_TRUE(b.load(one.to, length) == data);
  }
};
INSTANTIATE_TEST_SUITE_P(Ways, UnreceivedMessages, testing::ValuesIn(kWays), [](const auto& info) { return info.param.name; });

TEST_P(UnreceivedMessages, LongOnesEndWithTheirEpoch) {
  constexpr size_t kLength = (8 << 20) + 3;
  const Exchange alone = make(kLength, 50'000'000);
  for (int turn = 0; turn < 2; ++turn) {
    prepare_both(alone.sends, alone.receives);
    ASSERT_EQ(tw_plan_run(alone.sends, kLong), TW_ERR_TIMED_OUT) << tw_last_error();
  }
  prepare_both(alone.sends, alone.receives);
  const Exchange next = make(kLength, 0);
  prepare_both(next.sends, next.receives);
  pass(next, kLength);  // in the end all of them are destroyed
}

/// More of them than a connection has credit for. Others than the host's over frames wait for the receive.
TEST_P(UnreceivedMessages, ShortOnesKeepNoCredit) {
  if (std::strcmp(GetParam().name, "host_tcp") != 0) GTEST_SKIP() << "its messages take no credit";
  constexpr size_t kLength = 8001;
  const Exchange one = make(kLength, kLong / 2);
  for (int turn = 0; turn < 1200 && !HasFailure(); ++turn) {
    prepare_both(one.sends, one.receives);
    ASSERT_EQ(tw_plan_run(one.sends, kLong), TW_OK) << tw_last_error() << ", turn " << turn;
  }
  prepare_both(one.sends, one.receives);
  pass(one, kLength);
}

}  // namespace
}  // namespace thalweg::tests
