// SPDX-License-Identifier: Apache-2.0
#include "routes/traffic.hpp"

#include <gtest/gtest.h>

#include <random>
#include <thread>

namespace thalweg::impl {
namespace {

constexpr size_t at(Way way) { return static_cast<size_t>(way); }

TEST(Traffic, IsSummedOverThoseAliveAndThoseThatEnded) {
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
  EXPECT_EQ(sum[at(Way::push)].operations, 3u);
  EXPECT_EQ(sum[at(Way::push)].bytes, 23u);
  EXPECT_EQ(sum[at(Way::eager)].operations, 1u);
  traffic.remove(kept);
  traffic.remove(kept);  // once only
  EXPECT_EQ(traffic.sum()[at(Way::push)].operations, 3u);
}

TEST(Traffic, IsReadWhileAnotherThreadCounts) {
  constexpr uint64_t kMany = 100'000;
  Traffic traffic;
  EndpointTally tally;
  traffic.add(tally, 1);
  std::thread counter([&] {
    for (uint64_t i = 0; i < kMany; ++i) tally.moved.count(Way::frames, 3);
  });
  uint64_t last = 0;
  while (last < kMany) {
    const uint64_t now = traffic.sum()[at(Way::frames)].operations;
    ASSERT_GE(now, last);
    last = now;
  }
  counter.join();
  EXPECT_EQ(traffic.sum()[at(Way::frames)].bytes, 3 * kMany);
}

TEST(Traffic, EndpointsAreListedWhileTheyAreThereAndSummedByWorkerThen) {
  std::mt19937_64 random(std::random_device{}());
  const uint64_t bytes = random() % 1'000'000 + 1, worker = random();
  Traffic traffic;
  EndpointTally first, second;
  traffic.add(first, worker);
  traffic.add(first, worker);  // is known already
  traffic.add(second, worker + 1);
  std::map<uint64_t, EndpointCounts> gone;
  ASSERT_EQ(traffic.endpoints(&gone).size(), 2u);
  EXPECT_EQ(traffic.endpoints(&gone)[0].state, TW_IN_PROGRESS);
  PeerIdentity peer;
  peer.worker = random();
  peer.pid = 4711;
  traffic.connected(first, "shm", peer);
  first.moved.count(Way::eager, bytes);
  first.received.add();
  first.received_bytes.add(bytes / 2);
  const EndpointCounts shown = traffic.endpoints(&gone)[0];
  EXPECT_STREQ(shown.transport, "shm");
  EXPECT_EQ(shown.peer.worker, peer.worker);
  EXPECT_EQ(shown.state, TW_OK);
  EXPECT_EQ(shown.messages_sent(), 1u);
  EXPECT_EQ(shown.bytes_sent(), bytes);
  EXPECT_EQ(shown.bytes_received(), bytes / 2);
  EXPECT_TRUE(gone.empty());
  traffic.lost(first, TW_ERR_PEER_LOST);
  EXPECT_EQ(traffic.endpoints(&gone)[0].state, TW_ERR_PEER_LOST);
  traffic.remove(first);
  const auto left = traffic.endpoints(&gone);
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].worker, worker + 1);
  EXPECT_GT(left[0].id, shown.id);
  ASSERT_EQ(gone.count(worker), 1u);
  EXPECT_EQ(gone[worker].bytes_sent(), bytes);
  EXPECT_EQ(traffic.sum()[at(Way::eager)].bytes, bytes);
  traffic.forget(worker);
  (void)traffic.endpoints(&gone);
  EXPECT_TRUE(gone.empty());
  EXPECT_EQ(traffic.sum()[at(Way::eager)].bytes, bytes) << "what the context has moved stays";
  traffic.remove(second);
}

/// What this side fetched is counted by its way, too, and is no access.
TEST(Traffic, AccessesAreWhatIsNoMessage) {
  EndpointTally tally;
  tally.moved.count(Way::mapped, 100);   // a put
  tally.moved.count(Way::mapped, 1000);  // a message that was fetched
  tally.fetched.add();
  tally.fetched_bytes.add(1000);
  tally.moved.count(Way::eager, 7);
  tally.moved.count(Way::frames, 50);  // of a byte stream
  tally.stream_sends.add();
  tally.stream_sent.add(50);
  EndpointCounts counts;
  counts.read(tally);
  EXPECT_EQ(counts.accesses().operations, 1u);
  EXPECT_EQ(counts.accesses().bytes, 100u);
  counts.fetched_bytes = 5000;  // was read later than what it is a part of
  EXPECT_EQ(counts.accesses().bytes, 0u);
}

}  // namespace
}  // namespace thalweg::impl
