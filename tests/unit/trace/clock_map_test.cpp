// SPDX-License-Identifier: Apache-2.0
#include "trace/clock_map.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <random>

namespace thalweg::impl::trace {
namespace {

/// A clock that is far ahead and 50 in a million fast, read with errors of up to 40 ns.
TEST(ClockMap, FollowsAClockThatDrifts) {
  std::mt19937_64 random(std::random_device{}());
  constexpr uint64_t kMs = 1'000'000, kSecond = 1000 * kMs, kAhead = 7200 * kSecond;
  const auto other = [](uint64_t host) { return host + host / 20'000 + kAhead; };
  ClockMap map(kSecond);
  EXPECT_FALSE(map.known());
  uint64_t host = 1000 * kSecond, last = 0;
  for (int i = 0; i < 1000; ++i) {
    map.add(other(host), host + random() % 40);
    ASSERT_TRUE(map.known());
    for (int k = 0; i > 200 && k < 5; ++k) {
      const uint64_t then = host - random() % (20 * kMs);
      const auto error = static_cast<int64_t>(map.map(other(then)) - then);
      ASSERT_LT(std::abs(error), 100) << "after " << i << " readings";
    }
    const uint64_t now = map.map(other(host));
    ASSERT_GE(now, last) << "it goes back";
    last = now;
    host += 10 * kMs;
  }
}

TEST(ClockMap, OnePairGoesByTheRateThatIsExpected) {
  ClockMap map(1000, 2.5);
  map.add(100, 5000);
  EXPECT_EQ(map.map(140), 5100u);
  EXPECT_EQ(map.map(60), 4900u);
  map.add(300, 5600);  // 3 to 1
  EXPECT_EQ(map.map(310), 5630u);
}

TEST(ClockMap, OnePairIsAnOffset) {
  ClockMap map(1000);
  map.add(500, 10'000);
  EXPECT_EQ(map.map(600), 10'100u);
  EXPECT_EQ(map.map(400), 9'900u);
  map.add(500, 20'000);  // no time has passed: says nothing
  EXPECT_EQ(map.map(500), 10'000u);
}

}  // namespace
}  // namespace thalweg::impl::trace
