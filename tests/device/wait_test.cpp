// SPDX-License-Identifier: Apache-2.0
// Bounded waits: every way that one ends, and what the host then reads.
#include <thalweg/thalweg.h>

#include "tests/device/thread_groups.hpp"

namespace thalweg::device::twins {
namespace {

bool wait_for(Watched& watched, u64* word, u64 value, u64 limit_ns, u64 what = 0) {
  const DirectMachine m;
  return await(m, watched.guard(limit_ns), what, value, WordHolds<DirectMachine>{m, word, Compare::greater_equal, value});
}

TEST(DeviceWait, CodesAreTheLibrarys) {
  EXPECT_EQ(kOutOfBounds, TW_ERR_OUT_OF_BOUNDS);
  EXPECT_EQ(kMisaligned, TW_ERR_MISALIGNED);
  EXPECT_EQ(kUnreachable, TW_ERR_UNREACHABLE);
  EXPECT_EQ(kTimedOut, TW_ERR_TIMED_OUT);
  EXPECT_EQ(kTruncated, TW_ERR_TRUNCATED);
  EXPECT_EQ(static_cast<int>(Compare::greater_equal), TW_COMPARE_GE);
  EXPECT_EQ(static_cast<int>(Compare::equal), TW_COMPARE_EQ);
  EXPECT_EQ(static_cast<int>(Compare::not_equal), TW_COMPARE_NE);
  EXPECT_EQ(static_cast<int>(SignalOp::set), TW_SIGNAL_SET);
  EXPECT_EQ(static_cast<int>(SignalOp::add), TW_SIGNAL_ADD);
}

TEST(DeviceWait, ComparesCyclically) {
  EXPECT_TRUE(holds(5, Compare::greater_equal, 5));
  EXPECT_FALSE(holds(4, Compare::greater_equal, 5));
  EXPECT_TRUE(holds(2, Compare::greater_equal, ~u64{0} - 1)) << "behind the wrap";
  EXPECT_FALSE(holds(~u64{0} - 1, Compare::greater_equal, 2));
  EXPECT_TRUE(holds(7, Compare::equal, 7) && !holds(7, Compare::equal, 8));
  EXPECT_TRUE(holds(7, Compare::not_equal, 8) && !holds(7, Compare::not_equal, 7));
}

TEST(DeviceWait, EndsWhenTheWordIsThere) {
  Watched watched;
  u64 word = 0;
  std::thread other([&] { __atomic_store_n(&word, 7, __ATOMIC_RELEASE); });
  EXPECT_TRUE(wait_for(watched, &word, 7, 20'000'000'000));
  other.join();
  EXPECT_EQ(watched.poison, 0u);
  EXPECT_EQ(watched.code(), 0);
}

TEST(DeviceWait, ExpiryPoisonsAndSaysWhatWasMissing) {
  Watched watched;
  u64 word = 3;
  EXPECT_FALSE(wait_for(watched, &word, 9, 1'000'000, 42));
  EXPECT_EQ(static_cast<i64>(watched.poison), TW_ERR_TIMED_OUT);
  EXPECT_EQ(watched.code(), TW_ERR_TIMED_OUT);
  EXPECT_EQ(watched.failure.what, 42u);
  EXPECT_EQ(watched.failure.expected, 9u);
  EXPECT_EQ(watched.failure.found, 3u);
}

TEST(DeviceWait, AFailureReleasesAllLaterWaitsAndStaysTheFirst) {
  Watched watched;
  u64 word = 3;
  EXPECT_FALSE(wait_for(watched, &word, 9, 0, 1));
  EXPECT_FALSE(wait_for(watched, &word, 8, 20'000'000'000, 2)) << "would hang";
  word = 100;
  EXPECT_FALSE(wait_for(watched, &word, 8, 20'000'000'000, 3)) << "also when the word is there";
  EXPECT_EQ(watched.failure.what, 1u);
}

TEST(DeviceWait, OneFailureReleasesWaitsThatAreUnderWay) {
  Watched watched;
  u64 word = 0;
  std::atomic<int> released{0};
  std::vector<std::thread> waiters;
  for (int i = 0; i < 3; ++i) waiters.emplace_back([&] { released += wait_for(watched, &word, 1, 20'000'000'000) ? 100 : 1; });
  EXPECT_FALSE(wait_for(watched, &word, 1, 1'000'000));
  for (std::thread& waiter : waiters) waiter.join();
  EXPECT_EQ(released, 3);
}

TEST(DeviceWait, TheHostAborts) {
  Watched watched;
  u64 word = 0;
  std::thread host([&] { __atomic_store_n(&watched.abort, static_cast<u64>(i64{TW_ERR_PEER_LOST}), __ATOMIC_RELEASE); });
  EXPECT_FALSE(wait_for(watched, &word, 1, 20'000'000'000, 5));
  host.join();
  EXPECT_EQ(watched.code(), TW_ERR_PEER_LOST);
  EXPECT_EQ(watched.failure.what, 5u);
}

TEST(DeviceWait, AGuardOfNothingButALimitWillDo) {
  u64 word = 0;
  const DirectMachine m;
  const Guard guard{nullptr, nullptr, nullptr, 1'000'000};
  EXPECT_FALSE(await(m, guard, 0, 1, WordHolds<DirectMachine>{m, &word, Compare::equal, 1}));
}

}  // namespace
}  // namespace thalweg::device::twins
