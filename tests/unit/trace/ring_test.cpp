// SPDX-License-Identifier: Apache-2.0
#include "trace/ring.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

namespace thalweg::impl::trace {
namespace {

Event numbered(uint64_t n) {
  Event event;
  event.at = n;
  event.bytes = n * 3;
  event.tag = ~n;
  return event;
}

TEST(Ring, GivesEventsInOrderAndOnce) {
  const auto ring = Ring::make(64);
  ASSERT_NE(ring, nullptr);
  std::mt19937_64 random(std::random_device{}());
  uint64_t pushed = 0, taken = 0;
  for (int round = 0; round < 1000; ++round) {
    for (uint64_t n = random() % 65; n > 0; --n) ring->push(numbered(pushed++));
    ring->drain([&](const Event& event) {
      ASSERT_EQ(event.at, taken);
      ASSERT_EQ(event.tag, ~taken);
      ++taken;
    });
    ASSERT_EQ(taken, pushed);
    ASSERT_TRUE(ring->empty());
  }
  EXPECT_EQ(ring->dropped(), 0u);
}

TEST(Ring, AFullOneDropsWhatComesAndCounts) {
  const auto ring = Ring::make(64);
  for (uint64_t n = 0; n < 100; ++n) ring->push(numbered(n));
  EXPECT_EQ(ring->dropped(), 36u);
  EXPECT_EQ(ring->pushed(), 64u);
  std::vector<uint64_t> found;
  ring->drain([&](const Event& event) { found.push_back(event.at); });
  ASSERT_EQ(found.size(), 64u);
  EXPECT_EQ(found.front(), 0u);
  EXPECT_EQ(found.back(), 63u) << "the oldest stay";
  ring->push(numbered(1000));
  ring->drain([&](const Event& event) { found.push_back(event.at); });
  EXPECT_EQ(found.back(), 1000u) << "there is room again";
}

TEST(Ring, OneThreadWritesWhileAnotherReads) {
  const auto ring = Ring::make(256);
  constexpr uint64_t kMany = 300'000;
  std::atomic<bool> over{false};
  std::thread writer([&] {
    for (uint64_t n = 0; n < kMany; ++n) ring->push(numbered(n));
    over = true;
  });
  uint64_t last = 0, taken = 0;
  const auto take = [&](const Event& event) {
    ASSERT_TRUE(taken == 0 || event.at > last);
    ASSERT_EQ(event.bytes, event.at * 3) << "half an event";
    ASSERT_EQ(event.tag, ~event.at);
    last = event.at;
    ++taken;
  };
  while (!over) ring->drain(take);
  writer.join();
  ring->drain(take);
  EXPECT_EQ(taken + ring->dropped(), kMany);
  EXPECT_EQ(ring->pushed(), taken);
}

}  // namespace
}  // namespace thalweg::impl::trace
