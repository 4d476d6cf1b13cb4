// SPDX-License-Identifier: Apache-2.0
// Opening a channel while its ends give up and begin again at any moment: whoever is told that it is open is told when it is
// not, and two ends that both wait always meet. docs/decisions/0017-opening.md.
#include "channel_ends.hpp"

namespace thalweg::tests {
namespace {

class ChannelOpening : public ChannelEnds {
 protected:
  static constexpr int kRounds = 8, kMostTries = 4;

  static std::mt19937& random() {
    static thread_local std::mt19937 made(std::random_device{}());
    return made;
  }
  static void pause() { std::this_thread::sleep_for(std::chrono::microseconds(random()() % 4000)); }
  /// Around what opening takes, so that some of it happens and some does not.
  static uint64_t short_limit() { return 200'000 + random()() % 6'000'000; }
  /// Tries now and then for a while; `epoch` is given the limit. What the last epoch said; TW_OK: there were none, or it went.
  static tw_status try_some(const std::function<tw_status(uint64_t)>& epoch) {
    tw_status status = TW_OK;
    const unsigned tries = random()() % (kMostTries + 1);
    for (unsigned i = 0; i < tries; ++i) {
      pause();
      status = epoch(short_limit());
      if (status == TW_OK) return status;
      EXPECT_EQ(status, TW_ERR_TIMED_OUT) << tw_last_error();
    }
    return status;
  }
  /// The other side gave up: this is told to who was told that the channel is open.
  static tw_status told(const std::function<tw_status()>& check) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    tw_status status = TW_OK;
    while ((status = check()) == TW_OK && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
    return status;
  }
  void expect_passage(Bound& send, Bound& recv, const RecvBuffers& recv_buffers) {
    Traffic traffic = make_traffic(random_sizes(3));
    {
      const Running receiver = start_recv(recv, recv_buffers, traffic, recv_buffers.at.size());
      const Running sender = start_send(send, traffic);
    }
    expect_all(traffic);
    expect_guards(recv_buffers);
    EXPECT_EQ(tw_channel_end_check(send.handle), TW_OK) << tw_last_error();
    EXPECT_EQ(tw_channel_end_check(recv.handle), TW_OK) << tw_last_error();
  }
};
INSTANTIATE_TEST_SUITE_P(Mapped, ChannelOpening, testing::Values(kWays[0], kWays[1]),
                         [](const auto& info) { return info.param.name; });

TEST_P(ChannelOpening, KernelsEndsThatGaveUpAnyNumberOfTimesMeet) {
  const RecvBuffers recv_buffers = make_recv_buffers(2);
  for (uint64_t tag = 1; tag <= kRounds; ++tag) {
    SCOPED_TRACE(tag);
    Bound send, recv;
    both([&] { try_some([&](uint64_t limit) { return bind_send(tag, &send, limit); }); },
         [&] { try_some([&](uint64_t limit) { return bind_recv(tag, recv_buffers.given, &recv, limit); }); });
    const bool met = send.handle != nullptr && recv.handle != nullptr;
    // Nothing passes yet: an end waits no longer than it was bound for, which is milliseconds here.
    for (Bound* one : {&send, &recv}) {
      if (one->handle == nullptr) continue;
      if (!met) {
        EXPECT_EQ(told([one] { return tw_channel_end_check(one->handle); }), TW_ERR_TIMED_OUT) << tw_last_error();
        expect_text({"channel", "begin again"});
      }
      EXPECT_EQ(one->release(), TW_OK) << tw_last_error();
    }
    both(
        [&] {
          pause();
          ASSERT_EQ(bind_send(tag, &send), TW_OK) << tw_last_error();
        },
        [&] {
          pause();
          ASSERT_EQ(bind_recv(tag, recv_buffers.given, &recv), TW_OK) << tw_last_error();
        });
    expect_passage(send, recv, recv_buffers);
    EXPECT_EQ(send.release(), TW_OK) << tw_last_error();
    EXPECT_EQ(recv.release(), TW_OK) << tw_last_error();
  }
}

class PlanOpening : public ChannelOpening {
 protected:
  static constexpr size_t kSize = 701;
  struct Exchange {
    tw_plan* plan = nullptr;
    unsigned char *from = nullptr, *to = nullptr;
  };
  Exchange make_exchange(Side& side, uint64_t tag) {
    Exchange made{plan(side), memory(side, kSize), memory(side, kSize)};
    EXPECT_EQ(tw_plan_send(made.plan, side.endpoint, made.from, kSize, tag, nullptr, nullptr), TW_OK);
    EXPECT_EQ(tw_plan_recv(made.plan, side.endpoint, made.to, kSize, tag, nullptr, nullptr), TW_OK);
    return made;
  }
  void expect_passage(const Exchange& at_a, const Exchange& at_b) {
    const Bytes there = random_bytes(kSize), back = random_bytes(kSize);
    a.store(at_a.from, there);
    b.store(at_b.from, back);
    a.store(at_a.to, Bytes(kSize, 0xee));
    b.store(at_b.to, Bytes(kSize, 0xee));
    const auto run = [](const Exchange& one) {
      ASSERT_EQ(tw_plan_trigger(one.plan, nullptr), TW_OK) << tw_last_error();
      ASSERT_EQ(tw_plan_finish(one.plan, kLong), TW_OK) << tw_last_error();
    };
    both([&] { run(at_a); }, [&] { run(at_b); });
    EXPECT_TRUE(a.load(at_a.to, kSize) == back);
    EXPECT_TRUE(b.load(at_b.to, kSize) == there);
  }
  static void prepare(const Exchange& one) {
    pause();
    ASSERT_EQ(tw_plan_prepare(one.plan, kLong), TW_OK) << tw_last_error();
  }
};
INSTANTIATE_TEST_SUITE_P(Ways, PlanOpening, testing::ValuesIn(kWays), [](const auto& info) { return info.param.name; });

TEST_P(PlanOpening, PlansThatGaveUpAnyNumberOfTimesMeet) {
  for (uint64_t tag = 1; tag <= kRounds; ++tag) {
    SCOPED_TRACE(tag);
    const Exchange at_a = make_exchange(a, tag), at_b = make_exchange(b, tag);
    const auto tries = [](const Exchange& one) { try_some([&](uint64_t limit) { return tw_plan_prepare(one.plan, limit); }); };
    both([&] { tries(at_a); }, [&] { tries(at_b); });
    for (int turn = 0; turn < 2; ++turn) {  // and again, of plans that ran
      both([&] { prepare(at_a); }, [&] { prepare(at_b); });
      expect_passage(at_a, at_b);
      expect_passage(at_a, at_b);
    }
  }
}

/// Who gave up does not count among the plans that go with each other.
TEST_P(PlanOpening, PlansThatGaveUpAreNotCounted) {
  Exchange at_a = make_exchange(a, 1), at_b = make_exchange(b, 1);
  EXPECT_EQ(tw_plan_prepare(at_a.plan, 30'000'000), TW_ERR_TIMED_OUT);
  both([&] { prepare(at_a); }, [&] { prepare(at_b); });
  expect_passage(at_a, at_b);
  if (!GetParam().mapped) return;  // there is nothing to import before a run, and so no count
  const Exchange second_a = make_exchange(a, 1), second_b = make_exchange(b, 1);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(tw_plan_prepare(second_a.plan, 30'000'000), TW_ERR_TIMED_OUT);
  const Exchange third_a = make_exchange(a, 1), third_b = make_exchange(b, 1);
  both([&] { prepare(second_a); }, [&] { prepare(second_b); });
  EXPECT_EQ(tw_plan_prepare(third_a.plan, 30'000'000), TW_ERR_TIMED_OUT);
  both([&] { prepare(third_a); }, [&] { prepare(third_b); });
  expect_passage(second_a, second_b);
  expect_passage(third_a, third_b);
  expect_passage(at_a, at_b);
}

/// Plans that share a channel and are prepared again one after the other begin anew once, together.
TEST_P(PlanOpening, PlansOfOneChannelArePreparedAgainTogether) {
  const Exchange first_a = make_exchange(a, 1), first_b = make_exchange(b, 1);
  const Exchange second_a = make_exchange(a, 1), second_b = make_exchange(b, 1);
  for (int turn = 0; turn < 3; ++turn) {
    both(
        [&] {
          prepare(first_a);
          prepare(second_a);
        },
        [&] {
          prepare(first_b);
          prepare(second_b);
        });
    expect_passage(first_a, first_b);
    expect_passage(second_a, second_b);
  }
}

/// A failure of an earlier epoch does not end a later one.
TEST_P(PlanOpening, AnOldFailureHurtsNoNewEpoch) {
  Exchange at_a = make_exchange(a, 1), at_b = make_exchange(b, 1);
  const Exchange other_a = make_exchange(a, 1), other_b = make_exchange(b, 1);
  both(
      [&] {
        prepare(at_a);
        prepare(other_a);
      },
      [&] {
        prepare(at_b);
        prepare(other_b);
      });
  both([&] { prepare(other_a); }, [&] { prepare(other_b); });  // the first ones' channels begin anew
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(tw_plan_trigger(at_a.plan, nullptr), TW_ERR_STALE);
    EXPECT_EQ(tw_plan_trigger(at_b.plan, nullptr), TW_ERR_STALE);
    expect_passage(other_a, other_b);
  }
}

/// A plan's sends to what a queue receives are prepared in any order.
TEST_P(PlanOpening, APlanSendsToAQueuesReceives) {
  for (uint64_t tag = 1; tag <= 3; ++tag) {
    const Bytes first = random_bytes(kSize), second = random_bytes(kSize);
    unsigned char *from = memory(a, kSize), *to = memory(b, kSize);
    a.store(from, first);
    tw_plan* sends[2] = {plan(a), plan(a)};
    for (tw_plan* one : sends) ASSERT_EQ(tw_plan_send(one, a.endpoint, from, kSize, tag, nullptr, nullptr), TW_OK);
    tw_queue *qa = queue(a), *qb = queue(b);
    both(
        [&] {
          pause();
          for (tw_plan* one : sends) ASSERT_EQ(tw_plan_prepare(one, kLong), TW_OK) << tw_last_error();
        },
        [&] {
          pause();
          ASSERT_EQ(tw_recv_on(qb, b.endpoint, to, kSize, tag, nullptr), TW_OK) << tw_last_error();
        });
    ASSERT_EQ(tw_plan_trigger(sends[0], qa), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_queue_synchronize(qa), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_queue_synchronize(qb), TW_OK) << tw_last_error();
    EXPECT_TRUE(b.load(to, kSize) == first);
    a.store(from, second);
    ASSERT_EQ(tw_recv_on(qb, b.endpoint, to, kSize, tag, nullptr), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_plan_trigger(sends[1], qa), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_queue_synchronize(qa), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_queue_synchronize(qb), TW_OK) << tw_last_error();
    EXPECT_TRUE(b.load(to, kSize) == second);
  }
}

}  // namespace
}  // namespace thalweg::tests
