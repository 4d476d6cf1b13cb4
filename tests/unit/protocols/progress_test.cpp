// SPDX-License-Identifier: Apache-2.0
// Progress that finds nothing: a lone port that shows what comes is called only now and then, and nothing is missed for it.
#include "support.hpp"

namespace thalweg::test {
namespace {

constexpr unsigned kMany = 4096;  // calls of progress

/// A connected world whose left port shows what comes in words of the test's.
struct Watched : World {
  explicit Watched(bool multi = false) : World({}, seed(), 64u << 20, multi) {
    connect();
    settle();
    next.word = &word;
    next.parity = Port::Arrival::kParity;  // not there yet
    pa->glance = {&next, &bell, &events};
    rest();
  }
  /// The words have been looked at, and so has everything else.
  void rest() {
    for (unsigned i = 0; i < 4; ++i) left->progress();
  }
  /// How often the port is called by so many calls of progress.
  unsigned turns_of(unsigned calls) {
    const unsigned before = pa->turns;
    for (unsigned i = 0; i < calls; ++i) left->progress();
    return pa->turns - before;
  }
  uint64_t word = 0, bell = 0;
  std::atomic<bool> events{false};
  Port::Arrival next;
};

TEST(Progress, ALonePortThatShowsNothingIsCalledNowAndThen) {
  Watched world;
  const unsigned turns = world.turns_of(kMany);
  EXPECT_GT(turns, kMany / 256);
  EXPECT_LT(turns, kMany / 8);
  const unsigned before = world.pa->turns;
  for (unsigned i = 0; i < 100; ++i) world.left->progress(16);  // one that waits looks itself
  EXPECT_EQ(world.pa->turns - before, 100u);
}

TEST(Progress, WhateverThePortShowsIsTakenAtOnce) {
  Watched world;
  world.word = Port::Arrival::kParity;
  EXPECT_EQ(world.turns_of(10), 10u);
  world.word = 0;
  world.bell = 1;
  EXPECT_EQ(world.turns_of(10), 10u);
  world.bell = 0;
  world.events = true;
  EXPECT_EQ(world.turns_of(10), 10u);
  world.events = false;
  world.pa->glance.next = nullptr;
  EXPECT_EQ(world.turns_of(10), 10u);
}

TEST(Progress, WhatACallLeftIsDoneByTheNext) {
  Watched world;
  // A message that found no room.
  world.pa->allowed = 0;
  Buffer from(world.random, 8), to(world.random, 8);
  tw_request sent = TW_REQUEST_NONE;
  ASSERT_EQ(world.left->start(send_op(world.a, from, 1, 0), {&sent}), TW_IN_PROGRESS);
  world.pa->allowed = SIZE_MAX;
  world.left->progress();
  EXPECT_EQ(Engine::test(sent), TW_OK);
  Engine::release(sent);
  // A callback of what a call ended.
  world.rest();
  int called = 0;
  tw_request received = TW_REQUEST_NONE;
  const tw_callback count = [](void* arg, tw_request, tw_status status, const tw_recv_info*) {
    EXPECT_EQ(status, TW_ERR_CANCELED);
    ++*static_cast<int*>(arg);
  };
  Completion completion = calls(count, &called);
  completion.request = &received;
  ASSERT_EQ(post_short(*world.left, to.data(), to.size(), 2, ~0ull, completion), TW_IN_PROGRESS);
  world.rest();
  ASSERT_EQ(world.left->cancel(received), TW_OK);
  world.left->progress();
  EXPECT_EQ(called, 1);
  // A peer that is to be closed.
  world.rest();
  world.left->doom(world.a, TW_ERR_PROTOCOL, "as the test says");
  world.left->progress();
  EXPECT_EQ(world.a.state, TW_ERR_PROTOCOL);
}

TEST(Progress, LooksEverywhereBehindArmAndBehindAConnection) {
  Watched world;
  ASSERT_EQ(world.left->arm(), TW_OK);
  EXPECT_EQ(world.turns_of(1), 1u);
  world.rest();
  // Another port comes into use.
  auto other = std::make_unique<FakePort>(*world.left, FakeOptions{}, seed());
  FakePort& second = *other;
  FakePort far(*world.right, FakeOptions{}, seed());
  second.quiet = true;
  world.left->add_port(std::move(other));
  world.rest();
  EXPECT_EQ(second.turns, 0u);
  FakeLink *there, *back;
  FakePort::connect(second, far, &there, &back);
  second.quiet = false;
  Peer peer;
  world.left->attach(peer, *there);
  EXPECT_EQ(world.turns_of(100), 100u);
  EXPECT_EQ(second.turns, 100u);
  world.left->remove(peer);
}

TEST(Progress, WithALockThePortIsCalledEachTime) {
  Watched world(true);
  EXPECT_EQ(world.turns_of(100), 100u);
}

}  // namespace
}  // namespace thalweg::test
