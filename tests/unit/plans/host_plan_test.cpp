// SPDX-License-Identifier: Apache-2.0
// Plans that the host runs, where loads and stores do not get there, or take more than a message: what is carried goes in the progress
// of the thread that runs the plan.
#include <algorithm>
#include <chrono>
#include <utility>

#include "unit/plans/pair.hpp"

namespace thalweg::tests {
namespace {

class HostPlans : public Pair {
 protected:
  static bool says(tw_plan* plan, const char* what) { return explain(plan).find(what) != std::string::npos; }
  void send(tw_plan* plan, const unsigned char* from, size_t length, uint64_t tag, std::vector<uint32_t> after = {}) {
    tw_op_options options = TW_OP_OPTIONS_INIT;
    options.after_steps = after.data();
    options.after_count = after.size();
    ASSERT_EQ(tw_plan_send(plan, a.endpoint, from, length, tag, &options, nullptr), TW_OK) << tw_last_error();
  }
  void receive(tw_plan* plan, unsigned char* to, size_t length, uint64_t tag, const tw_layout* layout = nullptr) {
    tw_op_options options = TW_OP_OPTIONS_INIT;
    options.layout = layout;
    ASSERT_EQ(tw_plan_recv(plan, b.endpoint, to, layout != nullptr ? 0 : length, tag, &options, nullptr), TW_OK)
        << tw_last_error();
  }
};
INSTANTIATE_TEST_SUITE_P(Ways, HostPlans, testing::Values(kWays[0], kWays[2]),
                         [](const auto& info) { return info.param.name; });

TEST_P(HostPlans, OfOrdinaryBuffersMoveWhatIsThereWhenTheyRun) {
  constexpr size_t kSizes[] = {1, 8, 4095, 70001, 1 << 20};
  size_t all = 0;
  for (const size_t size : kSizes) all += size;
  Bytes from(all), to(all + 16);
  tw_plan *sends = plan(a), *receives = plan(b);
  size_t at = 0;
  for (size_t i = 0; i < std::size(kSizes); ++i) {
    send(sends, &from[at], kSizes[i], i % 2);  // several on a channel: in order
    receive(receives, &to[at], kSizes[i], i % 2);
    at += kSizes[i];
  }
  prepare_both(sends, receives);
  EXPECT_EQ(says(sends, "by the host"), !GetParam().mapped) << explain(sends);
  for (int round = 0; round < 20; ++round) {
    const Bytes data = random_bytes(all);
    std::copy(data.begin(), data.end(), from.begin());
    to.assign(to.size(), 0xee);
    both([&] { ASSERT_EQ(tw_plan_run(sends, kLong), TW_OK) << tw_last_error(); },
         [&] { ASSERT_EQ(tw_plan_run(receives, kLong), TW_OK) << tw_last_error(); });
    ASSERT_TRUE(std::equal(data.begin(), data.end(), to.begin()));
    ASSERT_TRUE(
        std::all_of(to.begin() + static_cast<std::ptrdiff_t>(all), to.end(), [](unsigned char c) { return c == 0xee; }));
  }
}

/// One thread runs both ends, by turns: neither call may wait for the other.
TEST_P(HostPlans, OfBothEndsRunInOneThread) {
  constexpr size_t kSize = 30001;
  Bytes from(kSize), to(kSize);
  tw_plan *sends = plan(a), *receives = plan(b);
  send(sends, from.data(), kSize, 3);
  receive(receives, to.data(), kSize, 3);
  prepare_both(sends, receives);
  for (int round = 0; round < 10; ++round) {
    const Bytes data = random_bytes(kSize);
    std::copy(data.begin(), data.end(), from.begin());
    ASSERT_GE(tw_plan_trigger(round % 2 == 0 ? sends : receives, nullptr), TW_OK) << tw_last_error();
    ASSERT_GE(tw_plan_trigger(round % 2 == 0 ? receives : sends, nullptr), TW_OK) << tw_last_error();
    tw_status sent = TW_IN_PROGRESS, received = TW_IN_PROGRESS;
    const auto limit = std::chrono::steady_clock::now() + std::chrono::nanoseconds(kLong);
    while ((sent == TW_IN_PROGRESS || received == TW_IN_PROGRESS) && std::chrono::steady_clock::now() < limit) {
      sent = tw_plan_test(sends);
      received = tw_plan_test(receives);
    }
    ASSERT_EQ(sent, TW_OK) << tw_last_error();
    ASSERT_EQ(received, TW_OK) << tw_last_error();
    ASSERT_TRUE(to == data);
  }
}

/// What is carried goes on when the run is started and left alone: the proxy's thread takes over.
TEST_P(HostPlans, ThatAreCarriedAndLeftAloneGoOn) {
  if (GetParam().mapped) return;  // by loads and stores of whoever calls tw_plan_test
  constexpr size_t kSize = 3 << 20;
  Bytes from = random_bytes(kSize), to(kSize);
  tw_plan *sends = plan(a), *receives = plan(b);
  send(sends, from.data(), kSize, 3);
  receive(receives, to.data(), kSize, 3);
  prepare_both(sends, receives);
  for (int round = 0; round < 3; ++round) {
    ASSERT_GE(tw_plan_trigger(sends, nullptr), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_plan_run(receives, kLong), TW_OK) << tw_last_error();  // nobody looks at the other end
    ASSERT_TRUE(to == from);
    ASSERT_EQ(tw_plan_finish(sends, kLong), TW_OK) << tw_last_error();
    from = random_bytes(kSize);
    ASSERT_EQ(tw_plan_update(sends, 0, from.data(), nullptr), TW_OK) << tw_last_error();
  }
}

TEST_P(HostPlans, AreRunByTheCallerAndByAQueueInTurns) {
  constexpr size_t kSize = 5003;
  Bytes from = random_bytes(kSize), to(kSize), second(kSize);
  tw_plan *sends = plan(a), *receives = plan(b);
  send(sends, from.data(), kSize, 1);
  send(sends, from.data(), kSize, 2, {0});
  receive(receives, to.data(), kSize, 1);
  receive(receives, second.data(), kSize, 2);
  prepare_both(sends, receives);
  tw_queue* const queued = queue(a);
  for (int round = 0; round < 6; ++round) {  // by the caller and by a queue's thread, in turns
    std::fill(to.begin(), to.end(), 0);
    std::fill(second.begin(), second.end(), 0);
    both(
        [&] {
          if (round % 2 == 0) {
            ASSERT_EQ(tw_plan_run(sends, kLong), TW_OK) << tw_last_error();
          } else {
            ASSERT_EQ(tw_plan_trigger(sends, queued), TW_OK) << tw_last_error();
            ASSERT_EQ(tw_queue_synchronize(queued), TW_OK) << tw_last_error();
          }
        },
        [&] { ASSERT_EQ(tw_plan_run(receives, kLong), TW_OK) << tw_last_error(); });
    ASSERT_TRUE(to == from && second == from);
  }
}

/// Two receives of each channel: all that comes is shorter than a cache line, or not.
class ShortMessages : public HostPlans {
 protected:
  void exchange(size_t first, size_t second, bool by_messages) {
    SCOPED_TRACE(std::to_string(first) + " and " + std::to_string(second) + " bytes");
    const size_t sizes[] = {first, second};
    constexpr size_t kGuard = 16;
    unsigned char *from[2], *to[2];
    tw_plan *sends = plan(a), *receives = plan(b);
    for (size_t i = 0; i < 2; ++i) {
      from[i] = memory(a, sizes[i]);
      to[i] = memory(b, sizes[i] + 2 * kGuard);
      send(sends, from[i], sizes[i], first * 1000 + second);
      receive(receives, to[i] + kGuard, sizes[i], first * 1000 + second);
    }
    prepare_both(sends, receives);
    EXPECT_EQ(says(receives, "a message packs them"), by_messages) << explain(receives);
    EXPECT_EQ(says(receives, "* at its own address"), !by_messages) << explain(receives);
    for (int round = 0; round < 3; ++round) {
      std::vector<Bytes> expected;
      for (size_t i = 0; i < 2; ++i) {
        const Bytes data = random_bytes(sizes[i]);
        expected.push_back(random_bytes(sizes[i] + 2 * kGuard));
        a.store(from[i], data);
        b.store(to[i], expected[i]);
        std::copy(data.begin(), data.end(), expected[i].begin() + kGuard);
      }
      both([&] { ASSERT_EQ(tw_plan_run(sends, kLong), TW_OK) << tw_last_error(); },
           [&] { ASSERT_EQ(tw_plan_run(receives, kLong), TW_OK) << tw_last_error(); });
      for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(b.load(to[i], sizes[i] + 2 * kGuard) == expected[i]);
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Shm, ShortMessages, testing::Values(kWays[0]), [](const auto& info) { return info.param.name; });

TEST_P(ShortMessages, GoByMessagesIfAllAreShort) {
  exchange(1, 8, true);
  exchange(63, 63, true);
  exchange(64, 64, false);
  exchange(8, 4097, false);
  exchange(65, 7, false);
}

class ShortRows : public HostPlans {
 protected:
  void SetUp() override {
    HostPlans::SetUp();
    const uint64_t count = kRows;
    const int64_t stride = kStride;
    ASSERT_EQ(tw_layout_strided(1, kRow, &count, &stride, &layout_), TW_OK) << tw_last_error();
    from_ = memory(a, kRows * kRow);
    to_ = memory(b, kRows * kStride);
  }
  void TearDown() override {
    tw_layout_destroy(layout_);
    HostPlans::TearDown();
  }
  /// Prepared: contiguous bytes of a into rows of b.
  std::pair<tw_plan*, tw_plan*> short_rows() {
    tw_plan *sends = plan(a), *receives = plan(b);
    send(sends, from_, kRows * kRow, 5);
    receive(receives, to_, 0, 5, layout_);
    prepare_both(sends, receives);
    return {sends, receives};
  }
  void run_and_check(tw_plan* sends, tw_plan* receives) {
    const Bytes data = random_bytes(kRows * kRow);
    a.store(from_, data);
    b.store(to_, Bytes(kRows * kStride, 0xee));
    both([&] { ASSERT_EQ(tw_plan_run(sends, kLong), TW_OK) << tw_last_error(); },
         [&] { ASSERT_EQ(tw_plan_run(receives, kLong), TW_OK) << tw_last_error(); });
    Bytes expected(kRows * kStride, 0xee);
    for (size_t row = 0; row < kRows; ++row) std::copy_n(&data[row * kRow], kRow, &expected[row * kStride]);
    ASSERT_TRUE(b.load(to_, kRows * kStride) == expected);
  }
  static constexpr size_t kRows = 300, kRow = 8, kStride = 272;
  tw_layout* layout_ = nullptr;
  unsigned char *from_ = nullptr, *to_ = nullptr;
};
INSTANTIATE_TEST_SUITE_P(Shm, ShortRows, testing::Values(kWays[0]), [](const auto& info) { return info.param.name; });

TEST_P(ShortRows, ArePackedByMessages) {
  const auto [sends, receives] = short_rows();
  EXPECT_TRUE(says(receives, "a message packs them")) << explain(receives);
  EXPECT_TRUE(says(receives, "* carried")) << explain(receives);
  EXPECT_FALSE(says(sends, "* at its own address")) << explain(sends);
  for (int round = 0; round < 3; ++round) run_and_check(sends, receives);
}

TEST_P(ShortRows, OfAChannelThatIsMappedAlreadyAreStored) {
  tw_plan *first = plan(a), *first_there = plan(b);
  send(first, from_, kRows * kRow, 5);
  receive(first_there, to_, kRows * kRow, 5);
  prepare_both(first, first_there);
  const auto [sends, receives] = short_rows();
  EXPECT_TRUE(says(receives, ": mapped")) << explain(receives);
  EXPECT_TRUE(says(receives, "* at its own address")) << explain(receives);
  for (int round = 0; round < 3; ++round) run_and_check(sends, receives);
}

TEST_P(ShortRows, OfAChannelThatNobodyUsesAnyMoreArePacked) {
  tw_plan *first = nullptr, *first_there = nullptr;
  tw_plan_options options = TW_PLAN_OPTIONS_INIT;
  options.place = "host";
  ASSERT_EQ(tw_plan_create(a.context, &options, &first), TW_OK);
  ASSERT_EQ(tw_plan_create(b.context, &options, &first_there), TW_OK);
  send(first, from_, kRows * kRow, 5);
  receive(first_there, to_, kRows * kRow, 5);
  prepare_both(first, first_there);
  both([&] { ASSERT_EQ(tw_plan_destroy(first), TW_OK); }, [&] { ASSERT_EQ(tw_plan_destroy(first_there), TW_OK); });
  const auto [sends, receives] = short_rows();
  EXPECT_TRUE(says(receives, "* carried")) << explain(receives);
  for (int round = 0; round < 3; ++round) run_and_check(sends, receives);
}

/// A limit is of time: a thread that tests a run seldom is told after a few calls, and not after as many as take so long in a row.
TEST_P(HostPlans, ALimitPassesHoweverSeldomARunIsTested) {
  unsigned char *from = memory(a, 8), *to = memory(b, 8);
  tw_plan *sends = plan(a), *receives = plan(b, 1'000'000);
  send(sends, from, 8, 11);
  receive(receives, to, 8, 11);
  prepare_both(sends, receives);
  ASSERT_EQ(tw_plan_trigger(receives, nullptr), TW_OK) << tw_last_error();
  tw_status status = TW_IN_PROGRESS;
  for (int calls = 0; calls < 30 && status == TW_IN_PROGRESS; ++calls) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    status = tw_plan_test(receives);
  }
  EXPECT_EQ(status, TW_ERR_TIMED_OUT);
  while (status == TW_IN_PROGRESS) status = tw_plan_test(receives);
}

}  // namespace
}  // namespace thalweg::tests
