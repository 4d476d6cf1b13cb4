// SPDX-License-Identifier: Apache-2.0
// The one policy of waiting: spin, yield, sleep, and less of the first two where the cores are shared.
#include "base/waiting.hpp"

#include <gtest/gtest.h>

namespace thalweg::impl {
namespace {

uint64_t yields, next_yield_ns;
uint64_t fake_yield() {
  ++yields;
  return next_yield_ns;
}

/// Polls until it is time to sleep.
unsigned polls_until_sleep(Waiting& waiting) {
  unsigned looks = 0;
  while (waiting.idle() == Waiting::Next::look) ++looks;
  return looks;
}

class WaitingTest : public testing::Test {
 protected:
  void SetUp() override {
    yields = 0;
    next_yield_ns = 500;
  }
  Crowd crowd;
};

TEST_F(WaitingTest, AloneItSpinsThenYieldsForTwoMillisecondsThenSleeps) {
  Waiting waiting(crowd, fake_yield);
  for (unsigned i = 1; i < Waiting::kSpins; ++i) ASSERT_EQ(waiting.idle(), Waiting::Next::look);
  EXPECT_EQ(yields, 0u);
  EXPECT_FALSE(waiting.idle() == Waiting::Next::sleep);
  EXPECT_EQ(yields, 1u);
  polls_until_sleep(waiting);
  EXPECT_EQ(yields, Waiting::kYieldNs / next_yield_ns);
  EXPECT_EQ(waiting.idle(), Waiting::Next::sleep) << "until something happens";
  waiting.restart();
  EXPECT_EQ(waiting.idle(), Waiting::Next::look);
}

TEST_F(WaitingTest, ALateYieldEndsTheWaitsSpinAndThoseOfTheNextWaits) {
  next_yield_ns = Crowd::kSliceNs - 1;
  Waiting first(crowd, fake_yield);
  EXPECT_EQ(polls_until_sleep(first), Waiting::kSpins);
  EXPECT_EQ(yields, 1u) << "whoever runs here needs the core: no second yield";
  EXPECT_TRUE(crowd.there());
  Waiting second(crowd, fake_yield);
  EXPECT_EQ(polls_until_sleep(second), Waiting::kCrowdedSpins);
  EXPECT_EQ(yields, 2u);
}

TEST_F(WaitingTest, AYieldThatCostATimeSliceIsNotTriedAgainForManyWaits) {
  next_yield_ns = 3'000'000;
  Waiting waiting(crowd, fake_yield);
  EXPECT_EQ(polls_until_sleep(waiting), Waiting::kSpins);
  ASSERT_EQ(yields, 1u);
  for (unsigned i = 0; i < Crowd::kSliceMemory; ++i) {
    ASSERT_TRUE(crowd.costs_slice());
    waiting.restart();
    ASSERT_EQ(polls_until_sleep(waiting), Waiting::kEager - 1) << "a peer that runs answers within them";
    ASSERT_EQ(waiting.idle(), Waiting::Next::sleep);  // one wait, however often it sleeps
  }
  EXPECT_EQ(yields, 1u);
  EXPECT_FALSE(crowd.costs_slice());
  next_yield_ns = 500;  // and that thread has gone
  waiting.restart();
  polls_until_sleep(waiting);
  EXPECT_GT(yields, 1u);
  EXPECT_FALSE(crowd.there());
}

TEST_F(WaitingTest, YieldsThatReturnAtOnceEndIt) {
  crowd.yielded(Crowd::kLateNs);
  ASSERT_TRUE(crowd.there());
  Waiting waiting(crowd, fake_yield);
  polls_until_sleep(waiting);
  EXPECT_FALSE(crowd.there());
  waiting.restart();
  EXPECT_GE(polls_until_sleep(waiting), Waiting::kSpins);
}

TEST_F(WaitingTest, ACrowdedProcessSleepsSoon) {
  next_yield_ns = Crowd::kLateNs - 1;  // in time, barely
  crowd.yielded(Crowd::kLateNs);
  Waiting waiting(crowd, fake_yield);
  EXPECT_LE(polls_until_sleep(waiting), Waiting::kCrowdedSpins + 3);
}

}  // namespace
}  // namespace thalweg::impl
