// SPDX-License-Identifier: Apache-2.0
// Byte streams: any cutting on either side, bounds, ends.
#include "protocols/bytes.hpp"

#include "support.hpp"

namespace thalweg::test {
namespace {

OpDesc bytes_op(Verb verb, Peer& peer, std::byte* address, size_t length, uint32_t flags = 0) {
  OpDesc op = send_op(peer, address, length, 0, 0);
  op.verb = verb;
  op.flags = flags;
  return op;
}

class Bytes : public ::testing::TestWithParam<uint32_t> {};

TEST_P(Bytes, ArriveInOrderHoweverCut) {
  FakeOptions options;
  options.features = GetParam();
  options.refuse = 0.1;
  World w(options, seed());
  w.connect();
  Buffer from(w.random, 3000000), to(w.random, 3000000);
  size_t sent = 0, posted = 0, got = 0;
  std::deque<tw_request> sends;
  while (got < from.size()) {
    if (w.random() % 2 == 0 && sent < from.size() && sends.size() < 50) {
      size_t n = std::min<size_t>(w.random() % 8 == 0 ? w.random() % 400000 : 1 + w.random() % 3000, from.size() - sent);
      sends.push_back(0);
      Status status = w.left->start(bytes_op(Verb::bytes_send, w.a, from.data() + sent, n), {&sends.back()});
      ASSERT_TRUE(status == TW_OK || status == TW_IN_PROGRESS);
      if (status == TW_OK) sends.pop_back();
      sent += n;
    }
    if (w.random() % 2 == 0 && sent > got) {
      bool all = w.random() % 2 == 0;
      size_t n = std::min<size_t>(1 + w.random() % 200000, (all ? sent : from.size()) - got);
      tw_request receive = 0;
      posted = got;
      ASSERT_EQ(w.right->start(bytes_op(Verb::bytes_recv, w.b, to.data() + posted, n, all ? TW_OP_WAIT_ALL : 0), {&receive}),
                TW_IN_PROGRESS);
      ASSERT_TRUE(w.finish(receive)) << got;
      ASSERT_EQ(Engine::test(receive), TW_OK);
      tw_recv_info info{};
      Engine::info(receive, &info);
      EXPECT_GE(info.length, 1u);
      EXPECT_LE(info.length, n);
      EXPECT_TRUE(!all || info.length == n);
      got += info.length;
      Engine::release(receive);
    }
    w.turn();
    while (!sends.empty() && Engine::test(sends.front()) == TW_OK) {
      Engine::release(sends.front());
      sends.pop_front();
    }
    EXPECT_LE(w.b.byte_stream ? w.b.byte_stream->kept : 0, w.b.granted_stream);
  }
  EXPECT_TRUE(to.holds(from.data(), from.size()));
  EXPECT_TRUE(to.guarded());
  for (tw_request send : sends) {
    ASSERT_TRUE(w.finish(send));
    Engine::release(send);
  }
  EXPECT_EQ(w.left->runs().alive(), 0u);
}
INSTANTIATE_TEST_SUITE_P(Links, Bytes, ::testing::Values(0u, static_cast<uint32_t>(kLinkByReference)));

TEST(BytesFlow, AStreamNobodyReadsStopsItsSenderAndNothingElse) {
  World w;
  w.connect();
  Buffer from(w.random, 1u << 20), one(w.random, 100), to(w.random, 100);
  tw_request send = 0, receive = 0;
  ASSERT_EQ(w.left->start(bytes_op(Verb::bytes_send, w.a, from.data(), from.size()), {&send}), TW_IN_PROGRESS);
  w.settle(500);
  EXPECT_EQ(Engine::test(send), TW_IN_PROGRESS);
  EXPECT_LE(w.b.byte_stream->kept, 64u << 10);
  EXPECT_EQ(w.left->start(send_op(w.a, one, 1, 0), {}), TW_OK);  // messages go on
  post(w, to, 1, ~0ull, &receive);
  ASSERT_TRUE(w.finish(receive));
  EXPECT_TRUE(to.holds(one.data(), 100));
  Engine::release(receive);
  w.pa->lose(*w.la);
  w.settle(5);
  EXPECT_EQ(Engine::test(send), TW_ERR_PEER_LOST);
  Engine::release(send);
  // What has arrived can still be read; then the loss shows.
  Buffer rest(w.random, 1u << 20);
  ASSERT_EQ(w.right->start(bytes_op(Verb::bytes_recv, w.b, rest.data(), rest.size()), {&receive}), TW_IN_PROGRESS);
  EXPECT_EQ(Engine::test(receive), TW_OK);
  tw_recv_info info{};
  Engine::info(receive, &info);
  EXPECT_TRUE(rest.holds(from.data(), info.length));
  Engine::release(receive);
  EXPECT_EQ(w.right->start(bytes_op(Verb::bytes_recv, w.b, rest.data(), 1), {&receive}), TW_ERR_PEER_LOST);
}

TEST(BytesCancel, OnlyWhileNothingHasArrived) {
  World w;
  w.connect();
  Buffer from(w.random, 10), to(w.random, 20);
  tw_request receive = 0;
  w.right->start(bytes_op(Verb::bytes_recv, w.b, to.data(), 20, TW_OP_WAIT_ALL), {&receive});
  EXPECT_EQ(w.right->cancel(receive), TW_OK);
  Engine::release(receive);
  w.right->start(bytes_op(Verb::bytes_recv, w.b, to.data(), 20, TW_OP_WAIT_ALL), {&receive});
  w.left->start(bytes_op(Verb::bytes_send, w.a, from.data(), 10), {});
  w.settle(5);
  EXPECT_EQ(w.right->cancel(receive), TW_ERR_BUSY);
  w.left->close(w.a, true);
  w.settle(5);
  EXPECT_EQ(Engine::test(receive), TW_ERR_CLOSED);
  Engine::release(receive);
}

}  // namespace
}  // namespace thalweg::test
