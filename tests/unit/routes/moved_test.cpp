// SPDX-License-Identifier: Apache-2.0
#include "routes/moved.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace thalweg::impl {
namespace {

TEST(Moved, IsSummedOverThoseAliveAndThoseThatEnded) {
  Traffic traffic;
  Moved kept;
  traffic.add(kept);
  {
    Moved ended;
    traffic.add(ended);
    ended.count(Way::push, 5);
    ended.count(Way::push, 7);
    kept.count(Way::push, 11);
    kept.count(Way::eager, 0);
    traffic.remove(ended);
    ended.count(Way::push, 1000);  // of no context any more
  }
  const auto sum = traffic.sum();
  EXPECT_EQ(sum[static_cast<size_t>(Way::push)].operations, 3u);
  EXPECT_EQ(sum[static_cast<size_t>(Way::push)].bytes, 23u);
  EXPECT_EQ(sum[static_cast<size_t>(Way::eager)].operations, 1u);
  EXPECT_EQ(traffic.json(),
            "{\"eager\": {\"operations\": 1, \"bytes\": 0}, \"frames\": {\"operations\": 0, \"bytes\": 0}, "
            "\"mapped\": {\"operations\": 0, \"bytes\": 0}, \"kernel\": {\"operations\": 0, \"bytes\": 0}, "
            "\"push\": {\"operations\": 3, \"bytes\": 23}, \"pull\": {\"operations\": 0, \"bytes\": 0}, "
            "\"staging\": {\"operations\": 0, \"bytes\": 0}}");
  traffic.remove(kept);
  traffic.remove(kept);  // once only
  EXPECT_EQ(traffic.sum()[static_cast<size_t>(Way::push)].operations, 3u);
}

TEST(Moved, IsReadWhileAnotherThreadCounts) {
  constexpr uint64_t kMany = 100'000;
  Traffic traffic;
  Moved moved;
  traffic.add(moved);
  std::thread counter([&] {
    for (uint64_t i = 0; i < kMany; ++i) moved.count(Way::frames, 3);
  });
  uint64_t last = 0;
  while (last < kMany) {
    const uint64_t now = traffic.sum()[static_cast<size_t>(Way::frames)].operations;
    ASSERT_GE(now, last);
    last = now;
  }
  counter.join();
  EXPECT_EQ(traffic.sum()[static_cast<size_t>(Way::frames)].bytes, 3 * kMany);
}

}  // namespace
}  // namespace thalweg::impl
