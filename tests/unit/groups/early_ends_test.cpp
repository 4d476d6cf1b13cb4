// SPDX-License-Identifier: Apache-2.0
// Ranks of which some end their world as soon as their part of a collective is over, while others have yet to call it.
#include <chrono>
#include <functional>
#include <random>

#include "worlds.hpp"

namespace thalweg::test {
namespace {

constexpr uint32_t kSize = 4;

/// The same on all ranks: of each one.
std::vector<int64_t> numbers(uint64_t seed, uint32_t rank, size_t count) {
  std::mt19937_64 random(seed + rank);
  std::vector<int64_t> values(count);
  for (int64_t& one : values) one = static_cast<int64_t>(random() >> 4);
  return values;
}

tw_status finish(tw_status begun, tw_request request) { return begun == TW_IN_PROGRESS ? tw_request_finish(request) : begun; }

/// Progresses until so many ranks have ended. False: they do not.
bool others_end(Group& world, const std::atomic<uint32_t>& ended, uint32_t count) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (ended < count && std::chrono::steady_clock::now() < limit) (void)!tw_worker_progress(world.worker().get());
  for (int i = 0; i < 1000; ++i) (void)!tw_worker_progress(world.worker().get());  // the ends of connections, too
  return ended >= count;
}

void end(Group& world, std::atomic<uint32_t>& ended) {
  EXPECT_EQ(world.destroy(), TW_OK) << tw_last_error();
  ++ended;
}

/// connected: every rank has an endpoint to each other before. Else those that come late have none to those that have ended.
struct Before {
  const char* transports;
  bool connected;
  void reach(Group& world) const {
    if (!connected) return;
    for (uint32_t i = 0; i < kSize; ++i) EXPECT_EQ(tw_endpoint_wait(world.endpoint(i), 20 * kSecond), TW_OK) << tw_last_error();
    world.barrier();
  }
};
constexpr Before kBefore[] = {{nullptr, false}, {nullptr, true}, {"self,tcp", false}, {"self,tcp", true}};

/// A world each way: what `body` does, and then each rank's end.
void for_each_before(const std::function<void(Group& world, std::atomic<uint32_t>& ended)>& body) {
  for (const Before& before : kBefore) {
    std::atomic<uint32_t> ended{0};
    WorldOptions how;
    how.transports = before.transports;
    run_worlds(
        kSize,
        [&](Group& world) {
          before.reach(world);
          body(world, ended);
          if (testing::Test::HasFatalFailure()) return;
          end(world, ended);
        },
        how);
  }
}

tw_collective_options binomial() {
  tw_collective_options options = TW_COLLECTIVE_OPTIONS_INIT;
  options.algorithm = "binomial";
  return options;
}

TEST(EarlyEnds, WhatTheSendersOfAReductionGaveCounts) {
  const uint64_t seed = std::random_device{}();
  const tw_collective_options options = binomial();
  for_each_before([&](Group& world, std::atomic<uint32_t>& ended) {
    constexpr size_t kCount = 151;
    const bool root = world.rank() == 0;
    const auto in = numbers(seed, world.rank(), kCount);
    std::vector<int64_t> out(kCount, -1), expected(kCount, 0);
    if (root) ASSERT_TRUE(others_end(world, ended, kSize - 1));
    tw_request request = TW_REQUEST_NONE;
    const tw_status begun =
        tw_reduce(world.get(), in.data(), out.data(), kCount, TW_TYPE_INT64, TW_REDUCE_SUM, 0, &options, &request);
    ASSERT_EQ(finish(begun, request), TW_OK) << tw_last_error();
    for (uint32_t rank = 0; rank < kSize; ++rank) {
      const auto one = numbers(seed, rank, kCount);
      for (size_t i = 0; i < kCount; ++i) expected[i] += one[i];
    }
    if (root) EXPECT_EQ(out, expected);
  });
}

TEST(EarlyEnds, WhatTheRootOfABroadcastGaveCounts) {
  const uint64_t seed = std::random_device{}();
  const tw_collective_options options = binomial();
  for_each_before([&](Group& world, std::atomic<uint32_t>& ended) {
    constexpr uint32_t kRoot = 2;
    const auto expected = numbers(seed, 0, 151);
    std::vector<int64_t> values(expected.size(), -1);
    if (world.rank() == kRoot) values = expected;
    if (world.rank() != kRoot) ASSERT_TRUE(others_end(world, ended, 1));
    tw_request request = TW_REQUEST_NONE;
    const tw_status begun = tw_broadcast(world.get(), values.data(), values.size(), TW_TYPE_INT64, kRoot, &options, &request);
    ASSERT_EQ(finish(begun, request), TW_OK) << tw_last_error();
    EXPECT_EQ(values, expected);
  });
}

/// Nobody had an endpoint to it, and none can be made any more: lost all the same, and named to all.
TEST(EarlyEnds, ARankThatNoneCanReachIsLost) {
  for (const char* transports : {static_cast<const char*>(nullptr), "self,tcp"}) {
    std::atomic<uint32_t> ended{0};
    WorldOptions how;
    how.transports = transports;
    run_worlds(
        kSize,
        [&](Group& world) {
          if (world.rank() == 1) return end(world, ended);
          ASSERT_TRUE(others_end(world, ended, 1));
          const auto in = numbers(1, world.rank(), 7);
          std::vector<int64_t> out(in.size());
          tw_request request = TW_REQUEST_NONE;
          const tw_status begun =
              tw_allreduce(world.get(), in.data(), out.data(), in.size(), TW_TYPE_INT64, TW_REDUCE_SUM, nullptr, &request);
          EXPECT_EQ(finish(begun, request), TW_ERR_PEER_LOST) << tw_last_error();
          EXPECT_NE(std::string(tw_last_error()).find("rank 1"), std::string::npos) << tw_last_error();
          EXPECT_EQ(tw_barrier(world.get(), nullptr, nullptr), TW_ERR_PEER_LOST) << tw_last_error();
        },
        how);
  }
}

}  // namespace
}  // namespace thalweg::test
