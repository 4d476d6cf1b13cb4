// SPDX-License-Identifier: Apache-2.0
// Active messages: headers, payloads of every size, kept and fetched later, dropped, lost; replies from handlers.
#include "protocols/active.hpp"

#include "protocols/flow.hpp"
#include "support.hpp"

namespace thalweg::test {
namespace {

struct Got {
  enum Do { look, keep, fetch_inside } what = look;
  World* world = nullptr;
  Buffer* to = nullptr;
  int calls = 0;
  uint16_t id = 0;
  std::vector<std::byte> header, data;
  bool here = false;
  size_t length = 0;
  tw_endpoint* endpoint = nullptr;
  std::vector<tw_am_data*> kept;
  tw_request request = 0;
};

tw_status handle(void* arg, const tw_am_message* message) {
  Got& got = *static_cast<Got*>(arg);
  ++got.calls;
  got.id = message->id;
  got.endpoint = message->endpoint;
  const std::byte* header = static_cast<const std::byte*>(message->header);
  const std::byte* data = static_cast<const std::byte*>(message->data);
  got.header.assign(header, header + message->header_length);
  got.here = data != nullptr;
  got.length = message->length;
  if (data != nullptr) got.data.assign(data, data + message->length);
  if (got.what == Got::keep) {
    got.kept.push_back(message->descriptor);
    return TW_IN_PROGRESS;
  }
  if (got.what == Got::fetch_inside) {
    OpDesc op = receive_op(got.to->data(), got.to->size(), 0, 0);
    op.verb = Verb::am_recv;
    EXPECT_EQ(got.world->right->active_receive(message->descriptor, op, {&got.request}), TW_IN_PROGRESS);
  }
  return TW_OK;
}

OpDesc am_op(Peer& peer, Buffer& from, uint16_t id, Buffer& header, uint32_t flags) {
  OpDesc op = send_op(peer, from, id, 0);
  op.verb = Verb::am;
  op.header = header.data();
  op.header_length = static_cast<uint32_t>(header.size());
  op.flags = flags;
  return op;
}

struct Case {
  const char* name;
  FakeOptions options;
};
class Active : public ::testing::TestWithParam<Case> {};

TEST_P(Active, PayloadsOfEverySizeLookedAtKeptOrFetched) {
  World w(GetParam().options, seed());
  w.connect();
  Got got;
  got.world = &w;
  ASSERT_EQ(w.right->set_handler(4095, handle, &got), TW_OK);
  EXPECT_EQ(w.right->set_handler(4096, handle, &got), TW_ERR_LIMIT);
  for (size_t size : {0, 1, 8, 3900, 4096, 5000, 60000, 200000, 1000000}) {
    for (uint32_t flags : {0u, static_cast<uint32_t>(TW_OP_RENDEZVOUS), static_cast<uint32_t>(TW_OP_EAGER)}) {
      if (flags == TW_OP_EAGER && size > 60000) continue;
      for (Got::Do what : {Got::look, Got::keep, Got::fetch_inside}) {
        Buffer from(w.random, size), header(w.random, w.random() % 257), to(w.random, size);
        int before = got.calls;
        got.what = what;
        got.to = &to;
        tw_request send = 0;
        Status status = w.left->start(am_op(w.a, from, 4095, header, flags), {&send});
        ASSERT_TRUE(status == TW_OK || status == TW_IN_PROGRESS) << size;
        for (int i = 0; i < 100000 && got.calls == before; ++i) w.turn();
        ASSERT_EQ(got.calls, before + 1) << size << " " << w.b.why;
        EXPECT_EQ(got.endpoint, w.b.endpoint);
        EXPECT_EQ(got.length, size);
        EXPECT_EQ(got.header.size(), header.size());
        EXPECT_TRUE(header.holds(got.header.data(), got.header.size()));
        EXPECT_TRUE(flags != TW_OP_EAGER || got.here || size == 0);
        EXPECT_FALSE(flags == TW_OP_RENDEZVOUS && size != 0 && got.here);
        EXPECT_TRUE(!got.here || from.holds(got.data.data(), size));
        if (what == Got::keep) {
          w.settle(20);
          OpDesc op = receive_op(to.data(), size, 0, 0);
          ASSERT_EQ(w.right->active_receive(got.kept.back(), op, {&got.request}), TW_IN_PROGRESS);
          got.kept.clear();
        }
        if (what != Got::look) {
          ASSERT_TRUE(w.finish(got.request)) << size;
          EXPECT_EQ(Engine::test(got.request), TW_OK);
          EXPECT_TRUE(to.holds(from.data(), size)) << size;
          EXPECT_TRUE(to.guarded());
          Engine::release(got.request);
        }
        if (status == TW_IN_PROGRESS) {
          ASSERT_TRUE(w.finish(send)) << size;
          EXPECT_EQ(Engine::test(send), TW_OK);
          Engine::release(send);
        }
      }
    }
  }
  w.settle(50);
  EXPECT_EQ(w.b.held_bytes, 0u);
  EXPECT_EQ(w.b.held_messages, 0u);
  EXPECT_EQ(w.right->runs().alive(), 0u);
}

FakeOptions with(uint32_t features, double refuse) {
  FakeOptions options;
  options.features = features;
  options.refuse = refuse;
  return options;
}
INSTANTIATE_TEST_SUITE_P(Links, Active,
                         ::testing::Values(Case{"plain", with(0, 0)}, Case{"refusing", with(0, 0.4)},
                                           Case{"reference", with(kLinkByReference, 0.2)},
                                           Case{"same_process", with(kLinkSameProcess, 0.1)}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(ActiveFlow, KeptPayloadsAreBoundedAndReleased) {
  World w;
  w.connect();
  Got got;
  got.what = Got::keep;
  w.right->set_handler(1, handle, &got);
  Buffer from(w.random, 3000), header(w.random, 10);
  int accepted = 0, refused = 0;
  while (accepted < 10000 && refused < 20) {
    Status status = w.left->start(am_op(w.a, from, 1, header, TW_OP_NO_WAIT), {});
    refused = status == TW_AGAIN ? refused + 1 : 0;
    accepted += status != TW_AGAIN;
    w.turn();
  }
  EXPECT_LT(accepted, 10000);
  w.settle(100);
  EXPECT_EQ(got.calls, accepted);
  EXPECT_LE(w.b.held_bytes, w.b.granted_bytes);
  for (tw_am_data* data : got.kept) EXPECT_EQ(w.right->active_release(data), TW_OK);
  w.settle(100);
  EXPECT_EQ(w.b.held_bytes, 0u);
  EXPECT_EQ(w.b.held_messages, 0u);
  EXPECT_EQ(w.left->runs().alive(), 0u);
  Buffer large(w.random, 70000);
  EXPECT_EQ(w.left->start(am_op(w.a, large, 1, header, TW_OP_EAGER), {}), TW_ERR_LIMIT);
}

/// No budget is left for more than the least window, and some of it is consumed and not yet given back.
TEST(ActiveFlow, TheLargestEagerMessageGoesWhateverTheCredit) {
  for (size_t before = 0; before < 40; ++before) {
    World w({}, seed(), 1);
    w.connect();
    Got got;
    w.right->set_handler(1, handle, &got);
    Buffer small(w.random, 500), header(w.random, 10);
    Buffer largest(w.random, kFirstEager - kMessageOverhead - header.size());
    for (size_t i = 0; i < before; ++i) ASSERT_EQ(w.left->start(am_op(w.a, small, 1, header, TW_OP_EAGER), {}), TW_OK);
    w.settle(10);
    tw_request request = TW_REQUEST_NONE;
    const Status status = w.left->start(am_op(w.a, largest, 1, header, TW_OP_EAGER), {&request});
    if (status == TW_IN_PROGRESS) {
      ASSERT_TRUE(w.finish(request, 2000)) << "behind " << before << " small ones";
      EXPECT_EQ(Engine::test(request), TW_OK);
      Engine::release(request);
    }
    w.settle(10);
    EXPECT_EQ(got.calls, static_cast<int>(before) + 1);
    EXPECT_TRUE(largest.holds(got.data.data(), got.data.size()));
  }
}

TEST(ActiveLoss, KeptRtsEndAndCopiesStay) {
  World w;
  w.connect();
  Got got;
  got.what = Got::keep;
  w.right->set_handler(1, handle, &got);
  Buffer small(w.random, 100), large(w.random, 500000), header(w.random, 3), to(w.random, 500000);
  tw_request send = 0, first = 0, second = 0;
  w.left->start(am_op(w.a, small, 1, header, 0), {});
  ASSERT_EQ(w.left->start(am_op(w.a, large, 1, header, 0), {&send}), TW_IN_PROGRESS);
  w.settle(5);
  ASSERT_EQ(got.kept.size(), 2u);
  w.pa->lose(*w.la);
  w.settle(5);
  EXPECT_EQ(Engine::test(send), TW_ERR_PEER_LOST);
  Engine::release(send);
  ASSERT_EQ(w.right->active_receive(got.kept[0], receive_op(to.data(), 100, 0, 0), {&first}), TW_IN_PROGRESS);
  EXPECT_EQ(Engine::test(first), TW_OK);
  EXPECT_TRUE(to.holds(small.data(), 100));
  ASSERT_EQ(w.right->active_receive(got.kept[1], receive_op(to.data(), 500000, 0, 0), {&second}), TW_IN_PROGRESS);
  EXPECT_EQ(Engine::test(second), TW_ERR_PEER_LOST);
  Engine::release(first);
  Engine::release(second);
  EXPECT_EQ(w.right->active_release(got.kept[1]), TW_ERR_HANDLE);
}

TEST(ActiveReply, HandlersPostAndMissingHandlersDrop) {
  World w;
  w.connect();
  Buffer from(w.random, 64), header(w.random, 4), answer(w.random, 64);
  struct Reply {
    World* world;
    Buffer* with;
  } reply{&w, &from};
  w.right->set_handler(
      2,
      [](void* arg, const tw_am_message* message) -> tw_status {
        Reply& r = *static_cast<Reply*>(arg);
        EXPECT_EQ(message->endpoint, r.world->b.endpoint);
        EXPECT_EQ(r.world->right->start(send_op(r.world->b, *r.with, 42, 1), {}), TW_OK);
        EXPECT_EQ(r.world->right->progress(), 0u);  // not from a handler
        return TW_OK;
      },
      &reply);
  tw_request receive = 0;
  w.left->post_receive(receive_op(answer.data(), 64, 42, ~0ull), {&receive});
  w.left->start(am_op(w.a, from, 2, header, 0), {});
  ASSERT_TRUE(w.finish(receive));
  EXPECT_TRUE(answer.holds(from.data(), 64));
  Engine::release(receive);
  tw_request send = 0;
  ASSERT_EQ(w.left->start(am_op(w.a, from, 3, header, TW_OP_RENDEZVOUS), {&send}), TW_IN_PROGRESS);
  ASSERT_TRUE(w.finish(send));
  EXPECT_EQ(Engine::test(send), TW_OK);
  EXPECT_EQ(w.right->active().dropped, 1u);
  Engine::release(send);
}

}  // namespace
}  // namespace thalweg::test
