// SPDX-License-Identifier: Apache-2.0
// A short receive that is posted while nothing is to match stays outside the matcher: nobody may notice.
#include "support.hpp"

namespace thalweg::test {
namespace {

struct Sole : World {
  Sole() : World({}, seed()), first(random, 32), second(random, 32), other(random, 32) {
    connect();
    settle(3);
  }
  tw_request post(Buffer& to, uint64_t tag, uint64_t mask = ~0ull) {
    tw_request request = TW_REQUEST_NONE;
    EXPECT_EQ(post_short(*right, to.data(), to.size(), tag, mask, &request), TW_IN_PROGRESS);
    return request;
  }
  void send(Buffer& from, uint64_t tag, uint8_t flags = 0) {
    ASSERT_EQ(left->try_send(a, from.data(), from.size(), tag, 0, flags), TW_OK);
    settle(2);
  }
  /// It has ended well with these bytes.
  void expect_got(tw_request request, Buffer& to, Buffer& from) {
    EXPECT_EQ(Engine::test(request), TW_OK);
    EXPECT_TRUE(to.holds(from.data(), from.size()));
    EXPECT_TRUE(to.guarded());
    tw_recv_info info{};
    EXPECT_EQ(Engine::info(request, &info), TW_OK);
    EXPECT_EQ(info.length, from.size());
    EXPECT_EQ(Engine::release(request), TW_OK);
  }
  Buffer first, second, other;
};

TEST(SoleReceive, TakesItsMessageAndLeavesOthers) {
  Sole w;
  Buffer to(w.random, 32), later(w.random, 32);
  const tw_request request = w.post(to, 5);
  w.send(w.other, 6);
  EXPECT_EQ(Engine::test(request), TW_IN_PROGRESS);
  w.send(w.first, 5);
  w.expect_got(request, to, w.first);
  w.expect_got(w.post(later, 6), later, w.other);
  EXPECT_EQ(w.right->runs().alive(), 0u);
}

TEST(SoleReceive, IsTheFirstOfThosePostedAfterIt) {
  Sole w;
  Buffer any(w.random, 32), exact(w.random, 32);
  const tw_request wild = w.post(any, 0, 0), behind = w.post(exact, 5);
  w.send(w.first, 5);
  EXPECT_EQ(Engine::test(behind), TW_IN_PROGRESS);
  w.send(w.second, 5);
  w.expect_got(wild, any, w.first);
  w.expect_got(behind, exact, w.second);
  // And before a thread's that waits.
  const tw_request before = w.post(any, 5);
  WaitedReceive waited{exact.data(), exact.size(), 5, ~0ull};
  post_wait(*w.right, waited);
  w.send(w.second, 5);
  EXPECT_FALSE(waited.done());
  w.send(w.first, 5);
  w.expect_got(before, any, w.second);
  ASSERT_TRUE(waited.done());
  EXPECT_EQ(end_wait(*w.right, waited), TW_OK);
  EXPECT_TRUE(exact.holds(w.first.data(), w.first.size()));
}

TEST(SoleReceive, ACanceledOneTakesNothing) {
  Sole w;
  Buffer to(w.random, 32), later(w.random, 32);
  int called = 0;
  Completion completion = calls(
      [](void* arg, tw_request, tw_status status, const tw_recv_info*) {
        EXPECT_EQ(status, TW_ERR_CANCELED);
        ++*static_cast<int*>(arg);
      },
      &called);
  tw_request request = TW_REQUEST_NONE;
  completion.request = &request;
  ASSERT_EQ(post_short(*w.right, to.data(), to.size(), 5, ~0ull, completion), TW_IN_PROGRESS);
  ASSERT_EQ(w.right->cancel(request), TW_OK);
  w.send(w.first, 5);
  EXPECT_EQ(called, 1);
  EXPECT_EQ(w.right->cancel(request), TW_ERR_HANDLE);
  w.expect_got(w.post(later, 5), later, w.first);
  EXPECT_EQ(w.right->runs().alive(), 0u);
}

TEST(SoleReceive, LeavesMessagesOfGroupsAlone) {
  Sole w;
  Buffer to(w.random, 32), of_group(w.random, 32);
  const tw_request request = w.post(to, 5);
  w.send(w.other, 5, kFrameGroup);
  EXPECT_EQ(Engine::test(request), TW_IN_PROGRESS);
  OpDesc op = receive_op(of_group.data(), of_group.size(), 5, ~0ull);
  op.flags = kOpGroup;
  tw_request group = TW_REQUEST_NONE;
  ASSERT_EQ(w.right->post_receive(op, {&group}), TW_IN_PROGRESS);
  w.send(w.first, 5);
  w.expect_got(group, of_group, w.other);
  w.expect_got(request, to, w.first);
}

TEST(SoleReceive, TakesMessagesOfAnyForm) {
  Sole w;
  for (const size_t size : {size_t{0}, size_t{8}, size_t{4000}, size_t{20000}, size_t{3} << 20}) {
    for (const uint32_t flags : {0u, uint32_t{TW_OP_SYNC}}) {
      Buffer from(w.random, size), to(w.random, size);
      const tw_request received = w.post(to, 9);
      OpDesc op = send_op(w.a, from, 9, 0);
      op.flags = flags;
      tw_request sent = TW_REQUEST_NONE;
      const Status status = w.left->start(op, {&sent});
      ASSERT_TRUE(status == TW_OK || status == TW_IN_PROGRESS);
      ASSERT_TRUE(w.finish(received)) << size;
      w.expect_got(received, to, from);
      if (sent != TW_REQUEST_NONE) {
        ASSERT_TRUE(w.finish(sent));
        Engine::release(sent);
      }
    }
  }
  EXPECT_EQ(w.right->runs().alive(), 0u);
}

TEST(SoleReceive, ShortMessagesOfAnyLengthAreToldWhole) {
  Sole w;
  struct Told {
    Status status = TW_IN_PROGRESS;
    tw_recv_info info{};
    unsigned times = 0;
  };
  const tw_callback tell = [](void* arg, tw_request, tw_status status, const tw_recv_info* info) {
    Told& told = *static_cast<Told*>(arg);
    told = {status, *info, told.times + 1};
  };
  // So many that credit must come back.
  for (uint64_t round = 0; round < 6000; ++round) {
    const size_t size = w.random() % 3 == 0 ? 8 : w.random() % 130, room = size + w.random() % 3;
    Buffer from(w.random, size), to(w.random, room);
    const uint64_t tag = w.random(), immediate = w.random();
    Told told;
    ASSERT_EQ(post_short(*w.right, to.data(), room, tag, ~0ull, calls(tell, &told)), TW_IN_PROGRESS);
    ASSERT_EQ(w.left->try_send(w.a, from.data(), size, tag, immediate), TW_OK) << round;
    w.settle(2);
    ASSERT_EQ(told.times, 1u);
    ASSERT_EQ(told.status, TW_OK);
    ASSERT_EQ(told.info.tag, tag);
    ASSERT_EQ(told.info.immediate, immediate);
    ASSERT_EQ(told.info.length, size);
    ASSERT_EQ(told.info.endpoint, w.b.endpoint);
    ASSERT_TRUE(to.holds(from.data(), size)) << size;
    ASSERT_TRUE(to.guarded());
  }
  EXPECT_EQ(w.right->runs().alive(), 0u);
}

TEST(SoleReceive, ATooLongMessageIsTruncated) {
  Sole w;
  Buffer to(w.random, 7);
  const tw_request request = w.post(to, 5);
  w.send(w.first, 5);
  EXPECT_EQ(Engine::test(request), TW_ERR_TRUNCATED);
  EXPECT_TRUE(to.holds(w.first.data(), 7));
  EXPECT_TRUE(to.guarded());
  Engine::release(request);
}

TEST(SoleReceive, AReleasedOneStillTakesItsMessage) {
  Sole w;
  Buffer to(w.random, 32);
  EXPECT_EQ(Engine::release(w.post(to, 5)), TW_OK);
  w.send(w.first, 5);
  EXPECT_TRUE(to.holds(w.first.data(), w.first.size()));
  EXPECT_EQ(w.right->runs().alive(), 0u);
}

TEST(SoleReceive, ItsCallbackMayPostAndMayNotProgress) {
  Sole w;
  struct Called {
    Sole* w;
    Buffer* next;
    tw_request request = TW_REQUEST_NONE, again = TW_REQUEST_NONE;
    unsigned times = 0;
  };
  Buffer to(w.random, 32), next(w.random, 32);
  Called called{&w, &next};
  Completion completion = calls(
      [](void* arg, tw_request request, tw_status status, const tw_recv_info* info) {
        Called& of = *static_cast<Called*>(arg);
        ++of.times;
        EXPECT_EQ(status, TW_OK);
        EXPECT_EQ(request, of.request);
        EXPECT_EQ(info->length, 32u);
        EXPECT_FALSE(of.w->right->may_progress());
        EXPECT_FALSE(of.w->left->may_progress()) << "a callback of another worker";
        of.again = of.w->post(*of.next, 6);
      },
      &called);
  completion.request = &called.request;
  ASSERT_EQ(post_short(*w.right, to.data(), to.size(), 5, ~0ull, completion), TW_IN_PROGRESS);
  w.send(w.first, 5);
  EXPECT_EQ(called.times, 1u);
  EXPECT_TRUE(to.holds(w.first.data(), w.first.size()));
  EXPECT_TRUE(w.right->may_progress());
  EXPECT_TRUE(w.left->may_progress());
  w.send(w.second, 6);
  w.expect_got(called.again, next, w.second);
  EXPECT_EQ(w.right->runs().alive(), 0u);
}

TEST(SoleReceive, EndsWithItsWorker) {
  int called = 0;
  std::mt19937_64 random(seed());
  Buffer to(random, 32);
  {
    Sole w;
    const tw_callback count = [](void* arg, tw_request, tw_status status, const tw_recv_info*) {
      EXPECT_EQ(status, TW_ERR_CLOSED);
      ++*static_cast<int*>(arg);
    };
    ASSERT_EQ(post_short(*w.right, to.data(), to.size(), 5, ~0ull, calls(count, &called)), TW_IN_PROGRESS);
  }
  EXPECT_EQ(called, 1);
}

}  // namespace
}  // namespace thalweg::test
