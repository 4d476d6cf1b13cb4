// SPDX-License-Identifier: Apache-2.0
// Messages of groups (kOpGroup) match apart from users' messages, by every protocol, and are bounded by the same credits.
#include "protocols/match.hpp"
#include "support.hpp"

namespace thalweg::test {
namespace {

constexpr uint64_t kAny = 0, kExact = ~0ull;

OpDesc of_group(OpDesc op) {
  op.flags |= kOpGroup;
  return op;
}

struct Way {
  const char* name;
  size_t length;
  uint32_t flags;
};
/// In one frame, in several, announced, answered.
constexpr Way kWays[] = {
    {"eager", 100, 0}, {"segmented", 20'000, 0}, {"announced", 500'000, 0}, {"synchronous", 100, TW_OP_SYNC}};

class GroupMessages : public ::testing::TestWithParam<Way> {
 protected:
  GroupMessages() : world({}, seed()), from(world.random, GetParam().length), mine(world.random, GetParam().length) {
    world.connect();
  }
  tw_request send(Buffer& what, bool group) {
    OpDesc op = send_op(world.a, what, 7, group ? 1 : 2);
    op.flags |= GetParam().flags;
    tw_request request = TW_REQUEST_NONE;
    const Status status = world.left->start(group ? of_group(op) : op, {&request});
    EXPECT_TRUE(status == TW_OK || status == TW_IN_PROGRESS) << status;
    return request;
  }
  tw_request receive(Buffer& to, uint64_t mask, bool group) {
    tw_request request = TW_REQUEST_NONE;
    const OpDesc op = receive_op(to.data(), to.size(), 7, mask);
    EXPECT_EQ(world.right->post_receive(group ? of_group(op) : op, {&request}), TW_IN_PROGRESS);
    return request;
  }
  void expect(tw_request request, uint64_t immediate) {
    world.settle(50);
    EXPECT_EQ(Engine::test(request), TW_OK);
    tw_recv_info info{};
    Engine::info(request, &info);
    EXPECT_EQ(info.immediate, immediate);
    EXPECT_EQ(info.length, GetParam().length);
    Engine::release(request);
  }
  void end(tw_request request) {
    if (request == TW_REQUEST_NONE) return;
    EXPECT_EQ(Engine::test(request), TW_OK);
    Engine::release(request);
  }
  World world;
  Buffer from, mine;
};
INSTANTIATE_TEST_SUITE_P(Ways, GroupMessages, testing::ValuesIn(kWays), [](const auto& info) { return info.param.name; });

TEST_P(GroupMessages, PassReceivesOfUsersThatTakeAnything) {
  Buffer to(world.random, from.size()), own(world.random, from.size());
  const tw_request users = receive(own, kAny, false), groups = receive(to, kExact, true);
  const tw_request sent = send(from, true);
  expect(groups, 1);
  EXPECT_TRUE(to.holds(from.data(), from.size()) && to.guarded());
  EXPECT_EQ(Engine::test(users), TW_IN_PROGRESS);
  const tw_request later = send(mine, false);
  expect(users, 2);
  EXPECT_TRUE(own.holds(mine.data(), mine.size()) && own.guarded());
  end(sent);
  end(later);
}

TEST_P(GroupMessages, ThatComeEarlyAreKeptApart) {
  Buffer to(world.random, from.size()), own(world.random, from.size());
  const tw_request sent = send(from, true), later = send(mine, false);
  world.settle(20);
  tw_recv_info info{};
  EXPECT_EQ(probe(*world.right, 7, kExact, nullptr, &info, nullptr), TW_OK);
  EXPECT_EQ(info.immediate, 2u) << "a probe sees users' messages alone";
  const tw_request groups = receive(to, kAny, true);
  expect(groups, 1);
  EXPECT_TRUE(to.holds(from.data(), from.size()) && to.guarded());
  const tw_request users = receive(own, kAny, false);
  expect(users, 2);
  EXPECT_TRUE(own.holds(mine.data(), mine.size()) && own.guarded());
  world.settle(20);
  end(sent);
  end(later);
}

TEST_P(GroupMessages, EndWithTheirPeer) {
  Buffer to(world.random, from.size());
  OpDesc op = of_group(receive_op(to.data(), to.size(), 7, kExact));
  op.peer = &world.b;
  tw_request bound = TW_REQUEST_NONE;
  ASSERT_EQ(world.right->post_receive(op, {&bound}), TW_IN_PROGRESS);
  const tw_request anyone = receive(to, kExact, true);
  world.right->fail(world.b, TW_ERR_PEER_LOST, "gone");
  EXPECT_EQ(Engine::test(bound), TW_ERR_PEER_LOST);
  EXPECT_EQ(Engine::test(anyone), TW_IN_PROGRESS);
  EXPECT_EQ(world.right->cancel(anyone), TW_OK);
  Engine::release(bound);
  Engine::release(anyone);
}

TEST(GroupMessagesOfAnEnemy, AreBoundedAsUsersAre) {
  World w;
  w.connect();
  const std::vector<std::byte> body(1000);
  for (int i = 0; i < 1'000'000 && w.b.state == TW_OK; ++i) {
    w.pb->inject(*w.lb, make_header(Frame::tagged, body.size(), static_cast<uint64_t>(i), 0, kFrameGroup), body);
    w.settle(1);
  }
  EXPECT_EQ(w.b.state, TW_ERR_PROTOCOL) << "more eager messages than it was granted";
}

}  // namespace
}  // namespace thalweg::test
