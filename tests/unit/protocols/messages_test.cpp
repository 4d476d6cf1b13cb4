// SPDX-License-Identifier: Apache-2.0
// Tagged messages through two engines over a port in memory: sizes around every switch, layouts on both sides, order,
// truncation, synchronous sends, probe, cancel, callbacks, flow control.
#include <gtest/gtest.h>

#include "protocols/match.hpp"
#include "protocols/operation_routes.hpp"
#include "support.hpp"

namespace thalweg::test {
namespace {

struct Case {
  const char* name;
  FakeOptions options;
};

std::vector<Case> cases() {
  std::vector<Case> list;
  auto add = [&list](const char* name, uint32_t features, double refuse, auto change) {
    FakeOptions options;
    options.features = features;
    options.refuse = refuse;
    change(options);
    list.push_back({name, options});
  };
  auto nothing = [](FakeOptions&) {};
  add("plain", 0, 0, nothing);
  add("refusing", 0, 0.4, [](FakeOptions& o) { o.capacity = 4; });
  add("small_frames", 0, 0.1, [](FakeOptions& o) { o.copy_max = o.fragment = 512; });
  add("reference", kLinkByReference, 0, [](FakeOptions& o) { o.fragment = 65536; });
  add("reference_refusing", kLinkByReference, 0.4, [](FakeOptions& o) {
    o.fragment = 16384;
    o.capacity = 4;
  });
  add("reference_buffered", kLinkByReference, 0.1, [](FakeOptions& o) {
    o.land = false;
    o.fragment = 65536;
  });
  add("single_copy", kLinkSingleCopy, 0.1, nothing);
  add("single_copy_forbidden", kLinkSingleCopy, 0.1, [](FakeOptions& o) { o.kernel_fails = true; });
  add("same_process", kLinkSameProcess, 0.1, nothing);
  add("maps", kLinkMaps | kLinkSingleCopy, 0.1, nothing);
  add("maps_slowly", kLinkMaps, 0.1, [](FakeOptions& o) { o.import_slow = true; });
  return list;
}

class Messages : public ::testing::TestWithParam<Case> {
 protected:
  Messages() : world(GetParam().options, seed()) {
    world.connect();
    // Where the link can do it, the kernel's copy is made to win so that its path is tested.
    if ((GetParam().options.features & kLinkMaps) == 0) {
      world.a.limits.kernel_from = world.b.limits.kernel_from =
          (GetParam().options.features & kLinkSingleCopy) != 0 ? 0 : kNever;
    }
  }
  World world;
};

std::vector<size_t> sizes(const FakeOptions& o, std::mt19937_64& random) {
  std::vector<size_t> list = {0, 1, 7, 8, 9, 63, 64, 65, 255, 4095, 4096, 4097, 8191, 8192, 8193};
  for (size_t at : {size_t{o.copy_max}, size_t{o.fragment}, size_t{128u << 10}, size_t{256u << 10}, size_t{64u << 10}}) {
    for (size_t near : {at - 17, at - 16, at - 8, at - 1, at, at + 1}) list.push_back(near);
  }
  for (int i = 0; i < 6; ++i) list.push_back(random() % 600000);
  return list;
}

TEST_P(Messages, EverySizeArrivesWholeInAnyOrderOfPosting) {
  uint64_t tag = 100;
  for (size_t size : sizes(GetParam().options, world.random)) {
    for (bool early : {true, false}) {
      Buffer from(world.random, size), to(world.random, size + world.random() % 3);
      ++tag;
      tw_request receive = 0, send = 0;
      if (early) {
        ASSERT_EQ(post(world, to, tag, ~0ull, &receive), TW_IN_PROGRESS);
      }
      Status status = world.left->start(send_op(world.a, from, tag, tag * 3), {&send});
      ASSERT_TRUE(status == TW_OK || status == TW_IN_PROGRESS) << size;
      if (!early) {
        world.settle(5);
        ASSERT_EQ(post(world, to, tag, ~0ull, &receive), TW_IN_PROGRESS);
      }
      ASSERT_TRUE(world.finish(receive)) << size << (early ? " early" : " late");
      if (status == TW_IN_PROGRESS) {
        ASSERT_TRUE(world.finish(send)) << size;
        EXPECT_EQ(Engine::test(send), TW_OK);
        Engine::release(send);
      }
      EXPECT_EQ(Engine::test(receive), TW_OK) << size;
      tw_recv_info info{};
      ASSERT_EQ(Engine::info(receive, &info), TW_OK);
      EXPECT_EQ(info.length, size);
      EXPECT_EQ(info.tag, tag);
      EXPECT_EQ(info.immediate, tag * 3);
      EXPECT_EQ(info.endpoint, world.b.endpoint);
      EXPECT_TRUE(to.holds(from.data(), size)) << size << (early ? " early" : " late");
      EXPECT_TRUE(to.guarded());
      Engine::release(receive);
      ASSERT_EQ(world.a.state, TW_OK) << world.a.why;
      ASSERT_EQ(world.b.state, TW_OK) << world.b.why;
    }
  }
  world.settle();
  EXPECT_EQ(world.left->runs().alive(), 0u);
  EXPECT_EQ(world.right->runs().alive(), 0u);
}

TEST_P(Messages, LayoutsOnEitherSide) {
  for (int round = 0; round < 40; ++round) {
    uint64_t block = 1 + world.random() % 300, count = 1 + world.random() % 700;
    Strided from(world.random, block, count), to(world.random, block, count);
    std::vector<std::byte> packed = from.packed();
    Buffer flat(world.random, packed.size());
    tw_request receive = 0, send = 0;
    OpDesc out = send_op(world.a, from.base(), packed.size(), 7, 0), in = receive_op(to.base(), packed.size(), 7, ~0ull);
    out.layout = from.layout;
    in.layout = to.layout;
    int shape = round % 3;
    if (shape == 0) {
      out.layout = nullptr;
      out.address = packed.data();
    }
    if (shape == 1) {
      in.layout = nullptr;
      in.address = flat.data();
    }
    bool early = world.random() % 2 == 0;
    if (early) {
      ASSERT_EQ(world.right->post_receive(in, {&receive}), TW_IN_PROGRESS);
    }
    Status status = world.left->start(out, {&send});
    if (!early) {
      world.settle(3);
      ASSERT_EQ(world.right->post_receive(in, {&receive}), TW_IN_PROGRESS);
    }
    ASSERT_TRUE(world.finish(receive)) << packed.size();
    if (status == TW_IN_PROGRESS) {
      ASSERT_TRUE(world.finish(send));
    }
    ASSERT_EQ(Engine::test(receive), TW_OK);
    if (shape == 1) {
      EXPECT_TRUE(flat.holds(packed.data(), packed.size()));
      EXPECT_TRUE(flat.guarded());
    } else {
      EXPECT_EQ(to.packed(), packed);
      EXPECT_TRUE(to.gaps_untouched());
    }
    Engine::release(receive);
    if (status == TW_IN_PROGRESS) Engine::release(send);
  }
}

TEST_P(Messages, ManyAtOnceInOrder) {
  std::deque<Buffer> from, to;
  std::vector<tw_request> receives, sends;
  constexpr int kCount = 300;
  for (int i = 0; i < kCount; ++i) {
    size_t size = world.random() % (i % 10 == 0 ? 300000 : 2000);
    from.emplace_back(world.random, size);
    to.emplace_back(world.random, 300000);
  }
  int posted = 0, sent = 0;
  while (posted < kCount || sent < kCount) {
    switch (world.random() % 3) {
      case 0:
        if (posted < kCount) {
          receives.push_back(0);
          // All match any message: order of posting and of sending must agree.
          uint64_t mask = posted % 3 == 0 ? ~0ull : posted % 3 == 1 ? 0 : 0xf;
          ASSERT_EQ(post(world, to[posted], 5, mask, &receives.back()), TW_IN_PROGRESS);
          ++posted;
        }
        break;
      case 1:
        if (sent < kCount) {
          sends.push_back(0);
          Status status = world.left->start(send_op(world.a, from[sent], 5, sent), {&sends.back()});
          ASSERT_TRUE(status == TW_OK || status == TW_IN_PROGRESS);
          ++sent;
        }
        break;
      default:
        world.turn();
    }
  }
  for (int i = 0; i < kCount; ++i) {
    ASSERT_TRUE(world.finish(receives[i])) << i;
    ASSERT_EQ(Engine::test(receives[i]), TW_OK);
    tw_recv_info info{};
    Engine::info(receives[i], &info);
    EXPECT_EQ(info.immediate, static_cast<uint64_t>(i));
    EXPECT_EQ(info.length, from[i].size());
    EXPECT_TRUE(to[i].holds(from[i].data(), from[i].size())) << i;
    Engine::release(receives[i]);
  }
  for (tw_request send : sends) {
    if (send == TW_REQUEST_NONE) continue;
    ASSERT_TRUE(world.finish(send));
    EXPECT_EQ(Engine::test(send), TW_OK);
    Engine::release(send);
  }
}

TEST_P(Messages, TruncationWritesNothingPastTheBuffer) {
  for (size_t size : {9, 4000, 10000, 100000, 400000}) {
    for (size_t room : {size_t{0}, size_t{1}, size / 2, size - 1}) {
      for (bool early : {true, false}) {
        Buffer from(world.random, size), to(world.random, room);
        tw_request receive = 0, send = 0;
        if (early) post(world, to, 1, ~0ull, &receive);
        Status status = world.left->start(send_op(world.a, from, 1, 0), {&send});
        if (!early) {
          world.settle(4);
          post(world, to, 1, ~0ull, &receive);
        }
        ASSERT_TRUE(world.finish(receive)) << size << " " << room;
        EXPECT_EQ(Engine::test(receive), TW_ERR_TRUNCATED);
        const std::string text = Engine::message(receive);
        const std::string both =
            "message of " + std::to_string(size) + " bytes for a buffer of " + std::to_string(room) + " bytes";
        EXPECT_EQ(text.substr(0, both.size()), both);
        tw_recv_info info{};
        Engine::info(receive, &info);
        EXPECT_EQ(info.length, size);
        EXPECT_TRUE(to.holds(from.data(), room));
        EXPECT_TRUE(to.guarded());
        if (status == TW_IN_PROGRESS) {
          ASSERT_TRUE(world.finish(send)) << size << " " << room;
          EXPECT_EQ(Engine::test(send), TW_OK);
          Engine::release(send);
        }
        Engine::release(receive);
      }
    }
  }
}

TEST_P(Messages, SynchronousSendCompletesWhenMatched) {
  for (size_t size : {0, 8, 4088, 4089, 4096, 20000, 300000}) {
    Buffer from(world.random, size), to(world.random, size);
    OpDesc op = send_op(world.a, from, 3, 0);
    op.flags = TW_OP_SYNC;
    tw_request send = 0, receive = 0;
    ASSERT_EQ(world.left->start(op, {&send}), TW_IN_PROGRESS);
    world.settle(50);
    EXPECT_EQ(Engine::test(send), TW_IN_PROGRESS) << size;
    post(world, to, 3, ~0ull, &receive);
    ASSERT_TRUE(world.finish(send)) << size;
    ASSERT_TRUE(world.finish(receive));
    EXPECT_EQ(Engine::test(send), TW_OK);
    EXPECT_TRUE(to.holds(from.data(), size));
    Engine::release(send);
    Engine::release(receive);
  }
}

TEST_P(Messages, ProbeSeesAndMatchedProbeTakes) {
  for (size_t size : {5, 5000, 50000, 500000}) {
    Buffer from(world.random, size), other(world.random, 3), to(world.random, size), late(world.random, 3);
    tw_recv_info info{};
    EXPECT_EQ(probe(*world.right, 9, ~0ull, nullptr, &info, nullptr), TW_ERR_NO_MATCH);
    tw_request send = 0, send2 = 0;
    Status status = world.left->start(send_op(world.a, from, 9, 77), {&send});
    Status status2 = world.left->start(send_op(world.a, other, 9, 78), {&send2});
    for (int i = 0; i < 10000 && probe(*world.right, 9, ~0ull, &world.b, &info, nullptr) != TW_OK; ++i) world.turn();
    EXPECT_EQ(info.length, size);
    EXPECT_EQ(info.immediate, 77u);
    tw_message* message = nullptr;
    ASSERT_EQ(probe(*world.right, 1, 1, nullptr, &info, &message), TW_OK);
    tw_request second = 0, first = 0;
    post(world, late, 9, ~0ull, &second);
    ASSERT_TRUE(world.finish(second));
    EXPECT_TRUE(late.holds(other.data(), 3));
    ASSERT_EQ(receive_message(message, receive_op(to.data(), size, 0, 0), {&first}), TW_IN_PROGRESS);
    ASSERT_TRUE(world.finish(first));
    EXPECT_EQ(Engine::test(first), TW_OK);
    EXPECT_TRUE(to.holds(from.data(), size));
    EXPECT_TRUE(to.guarded());
    Engine::release(first);
    Engine::release(second);
    for (auto [s, r] : {std::pair{status, send}, std::pair{status2, send2}}) {
      if (s != TW_IN_PROGRESS) continue;
      ASSERT_TRUE(world.finish(r));
      Engine::release(r);
    }
  }
}

/// What the link still says of a piece of one that has ended must not be counted for another one that has its slot.
TEST(Tokens, OfPiecesByReferenceAreNotAnotherOperations) {
  FakeOptions options;
  options.features = kLinkByReference;
  options.capacity = 1;
  World w(options, seed());
  w.connect();
  Buffer from(w.random, 3'000'000), to(w.random, 3'000'000);
  std::vector<void*> tokens;
  for (int round = 0; round < 20; ++round) {
    tw_request receive = 0, send = 0;
    post(w, to, 1, ~0ull, &receive);
    w.pa->last_token = nullptr;
    ASSERT_EQ(w.left->start(send_op(w.a, from, 1, 0), {&send}), TW_IN_PROGRESS);
    const OpRun* run = w.left->runs().find(send);
    ASSERT_NE(run, nullptr);
    for (int i = 0; i < 1000 && run->pipeline.in_flight == 0 && Engine::test(send) == TW_IN_PROGRESS; ++i) w.turn();
    if (const uint32_t before = run->pipeline.in_flight; before != 0) {
      for (void* token : tokens) w.left->on_sent(*w.la, token, TW_OK);
      EXPECT_EQ(run->pipeline.in_flight, before);
    }
    ASSERT_TRUE(w.finish(send));
    ASSERT_TRUE(w.finish(receive));
    EXPECT_TRUE(to.holds(from.data(), from.size()));
    if (w.pa->last_token != nullptr) tokens.push_back(w.pa->last_token);
    Engine::release(send);
    Engine::release(receive);
  }
  EXPECT_FALSE(tokens.empty());
}

TEST(LostLinks, AreClosedSoThatNothingOfThemStays) {
  for (const bool told : {false, true}) {  // by a goodbye before it, or not
    World w({}, seed());
    w.connect();
    if (told) w.right->close(w.b, true);
    if (!told) w.pa->lose(*w.la);
    w.settle(20);
    EXPECT_TRUE(is_error(w.a.state));
    EXPECT_TRUE(is_error(w.b.state));
    EXPECT_EQ(w.pa->closed, 1u);
    EXPECT_EQ(w.pb->closed, 1u);
  }
}

TEST_P(Messages, LossEndsEverythingOnceAtEveryStage) {
  for (unsigned stage = 0; stage < 12; ++stage) {
    World w(GetParam().options, seed());
    w.connect();
    w.a.limits.kernel_from = w.b.limits.kernel_from = stage % 2 == 0 ? 0 : kNever;
    std::deque<Buffer> buffers;
    std::vector<tw_request> requests;
    Buffer wild(w.random, 10);
    for (size_t size : {8, 5000, 100000, 1000000}) {
      for (int matched = 0; matched < 2; ++matched) {
        buffers.emplace_back(w.random, size);
        requests.push_back(0);
        w.left->start(send_op(w.a, buffers.back(), size + matched, 0), {&requests.back()});
        buffers.emplace_back(w.random, size);
        requests.push_back(0);
        OpDesc op = receive_op(buffers.back().data(), size, size + 17 * (1 - matched) + matched, ~0ull);
        op.peer = &w.b;
        w.right->post_receive(op, {&requests.back()});
      }
    }
    tw_request wildcard = 0;
    post(w, wild, 1, 3, &wildcard);
    for (unsigned i = 0; i < stage; ++i) w.turn();
    w.pa->lose(*w.la);
    w.settle(2000);
    for (tw_request request : requests) {
      if (request == TW_REQUEST_NONE) continue;
      Status status = Engine::test(request);
      EXPECT_TRUE(status == TW_OK || status == TW_ERR_PEER_LOST) << status;
      EXPECT_TRUE(status == TW_OK || std::string("the fake connection broke") == Engine::message(request));
      EXPECT_EQ(Engine::release(request), TW_OK);
    }
    for (Buffer& buffer : buffers) EXPECT_TRUE(buffer.guarded());
    EXPECT_EQ(w.a.state, TW_ERR_PEER_LOST);
    EXPECT_EQ(w.left->runs().alive(), 0u);
    Buffer one(w.random, 1);
    EXPECT_EQ(w.left->start(send_op(w.a, one, 1, 0), {}), TW_ERR_PEER_LOST);
    EXPECT_EQ(Engine::test(wildcard), TW_IN_PROGRESS);  // others may still match it
    EXPECT_EQ(w.right->cancel(wildcard), TW_OK);
    EXPECT_EQ(Engine::test(wildcard), TW_ERR_CANCELED);
    Engine::release(wildcard);
    EXPECT_EQ(w.right->runs().alive(), 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Links, Messages, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return std::string(info.param.name); });

// ------------------------------------------------------------------------------------------------ one link is enough

TEST(Matching, EarliestReceiveThatFitsWins) {
  World w;
  w.connect();
  Buffer one(w.random, 8), buffers[4] = {{w.random, 8}, {w.random, 8}, {w.random, 8}, {w.random, 8}};
  tw_request requests[4];
  post(w, buffers[0], 0x10, 0xf0, &requests[0]);
  post(w, buffers[1], 0x15, ~0ull, &requests[1]);
  post(w, buffers[2], 0, 0, &requests[2]);
  post(w, buffers[3], 0x25, ~0ull, &requests[3]);
  auto send = [&](uint64_t tag) {
    w.left->start(send_op(w.a, one, tag, 0), {});
    w.settle(3);
  };
  send(0x25);  // the wildcard of all was first
  EXPECT_EQ(Engine::test(requests[2]), TW_OK);
  send(0x15);
  EXPECT_EQ(Engine::test(requests[0]), TW_OK);
  send(0x15);
  EXPECT_EQ(Engine::test(requests[1]), TW_OK);
  EXPECT_EQ(Engine::test(requests[3]), TW_IN_PROGRESS);
  send(0x25);
  EXPECT_EQ(Engine::test(requests[3]), TW_OK);
  for (tw_request r : requests) Engine::release(r);
}

TEST(Matching, ManyTagsGrowTheTablesAndKeepOrder) {
  World w;
  w.connect();
  constexpr uint64_t kTags = 3000;
  std::vector<uint64_t> values(kTags * 2), got(kTags * 2);
  std::vector<tw_request> requests(kTags * 2);
  for (uint64_t i = 0; i < kTags * 2; ++i) {
    OpDesc op = receive_op(reinterpret_cast<std::byte*>(&got[i]), 8, i % kTags, ~0ull);
    w.right->post_receive(op, {&requests[i]});
  }
  for (uint64_t i = 0; i < kTags * 2; ++i) {
    values[i] = w.random();
    tw_request send = 0;
    w.left->start(send_op(w.a, reinterpret_cast<std::byte*>(&values[i]), 8, i % kTags, 0), {});
    if (i % 16 == 0) w.turn();
    (void)send;
  }
  for (uint64_t i = 0; i < kTags * 2; ++i) {
    ASSERT_TRUE(w.finish(requests[i]));
    EXPECT_EQ(got[i], values[i]);
    Engine::release(requests[i]);
  }
}

TEST(Matching, SourceEndpointRestricts) {
  World w;
  w.connect();
  Peer stranger;
  w.right->add(stranger);
  Buffer one(w.random, 8), to(w.random, 8);
  tw_request request = 0;
  OpDesc op = receive_op(to.data(), 8, 1, ~0ull);
  op.peer = &stranger;
  ASSERT_EQ(w.right->post_receive(op, {&request}), TW_IN_PROGRESS);
  w.left->start(send_op(w.a, one, 1, 0), {});
  w.settle(3);
  EXPECT_EQ(Engine::test(request), TW_IN_PROGRESS);
  tw_recv_info info;
  EXPECT_EQ(probe(*w.right, 1, ~0ull, &stranger, &info, nullptr), TW_ERR_NO_MATCH);
  EXPECT_EQ(probe(*w.right, 1, ~0ull, &w.b, &info, nullptr), TW_OK);
  w.right->remove(stranger);
  EXPECT_EQ(Engine::test(request), TW_ERR_CLOSED);
  Engine::release(request);
}

TEST(Requests, CallbacksComeFromProgressOnceAndMayPost) {
  World w;
  w.connect();
  struct State {
    World* world;
    Buffer* from;
    Buffer* to;
    int calls = 0;
  };
  Buffer from(w.random, 100), to(w.random, 100);
  State state{&w, &from, &to};
  tw_callback again = [](void* arg, tw_request request, tw_status status, const tw_recv_info* info) {
    State& s = *static_cast<State*>(arg);
    EXPECT_EQ(status, TW_OK);
    EXPECT_EQ(info->length, 100u);
    EXPECT_EQ(Engine::release(request), TW_ERR_HANDLE);
    EXPECT_TRUE(s.to->holds(s.from->data(), 100));
    ++s.calls;
  };
  w.left->start(send_op(w.a, from, 2, 0), {});
  w.settle(3);
  // Already there: even so the callback waits for progress.
  EXPECT_EQ(w.right->post_receive(receive_op(to.data(), 100, 2, ~0ull), calls(again, &state)), TW_IN_PROGRESS);
  EXPECT_EQ(state.calls, 0);
  EXPECT_EQ(w.right->arm(), TW_ERR_BUSY);
  w.settle(3);
  EXPECT_EQ(state.calls, 1);
  w.right->post_receive(receive_op(to.data(), 100, 2, ~0ull), calls(again, &state));
  w.left->start(send_op(w.a, from, 2, 0), {});
  w.settle(3);
  EXPECT_EQ(state.calls, 2);
  EXPECT_EQ(w.right->runs().alive(), 0u);
  EXPECT_EQ(w.right->arm(), TW_OK);
}

TEST(Requests, ReleasedAndForeignNumbersAreErrors) {
  tw_request request = 0;
  {
    World w;
    w.connect();
    Buffer to(w.random, 8), one(w.random, 8);
    post(w, to, 1, ~0ull, &request);
    EXPECT_EQ(Engine::engine_of(request), w.right.get());
    EXPECT_EQ(Engine::release(request), TW_OK);
    EXPECT_EQ(Engine::release(request), TW_ERR_HANDLE);
    EXPECT_EQ(Engine::test(request), TW_IN_PROGRESS);  // runs on unobserved
    w.left->start(send_op(w.a, one, 1, 0), {});
    w.settle(3);
    EXPECT_TRUE(to.holds(one.data(), 8));
    EXPECT_EQ(Engine::test(request), TW_ERR_HANDLE);
    post(w, to, 1, ~0ull, &request);
  }
  EXPECT_EQ(Engine::test(request), TW_ERR_HANDLE);  // the worker is gone
  EXPECT_EQ(Engine::engine_of(request), nullptr);
  EXPECT_EQ(Engine::test(TW_REQUEST_NONE), TW_ERR_HANDLE);
  for (uint64_t i = 0; i < 64; ++i) EXPECT_EQ(Engine::test(~0ull << i), TW_ERR_HANDLE);
}

TEST(Requests, CancelUnmatchedReceiveAndUnannouncedSend) {
  World w;
  Buffer from(w.random, 500000), to(w.random, 500000);
  tw_request send = 0, receive = 0;
  ASSERT_EQ(w.left->start(send_op(w.a, from, 1, 0), {&send}), TW_IN_PROGRESS);  // not connected yet
  EXPECT_EQ(w.left->cancel(send), TW_OK);
  EXPECT_EQ(Engine::test(send), TW_ERR_CANCELED);
  Engine::release(send);
  w.connect();
  post(w, to, 1, ~0ull, &receive);
  EXPECT_EQ(w.right->cancel(receive), TW_OK);
  EXPECT_EQ(Engine::test(receive), TW_ERR_CANCELED);
  EXPECT_EQ(w.right->cancel(receive), TW_ERR_BUSY);
  Engine::release(receive);
  w.left->start(send_op(w.a, from, 1, 0), {&send});
  w.settle(3);
  EXPECT_EQ(w.left->cancel(send), TW_ERR_BUSY);
  post(w, to, 1, ~0ull, &receive);
  EXPECT_EQ(w.right->cancel(receive), TW_ERR_BUSY);
  ASSERT_TRUE(w.finish(receive));
  EXPECT_TRUE(to.holds(from.data(), 500000));
  Engine::release(receive);
  Engine::release(send);
  EXPECT_EQ(w.left->cancel(send), TW_ERR_HANDLE);
}

TEST(Flow, FloodOfUnmatchedMessagesIsBoundedAndArrives) {
  for (size_t size : {size_t{8}, size_t{3000}, size_t{65536}, size_t{1u << 20}}) {
    World w;
    w.connect();
    Buffer from(w.random, size), to(w.random, size);
    std::vector<tw_request> sends;
    int accepted = 0;
    for (int i = 0; i < 20000; ++i) {
      OpDesc op = send_op(w.a, from, 1, static_cast<uint64_t>(i));
      op.flags = TW_OP_NO_WAIT;
      tw_request send = 0;
      Status status = w.left->start(op, {&send});
      if (status == TW_AGAIN) {
        w.turn();
        status = w.left->start(op, {&send});
      }
      if (status == TW_AGAIN) {
        w.settle(10);
        if (w.left->start(op, {&send}) == TW_AGAIN) break;
        status = send == TW_REQUEST_NONE ? TW_OK : TW_IN_PROGRESS;
      }
      if (status == TW_IN_PROGRESS) sends.push_back(send);
      ++accepted;
    }
    EXPECT_LT(accepted, 20000) << "nothing stopped the sender";
    EXPECT_LE(w.b.held_bytes, w.b.granted_bytes);
    EXPECT_LE(w.b.granted_bytes, 1u << 20);
    EXPECT_LE(w.b.held_messages, 512u);
    for (int i = 0; i < accepted; ++i) {
      tw_request receive = 0;
      post(w, to, 1, ~0ull, &receive);
      ASSERT_TRUE(w.finish(receive)) << i << " of " << accepted;
      tw_recv_info info{};
      Engine::info(receive, &info);
      EXPECT_EQ(info.immediate, static_cast<uint64_t>(i));
      EXPECT_TRUE(to.holds(from.data(), size));
      Engine::release(receive);
    }
    for (tw_request send : sends) {
      ASSERT_TRUE(w.finish(send));
      Engine::release(send);
    }
    EXPECT_EQ(w.b.held_bytes, 0u);
    EXPECT_EQ(w.b.held_messages, 0u);
  }
}

TEST(Flow, AWorkerWithManyEndpointsKeepsItsBudget) {
  World w({}, 1, 1u << 20);
  w.connect();
  EXPECT_LE(w.right->granted, (1u << 20));
  std::deque<Peer> peers;
  std::vector<FakeLink*> mine, theirs;
  for (int i = 0; i < 50; ++i) {
    FakeLink *to_b, *to_a;
    FakePort::connect(*w.pa, *w.pb, &to_b, &to_a);
    w.right->attach(peers.emplace_back(), *to_a);
  }
  for (Peer& peer : peers) EXPECT_LE(peer.granted_bytes, 256u << 10);
  for (Peer& peer : peers) w.right->remove(peer);
  EXPECT_LE(w.right->granted, 1u << 20);
}

TEST(Closing, GoodbyeEndsTheOtherSideAfterWhatWasSent) {
  World w;
  w.connect();
  Buffer one(w.random, 64), to(w.random, 64), never(w.random, 8);
  tw_request receive = 0, restricted = 0;
  OpDesc op = receive_op(never.data(), 8, 99, ~0ull);
  op.peer = &w.b;
  w.right->post_receive(op, {&restricted});
  w.left->start(send_op(w.a, one, 1, 0), {});
  w.left->close(w.a, true);
  EXPECT_EQ(w.a.state, TW_ERR_CLOSED);
  w.settle(5);
  EXPECT_EQ(w.b.state, TW_ERR_CLOSED);
  EXPECT_EQ(Engine::test(restricted), TW_ERR_CLOSED);
  EXPECT_STREQ(Engine::message(restricted), "the peer closed the endpoint");
  post(w, to, 1, ~0ull, &receive);  // it was here before the end
  ASSERT_TRUE(w.finish(receive));
  EXPECT_EQ(Engine::test(receive), TW_OK);
  EXPECT_TRUE(to.holds(one.data(), 64));
  Engine::release(receive);
  Engine::release(restricted);
}

TEST(Segments, BothEndsCopyBetweenLibraryMemory) {
  for (bool slow : {false, true}) {
    FakeOptions options;
    options.features = kLinkMaps;
    options.import_slow = slow;
    World w(options);
    w.connect();
    constexpr size_t kLength = 3u << 20;
    tw_memory *from = nullptr, *to = nullptr;
    ASSERT_EQ(w.registry_a.allocate(kLength, TW_MEMORY_ALL, false, &from), TW_OK);
    ASSERT_EQ(w.registry_b.allocate(kLength, TW_MEMORY_ALL, false, &to), TW_OK);
    Mapping &source = w.pb->segments[from->segment_id], &target = w.pa->segments[to->segment_id];
    source.address = from->address;
    target.address = to->address;
    source.length = target.length = kLength;
    for (size_t size : {65537u, 100000u, 200001u, 3u << 20}) {  // rendezvous, whatever the costs
      for (size_t i = 0; i < size; ++i) from->address[i] = static_cast<std::byte>(w.random());
      tw_request send = 0, receive = 0;
      w.right->post_receive(receive_op(to->address, size, 1, ~0ull), {&receive});
      ASSERT_EQ(w.left->start(send_op(w.a, from->address, size, 1, 0), {&send}), TW_IN_PROGRESS);
      ASSERT_TRUE(w.finish(receive)) << size;
      ASSERT_TRUE(w.finish(send)) << size;
      EXPECT_EQ(Engine::test(send), TW_OK);
      EXPECT_EQ(Engine::test(receive), TW_OK);
      EXPECT_EQ(std::memcmp(from->address, to->address, size), 0) << size;
      Engine::release(send);
      Engine::release(receive);
    }
    OpDesc op = send_op(w.a, from->address, 200000, 1, 0);
    std::string text = explain(op);
    EXPECT_NE(text.find("* rendezvous, direct copy"), std::string::npos) << text;
    w.registry_a.release(from);
    w.registry_b.release(to);
  }
}

}  // namespace
}  // namespace thalweg::test
