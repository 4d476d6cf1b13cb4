// SPDX-License-Identifier: Apache-2.0
// What peers whose link has ended leave unmatched: it stays receivable, counted, and bounded however many come and go.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "protocols/active.hpp"
#include "protocols/blocks.hpp"
#include "protocols/flow.hpp"
#include "protocols/match.hpp"
#include "support.hpp"

namespace thalweg::test {
namespace {

constexpr uint64_t kAll = ~uint64_t{0};

/// Sends what there is credit for, and closes. Returns how many are done; what is announced goes with its link.
int send_what_goes(World& w, Buffer& from, int first) {
  int sent = 0;
  tw_request request = TW_REQUEST_NONE;
  for (Status status = TW_OK; status == TW_OK; sent += status == TW_OK) {
    OpDesc op = send_op(w.a, from, 1, static_cast<uint64_t>(first + sent));
    op.flags = TW_OP_NO_WAIT;
    status = w.left->start(op, {&request});
    w.settle(3);
  }
  w.left->close(w.a, true);
  w.settle(5);
  Engine::release(request);
  return sent;
}

/// Peers connect, send what credit there is for, and go; nobody receives.
TEST(Flow, MessagesOfEndpointsThatHaveEndedStayWithinTheBudget) {
  constexpr uint64_t kBudget = 2u << 20;
  World w({}, seed(), kBudget);
  Buffer from(w.random, 3001), to(w.random, from.size());
  int sent = 0, turned_away = 0;
  for (int round = 0; round < 60; ++round) {
    if (round != 0) w.begin_again();
    w.connect();
    const uint64_t window = w.b.granted_bytes;
    w.settle(5);
    if (w.b.state == TW_OK) {
      sent += send_what_goes(w, from, sent);
    } else {
      ++turned_away;
      EXPECT_EQ(w.b.state, TW_ERR_LIMIT);
      EXPECT_EQ(w.a.state, TW_ERR_LIMIT);
      EXPECT_THAT(w.a.why, ::testing::HasSubstr("unexpected_budget"));
    }
    ASSERT_EQ(w.right->left, static_cast<uint64_t>(sent) * static_cast<uint64_t>(eager_cost(from.size())));
    ASSERT_LE(w.right->left, kBudget + window);
    ASSERT_EQ(w.right->granted, w.right->left);
  }
  EXPECT_GT(turned_away, 0);
  for (int i = 0; i < sent; ++i) {
    std::memset(to.data(), 0, to.size());
    tw_request receive = TW_REQUEST_NONE;
    post(w, to, 1, kAll, &receive);
    ASSERT_TRUE(w.finish(receive)) << i << " of " << sent;
    ASSERT_EQ(Engine::test(receive), TW_OK);
    tw_recv_info info{};
    Engine::info(receive, &info);
    EXPECT_EQ(info.immediate, static_cast<uint64_t>(i));
    EXPECT_TRUE(to.holds(from.data(), from.size()) && to.guarded());
    Engine::release(receive);
  }
  EXPECT_EQ(w.right->left, 0u);
  EXPECT_EQ(w.right->granted, 0u);
  w.begin_again();
  w.connect();
  w.settle(5);
  EXPECT_EQ(w.b.state, TW_OK);
  EXPECT_GT(send_what_goes(w, from, 0), 0) << "there is room again";
}

/// No receive of a group gets what a peer that has gone sent to none.
TEST(Flow, GroupMessagesGoWithTheirEndpoint) {
  World w({}, seed(), 1u << 20);
  const std::vector<std::byte> body(1000);
  for (uint64_t round = 0; round < 40; ++round) {
    if (round != 0) w.begin_again();
    w.connect();
    w.settle(3);
    ASSERT_EQ(w.b.state, TW_OK) << "round " << round;
    for (uint64_t i = 0; i < 50; ++i) {
      w.pb->inject(*w.lb, make_header(Frame::tagged, body.size(), i, 0, kFrameGroup), body);
      w.settle(1);
    }
    ASSERT_EQ(w.right->receives().held().unexpected, 50u);
    w.right->fail(w.b, TW_ERR_PEER_LOST, "gone");
    EXPECT_EQ(w.right->receives().held().unexpected, 50u) << "they can be received until the endpoint ends";
    EXPECT_EQ(w.right->left, 50u * static_cast<uint64_t>(eager_cost(body.size())));
    w.right->remove(w.b);
    ASSERT_EQ(w.right->receives().held().unexpected, 0u);
    ASSERT_EQ(w.right->left, 0u);
    ASSERT_EQ(w.right->granted, 0u);
  }
}

tw_status keep(void* arg, const tw_am_message* message) {
  *static_cast<tw_am_data**>(arg) = message->descriptor;
  return TW_IN_PROGRESS;
}

/// Every sort of message, received before its endpoint ends for good, and behind that.
TEST(Flow, WhatEndedEndpointsLeftIsCountedUntilItIsReceived) {
  for (const bool removed : {false, true}) {
    World w({}, seed());
    w.connect();
    w.settle(3);
    tw_am_data* kept[2] = {};
    set_handler(*w.right, 1, keep, &kept[0]);
    set_handler(*w.right, 2, keep, &kept[1]);
    std::vector<std::byte> body(700), part(900);
    const FirstBody first{1, 5000};
    std::memcpy(part.data(), &first, sizeof first);
    const auto inject = [&](FrameHeader header, const std::vector<std::byte>& bytes) {
      w.pb->inject(*w.lb, header, bytes);
      w.settle(2);
    };
    inject(make_header(Frame::tagged, 700, 5, 0), body);
    inject(make_header(Frame::tagged, 700, 6, 0), body);
    inject(make_header(Frame::am, 700, 10, 0, 0, 1), body);
    inject(make_header(Frame::am, 700, 600, 0, 0, 2), body);  // a long header
    body.resize(33);
    inject(make_header(Frame::notify, 33, 0, 0, 0, kNotifyQueue), body);
    inject(make_header(Frame::tagged_first, part.size(), 7, 0), part);  // its rest does not come
    ASSERT_EQ(w.b.state, TW_OK);
    tw_message* taken = nullptr;
    ASSERT_EQ(probe(*w.right, 6, kAll, nullptr, nullptr, &taken), TW_OK);
    const auto cost = [](uint64_t bytes) { return static_cast<uint64_t>(eager_cost(bytes)); };
    EXPECT_EQ(w.b.held_bytes, 4 * cost(700) + cost(33) + cost(5000));
    w.pa->lose(*w.la);
    w.settle(3);
    EXPECT_EQ(w.right->left, 4 * cost(700) + cost(33));
    EXPECT_EQ(w.right->granted, w.right->left);
    if (removed) w.right->remove(w.b);
    Buffer to(w.random, 700);
    tw_request receive[3] = {};
    post(w, to, 5, kAll, &receive[0]);
    ASSERT_EQ(receive_message(taken, receive_op(to.data(), to.size(), 0, 0), {&receive[1]}), TW_IN_PROGRESS);
    ASSERT_NE(kept[0], nullptr);
    ASSERT_NE(kept[1], nullptr);
    ASSERT_EQ(active_receive(kept[0], receive_op(to.data(), to.size(), 0, 0), {&receive[2]}), TW_IN_PROGRESS);
    EXPECT_EQ(active_release(kept[1]), TW_OK);
    for (const tw_request one : receive) {
      EXPECT_EQ(Engine::test(one), TW_OK);
      Engine::release(one);
    }
    EXPECT_EQ(w.right->left, cost(33));
    tw_notification told{};
    EXPECT_EQ(next_notification(*w.right, &told), TW_OK);
    EXPECT_EQ(w.right->left, 0u);
    EXPECT_EQ(w.right->granted, 0u);
  }
}

}  // namespace
}  // namespace thalweg::test
