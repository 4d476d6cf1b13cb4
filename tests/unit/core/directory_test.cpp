// SPDX-License-Identifier: Apache-2.0
// The rules of simultaneous connects, step by step.
#include "core/directory.hpp"

#include <gtest/gtest.h>

namespace thalweg::impl {
namespace {

using Decision = Directory::Decision;
using State = Directory::State;

constexpr WorkerId kSelf = 100, kLower = 50, kHigher = 200;

tw_endpoint* endpoint(uintptr_t number) { return reinterpret_cast<tw_endpoint*>(number << 4); }

void go_out(Directory& directory, WorkerId peer, uint64_t key, tw_endpoint* who) {
  directory.entries[peer] = {State::outgoing, who, key, 0};
}

TEST(Directory, LowerIdWins) {
  Directory directory(kSelf);
  go_out(directory, kLower, 1, endpoint(1));
  go_out(directory, kHigher, 2, endpoint(2));
  EXPECT_EQ(directory.arrived(kLower, 7, 0), Decision::answer);
  EXPECT_EQ(directory.arrived(kHigher, 8, 0), Decision::superseded);
  uint64_t own = 0;
  EXPECT_TRUE(directory.confirmed(kLower, 7, 0, &own));
  EXPECT_EQ(own, 1u);
  EXPECT_FALSE(directory.won(kLower, 1, 70)) << "the peer's attempt was confirmed first";
  EXPECT_TRUE(directory.won(kHigher, 2, 80));
  EXPECT_EQ(directory.entries[kLower].token, 7u);
  EXPECT_EQ(directory.entries[kLower].endpoint, endpoint(1));
}

TEST(Directory, LateRivalOfAnEstablishedConnectionIsSuperseded) {
  Directory directory(kSelf);
  go_out(directory, kHigher, 2, endpoint(2));
  EXPECT_TRUE(directory.won(kHigher, 2, 80));
  EXPECT_EQ(directory.arrived(kHigher, 9, 0), Decision::superseded);
}

TEST(Directory, ReconnectNamesWhatItReplaces) {
  Directory directory(kSelf);
  uint64_t own = 0;
  EXPECT_EQ(directory.arrived(kHigher, 5, 0), Decision::answer);
  EXPECT_TRUE(directory.confirmed(kHigher, 5, 0, &own));
  EXPECT_EQ(directory.arrived(kHigher, 6, 5), Decision::answer);
  EXPECT_TRUE(directory.confirmed(kHigher, 6, 5, &own));
  EXPECT_EQ(directory.entries[kHigher].token, 6u);
}

TEST(Directory, EndOfTheOldDoesNotTouchTheNew) {
  Directory directory(kSelf);
  uint64_t own = 0;
  directory.arrived(kHigher, 5, 0);
  directory.confirmed(kHigher, 5, 0, &own);
  directory.entries[kHigher].endpoint = endpoint(1);
  directory.arrived(kHigher, 6, 5);
  directory.confirmed(kHigher, 6, 5, &own);
  directory.forget(kHigher, endpoint(1), 5);
  ASSERT_EQ(directory.entries.count(kHigher), 1u);
  EXPECT_EQ(directory.entries[kHigher].token, 6u);
  EXPECT_EQ(directory.entries[kHigher].endpoint, nullptr);
}

TEST(Directory, BrokenIncomingAttemptIsTriedFromHere) {
  Directory directory(kSelf);
  EXPECT_EQ(directory.arrived(kHigher, 5, 0), Decision::answer);
  EXPECT_FALSE(directory.broke(kHigher, 4)) << "another attempt";
  directory.entries[kHigher].endpoint = endpoint(3);
  EXPECT_TRUE(directory.broke(kHigher, 5));
  EXPECT_EQ(directory.entries[kHigher].state, State::outgoing);
  EXPECT_EQ(directory.arrived(kLower, 6, 0), Decision::answer);
  EXPECT_FALSE(directory.broke(kLower, 6));
  EXPECT_EQ(directory.entries.count(kLower), 0u) << "nobody here waits for it";
}

TEST(Directory, DroppedConnectionIsRememberedAsEnded) {
  Directory directory(kSelf);
  go_out(directory, kHigher, 2, nullptr);
  EXPECT_TRUE(directory.won(kHigher, 2, 80));
  EXPECT_FALSE(directory.dropped(kHigher, 80));
  EXPECT_EQ(directory.entries.count(kHigher), 0u);
  EXPECT_EQ(directory.last_ended(kHigher), 80u);
}

TEST(Directory, TheNewestEndsAreKept) {
  Directory directory(kSelf);
  constexpr size_t kPeers = 3 * Directory::kEndedKept;
  uint64_t own = 0;
  const auto end = [&](WorkerId peer, uint64_t token) {
    directory.arrived(peer, token, directory.last_ended(peer));
    ASSERT_TRUE(directory.confirmed(peer, token, directory.last_ended(peer), &own));
    directory.entries[peer].endpoint = endpoint(1);
    directory.forget(peer, endpoint(1), token);
  };
  for (uint64_t i = 0; i < kPeers; ++i) {
    end(1000 + i, 7000 + i);
    if (i % 1000 == 0) end(kHigher, 500 + i);  // comes again and again
  }
  size_t kept = 0;
  for (uint64_t i = 0; i < kPeers; ++i) kept += directory.last_ended(1000 + i) != 0;
  EXPECT_LE(kept, Directory::kEndedKept);
  EXPECT_GE(kept, Directory::kEndedKept - 100);
  EXPECT_EQ(directory.last_ended(1000), 0u);
  EXPECT_EQ(directory.last_ended(1000 + kPeers - 1), 7000 + kPeers - 1);
  EXPECT_EQ(directory.last_ended(kHigher), 500 + (kPeers - 1) / 1000 * 1000);
  EXPECT_TRUE(directory.entries.empty());
}

}  // namespace
}  // namespace thalweg::impl
