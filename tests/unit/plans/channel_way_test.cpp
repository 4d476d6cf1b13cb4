// SPDX-License-Identifier: Apache-2.0
// A channel's way: it is the plans' that use it. When they are gone at both ends, the next ones' is found anew.
#include "channel_ends.hpp"

namespace thalweg::tests {
namespace {

/// On a device: its own memory is mapped, pageable memory is carried by the host.
class ChannelWay : public ChannelEnds {
 protected:
  static constexpr size_t kLength = 777;
  static constexpr uint64_t kTag = 5;
  enum class Memory { mapped, carried };

  /// A plan of one message at each end.
  struct Exchange {
    tw_plan *sends = nullptr, *receives = nullptr;
    unsigned char *from = nullptr, *to = nullptr;
    Bytes host[2];  // if it is pageable
  };
  Exchange make(Memory of, const char* place = "emulated:0") { return make(of, of, place); }
  Exchange make(Memory of_sender, Memory of_receiver, const char* place = "emulated:0") {
    Exchange made;
    for (const bool sends : {true, false}) {
      Side& side = sends ? a : b;
      unsigned char*& buffer = sends ? made.from : made.to;
      made.host[sends] = Bytes(kLength);
      buffer = (sends ? of_sender : of_receiver) == Memory::mapped ? side.memory(place, kLength) : made.host[sends].data();
      tw_plan_options how = TW_PLAN_OPTIONS_INIT;
      how.place = place;
      tw_plan*& plan = sends ? made.sends : made.receives;
      EXPECT_EQ(tw_plan_create(side.context, &how, &plan), TW_OK) << tw_last_error();
    }
    EXPECT_EQ(tw_plan_send(made.sends, a.endpoint, made.from, kLength, kTag, nullptr, nullptr), TW_OK);
    EXPECT_EQ(tw_plan_recv(made.receives, b.endpoint, made.to, kLength, kTag, nullptr, nullptr), TW_OK);
    return made;
  }
  void run(Exchange& one, int times = 3) {
    for (int i = 0; i < times; ++i) {
      const Bytes data = random_bytes(kLength);
      a.store(one.from, data);
      both([&] { ASSERT_EQ(tw_plan_run(one.sends, kLong), TW_OK) << tw_last_error(); },
           [&] { ASSERT_EQ(tw_plan_run(one.receives, kLong), TW_OK) << tw_last_error(); });
      ASSERT_TRUE(b.load(one.to, kLength) == data);
    }
  }
  static void destroy(tw_plan* plan) { ASSERT_EQ(tw_plan_destroy(plan), TW_OK) << tw_last_error(); }
  static void destroy(Exchange& one) {
    destroy(one.sends);
    destroy(one.receives);
  }
  static bool carried(const Exchange& one) {
    const bool there = explain(one.sends).find("by the host") != std::string::npos;
    EXPECT_EQ(explain(one.receives).find("by the host") != std::string::npos, there) << explain(one.receives);
    return there;
  }
};
INSTANTIATE_TEST_SUITE_P(Device, ChannelWay, testing::Values(kWays[1]), [](const auto& info) { return info.param.name; });

/// One after the other, and each end for itself, so that one asks while the other's plan is still there.
TEST_P(ChannelWay, IsFoundAnewWhenNoPlanUsesIt) {
  for (const bool together : {true, false}) {
    Exchange old = make(Memory::carried);
    prepare_both(old.sends, old.receives);
    EXPECT_TRUE(carried(old));
    run(old);
    for (const Memory next : {Memory::mapped, Memory::carried, Memory::mapped}) {
      Exchange fresh = make(next);
      if (together) {
        destroy(old);
        prepare_both(fresh.sends, fresh.receives);
      } else {
        both(
            [&] {
              destroy(old.sends);
              ASSERT_EQ(tw_plan_prepare(fresh.sends, kLong), TW_OK) << tw_last_error();
            },
            [&] {
              for (int i = 0; i < 2000; ++i) tw_worker_progress(b.worker);
              destroy(old.receives);
              ASSERT_EQ(tw_plan_prepare(fresh.receives, kLong), TW_OK) << tw_last_error();
            });
      }
      EXPECT_EQ(carried(fresh), next == Memory::carried) << explain(fresh.sends) << explain(fresh.receives);
      run(fresh);
      old = std::move(fresh);  // pageable bytes stay where they are
    }
    destroy(old);
  }
}

TEST_P(ChannelWay, OfPlansThatAreThereStaysAndTheTextSaysSo) {
  Exchange old = make(Memory::carried), beside = make(Memory::mapped);
  prepare_both(old.sends, old.receives);
  prepare_both(beside.sends, beside.receives);
  EXPECT_TRUE(carried(beside));
  EXPECT_NE(explain(beside.sends).find("for an earlier plan"), std::string::npos) << explain(beside.sends);
  EXPECT_NE(explain(beside.sends).find("another channel"), std::string::npos) << explain(beside.sends);
  run(old);
  run(beside);
  destroy(old);
  run(beside);
  destroy(beside);
  Exchange last = make(Memory::mapped);
  prepare_both(last.sends, last.receives);
  EXPECT_FALSE(carried(last)) << explain(last.sends);
  run(last);
  destroy(last);
}

/// The n-th send meets the n-th receive, also across plans: a message that nobody has taken keeps the way on which it is.
TEST_P(ChannelWay, StaysWhileAMessageIsOnIt) {
  Exchange first = make(Memory::carried), second = make(Memory::mapped);
  prepare_both(first.sends, first.receives);
  run(first);
  const Bytes early = random_bytes(kLength), late = random_bytes(kLength);
  a.store(first.from, early);
  ASSERT_EQ(tw_plan_run(first.sends, kLong), TW_OK) << tw_last_error();  // it is kept at b until it is received
  destroy(first);
  prepare_both(second.sends, second.receives);
  EXPECT_TRUE(carried(second));
  a.store(second.from, late);
  both(
      [&] {
        for (int i = 0; i < 2; ++i) ASSERT_EQ(tw_plan_run(second.sends, kLong), TW_OK) << tw_last_error();
      },
      [&] {
        for (const Bytes& data : {early, late, late}) {
          ASSERT_EQ(tw_plan_run(second.receives, kLong), TW_OK) << tw_last_error();
          EXPECT_TRUE(b.load(second.to, kLength) == data);
        }
      });
  destroy(second);
}

/// The sender's queue has ended, and no plan of its comes any more: what it sent is taken by the receiver's next plan all the same.
TEST_P(ChannelWay, StaysForAMessageWhoseSenderHasGone) {
  uint64_t tag = 100;
  for (const char* const place : {"host", "emulated:0"}) {
    SCOPED_TRACE(place);
    const bool by_host = std::strcmp(place, "host") == 0;
    Bytes sent(kLength), pageable(kLength);
    unsigned char* const from = sent.data();
    unsigned char* const to = by_host ? b.memory("emulated:0", kLength) : pageable.data();  // why it is carried
    const Bytes data[] = {random_bytes(kLength), random_bytes(kLength)};
    tw_queue* sends = nullptr;
    ASSERT_EQ(tw_queue_create(a.context, place, nullptr, &sends), TW_OK) << tw_last_error();
    const auto send = [&](const Bytes& message) {
      a.store(from, message);
      ASSERT_EQ(tw_send_on(sends, a.endpoint, from, kLength, tag, nullptr), TW_OK) << tw_last_error();
      ASSERT_EQ(tw_queue_synchronize(sends), TW_OK) << tw_last_error();
    };
    const auto receiving = [&] {
      tw_plan* made = nullptr;
      tw_plan_options how = TW_PLAN_OPTIONS_INIT;
      how.place = place;
      EXPECT_EQ(tw_plan_create(b.context, &how, &made), TW_OK) << tw_last_error();
      EXPECT_EQ(tw_plan_recv(made, b.endpoint, to, kLength, tag, nullptr, nullptr), TW_OK) << tw_last_error();
      return made;
    };
    const auto take = [&](tw_plan* receives, const Bytes& message) {
      ASSERT_EQ(tw_plan_run(receives, kLong), TW_OK) << tw_last_error();
      EXPECT_TRUE(b.load(to, kLength) == message);
      destroy(receives);
    };
    tw_plan* const first = receiving();
    both([&] { send(data[0]); }, [&] { ASSERT_EQ(tw_plan_prepare(first, kLong), TW_OK) << tw_last_error(); });
    EXPECT_NE(explain(first).find("by the host"), std::string::npos) << explain(first);
    send(data[1]);
    tw_queue_destroy(sends);
    take(first, data[0]);
    tw_plan* const second = receiving();
    ASSERT_EQ(tw_plan_prepare(second, kLong / 4), TW_OK) << tw_last_error();
    take(second, data[1]);
    ++tag;
  }
}

/// A plan that goes on at the peer needs the channel as it is.
TEST_P(ChannelWay, StaysWhereThePeersPlanGoesOn) {
  Exchange first = make(Memory::carried), second = make(Memory::mapped);
  prepare_both(first.sends, first.receives);
  run(first);
  destroy(first.sends);
  const Bytes data = random_bytes(kLength);
  a.store(second.from, data);
  both(
      [&] {
        ASSERT_EQ(tw_plan_prepare(second.sends, kLong), TW_OK) << tw_last_error();
        ASSERT_EQ(tw_plan_run(second.sends, kLong), TW_OK) << tw_last_error();
      },
      [&] { ASSERT_EQ(tw_plan_run(first.receives, kLong), TW_OK) << tw_last_error(); });
  EXPECT_TRUE(b.load(first.to, kLength) == data);
  destroy(first.receives);
  destroy(second);
}

TEST_P(ChannelWay, AnotherExecutorMayRunItThen) {
  Exchange one = make(Memory::mapped, "host");
  prepare_both(one.sends, one.receives);
  run(one);
  Exchange other = make(Memory::mapped);
  EXPECT_EQ(tw_plan_prepare(other.sends, kLong), TW_ERR_UNSUPPORTED);
  expect_text({"run by host"});
  destroy(one);
  prepare_both(other.sends, other.receives);
  EXPECT_FALSE(carried(other)) << explain(other.sends);
  run(other);
  destroy(other);
}

/// One comes first and would do with the channel as it is, the other would not: neither relies on it alone.
TEST_P(ChannelWay, OfAnIdleChannelIsDecidedByBothNextPlans) {
  for (const bool sends_first : {true, false}) {
    for (const Memory before : {Memory::mapped, Memory::carried}) {
      SCOPED_TRACE(std::string(sends_first ? "the sender" : "the receiver") + " first, " +
                   (before == Memory::mapped ? "mapped" : "carried"));
      Exchange old = make(before);
      prepare_both(old.sends, old.receives);
      run(old);
      destroy(old);
      const Memory same = before, another = before == Memory::mapped ? Memory::carried : Memory::mapped;
      Exchange next = sends_first ? make(same, another) : make(another, same);
      const auto late = [](tw_plan* plan) {
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        ASSERT_EQ(tw_plan_prepare(plan, kLong), TW_OK) << tw_last_error();
      };
      tw_plan *const first = sends_first ? next.sends : next.receives, *const second = sends_first ? next.receives : next.sends;
      both([&] { ASSERT_EQ(tw_plan_prepare(first, kLong), TW_OK) << tw_last_error(); }, [&] { late(second); });
      EXPECT_TRUE(carried(next));
      run(next);
      destroy(next);
    }
  }
}

/// The first of the new plans comes while the other side's old one is there, and may wait for its partner before it runs.
TEST_P(ChannelWay, StaysForThePartnerThatIsPreparedAlready) {
  for (const bool sends_first : {true, false}) {
    SCOPED_TRACE(sends_first);
    Exchange old = make(Memory::carried);
    prepare_both(old.sends, old.receives);
    run(old);
    Exchange next = sends_first ? make(Memory::carried, Memory::mapped) : make(Memory::mapped, Memory::carried);
    destroy(sends_first ? old.sends : old.receives);
    ASSERT_EQ(tw_plan_prepare(sends_first ? next.sends : next.receives, kLong), TW_OK) << tw_last_error();
    destroy(sends_first ? old.receives : old.sends);
    ASSERT_EQ(tw_plan_prepare(sends_first ? next.receives : next.sends, kLong), TW_OK) << tw_last_error();
    EXPECT_TRUE(carried(next));
    run(next);
    destroy(next);
  }
}

/// Plans of any memory, one after the other, each side as fast as it goes.
TEST_P(ChannelWay, OfManyPlansInTurnIsFoundEachTime) {
  std::mt19937 random(std::random_device{}());
  const auto any = [&] { return random() % 2 == 0 ? Memory::mapped : Memory::carried; };
  for (int i = 0; i < 100; ++i) {
    const Memory sent = any(), received = any();
    Exchange one = make(sent, received, random() % 3 == 0 ? "emulated:1" : "emulated:0");
    prepare_both(one.sends, one.receives);
    EXPECT_EQ(carried(one), sent == Memory::carried || received == Memory::carried) << explain(one.sends);
    run(one, 1);
    destroy(one);
  }
}

/// A plan has found its channel, and waits for another peer, when its partner asks for another way: the epoch that follows is made
/// when it is known what this plan needs.
TEST_P(ChannelWay, IsNotDecidedForAPlanThatStillWaitsForAnotherPeer) {
  constexpr uint64_t kTagOfThird = 9;
  Side c;
  c.open(GetParam().transports);
  c.connect(a);
  Side to_c;  // a's other endpoint
  to_c.worker = a.worker;
  to_c.connect(c);
  both([&] { ASSERT_EQ(tw_endpoint_wait(to_c.endpoint, kLong), TW_OK) << tw_last_error(); },
       [&] { ASSERT_EQ(tw_endpoint_wait(c.endpoint, kLong), TW_OK) << tw_last_error(); });
  Exchange old = make(Memory::carried);
  prepare_both(old.sends, old.receives);
  run(old);
  destroy(old);

  Exchange next = make(Memory::mapped);
  unsigned char* const at_c = c.memory("emulated:0", kLength);
  tw_plan* of_c = plan(c);
  ASSERT_EQ(tw_plan_send(next.sends, to_c.endpoint, next.from, kLength, kTagOfThird, nullptr, nullptr), TW_OK);
  ASSERT_EQ(tw_plan_recv(of_c, c.endpoint, at_c, kLength, kTagOfThird, nullptr, nullptr), TW_OK);
  std::thread third([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // until the other two have found each other
    ASSERT_EQ(tw_plan_prepare(of_c, kLong), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_plan_run(of_c, kLong), TW_OK) << tw_last_error();
  });
  prepare_both(next.sends, next.receives);
  EXPECT_FALSE(carried(next)) << explain(next.sends) << explain(next.receives);
  const Bytes data = random_bytes(kLength);
  a.store(next.from, data);
  both([&] { ASSERT_EQ(tw_plan_run(next.sends, kLong), TW_OK) << tw_last_error(); },
       [&] { ASSERT_EQ(tw_plan_run(next.receives, kLong), TW_OK) << tw_last_error(); });
  third.join();
  EXPECT_TRUE(b.load(next.to, kLength) == data);
  EXPECT_TRUE(c.load(at_c, kLength) == data);
  destroy(next);
  ASSERT_EQ(tw_endpoint_close(to_c.endpoint, TW_CLOSE_FORCE, nullptr), TW_OK);
  c.close();
}

}  // namespace
}  // namespace thalweg::tests
