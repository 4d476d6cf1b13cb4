// SPDX-License-Identifier: Apache-2.0
// Active messages: headers, payloads of every size, kept and fetched later, dropped, lost; replies from handlers.
#include "protocols/active.hpp"

#include <array>
#include <deque>
#include <string>
#include <utility>

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
    EXPECT_EQ(active_receive(message->descriptor, op, {&got.request}), TW_IN_PROGRESS);
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
  ASSERT_EQ(set_handler(*w.right, 4095, handle, &got), TW_OK);
  EXPECT_EQ(set_handler(*w.right, 4096, handle, &got), TW_ERR_INVALID);
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
          ASSERT_EQ(active_receive(got.kept.back(), op, {&got.request}), TW_IN_PROGRESS);
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

/// Around the border of the short form, a frame, what goes on credit, and what is asked for.
TEST_P(Active, HeadersOfEveryLength) {
  World w(GetParam().options, seed());
  w.connect();
  w.settle(5);
  Got got;
  got.world = &w;
  set_handler(*w.right, 7, handle, &got);
  const uint64_t granted = w.right->granted;
  unsigned turn = 0;
  for (size_t length : {256, 257, 300, 3999, 4096, 4097, 5000, 65279, 65280, 65281, 200000, 1 << 20}) {
    for (size_t size : {0, 1, 3000, 3840, 5000, 60000, 300000}) {
      const Got::Do what = std::array{Got::look, Got::keep, Got::fetch_inside}[turn++ % 3];
      const uint32_t flags = turn % 2 == 0 ? TW_OP_RENDEZVOUS : 0;
      Buffer from(w.random, size), header(w.random, length), to(w.random, size);
      const std::vector<std::byte> sent(header.data(), header.data() + length);
      const int before = got.calls;
      got.what = what;
      got.to = &to;
      tw_request send = 0;
      const Status status = w.left->start(am_op(w.a, from, 7, header, flags), {&send});
      ASSERT_TRUE(status == TW_OK || status == TW_IN_PROGRESS) << length << " " << size;
      std::memset(header.data(), 0, length);  // it was copied
      for (int i = 0; i < 100000 && got.calls == before; ++i) w.turn();
      ASSERT_EQ(got.calls, before + 1) << length << " " << size << " " << w.b.why;
      EXPECT_TRUE(got.header == sent) << length << " " << size;
      EXPECT_EQ(got.length, size);
      EXPECT_TRUE(!got.here || from.holds(got.data.data(), size)) << length << " " << size;
      if (what == Got::keep) {
        w.settle(20);
        // So is what a long header costs: who keeps the message has a copy of that.
        const bool asked = w.right->headers != 0, alone = !got.here && length > kShortHeader && !asked;
        const uint64_t held = got.here ? size + kMessageOverhead : alone ? kMessageOverhead : 0;
        const uint64_t of_header = asked || (!got.here && !alone) ? 0 : length;
        EXPECT_EQ(w.b.held_bytes, held + of_header) << length << " " << size;
        EXPECT_TRUE(!asked || w.right->headers == length);
        EXPECT_FALSE(waits_for_header(w.b));
        ASSERT_EQ(active_receive(got.kept.back(), receive_op(to.data(), size, 0, 0), {&got.request}), TW_IN_PROGRESS);
        got.kept.clear();
      }
      if (what != Got::look) {
        ASSERT_TRUE(w.finish(got.request)) << length << " " << size;
        EXPECT_EQ(Engine::test(got.request), TW_OK);
        EXPECT_TRUE(to.holds(from.data(), size) && to.guarded()) << length << " " << size;
        Engine::release(got.request);
      }
      if (status == TW_IN_PROGRESS) {
        ASSERT_TRUE(w.finish(send)) << length << " " << size;
        EXPECT_EQ(Engine::test(send), TW_OK);
        Engine::release(send);
      }
    }
  }
  w.settle(50);
  EXPECT_EQ(w.b.held_bytes, 0u);
  EXPECT_EQ(w.b.held_messages, 0u);
  EXPECT_EQ(w.right->granted, granted);
  EXPECT_EQ(w.right->runs().alive(), 0u);
  EXPECT_EQ(w.left->runs().alive(), 0u);
}

TEST_P(Active, NothingOvertakesALongHeader) {
  World w(GetParam().options, seed());
  w.connect();
  std::vector<size_t> lengths;  // of headers, in order of arrival
  const auto note = [](void* arg, const tw_am_message* message) -> tw_status {
    static_cast<std::vector<size_t>*>(arg)->push_back(message->header_length);
    return TW_OK;
  };
  set_handler(*w.right, 1, note, &lengths);
  Buffer small(w.random, 8), large(w.random, 300000);
  std::vector<size_t> posted;
  std::vector<tw_request> requests;
  std::deque<Buffer> headers;
  for (int i = 0; i < 60; ++i) {
    posted.push_back(std::array<size_t, 5>{1, 8, 500, 30000, 300000}[w.random() % 5] + static_cast<size_t>(i));
    Buffer& header = headers.emplace_back(w.random, posted.back());
    tw_request request = 0;
    const uint32_t flags = w.random() % 4 == 0 ? TW_OP_RENDEZVOUS : 0;
    ASSERT_GE(w.left->start(am_op(w.a, i % 7 == 0 ? large : small, 1, header, flags), {&request}), TW_OK);
    if (request != TW_REQUEST_NONE) requests.push_back(request);
    if (i % 3 == 0) w.turn();
  }
  for (tw_request request : requests) {
    ASSERT_TRUE(w.finish(request));
    EXPECT_EQ(Engine::test(request), TW_OK);
    Engine::release(request);
  }
  w.settle(50);
  EXPECT_EQ(lengths, posted);
}

TEST_P(Active, LongHeadersOfStridedPayloads) {
  World w(GetParam().options, seed());
  w.connect();
  Got got;
  got.world = &w;
  set_handler(*w.right, 1, handle, &got);
  for (size_t length : {300, 5000, 100000}) {
    for (uint64_t count : {3, 30, 300, 3000}) {
      Strided from(w.random, 101, count);
      Buffer header(w.random, length), to(w.random, 101 * count);
      OpDesc op = send_op(w.a, from.base(), 101 * count, 1, 0);
      op.verb = Verb::am;
      op.layout = from.layout;
      op.header = header.data();
      op.header_length = static_cast<uint32_t>(length);
      got.what = Got::fetch_inside;
      got.to = &to;
      const int before = got.calls;
      tw_request send = 0;
      ASSERT_GE(w.left->start(op, {&send}), TW_OK);
      for (int i = 0; i < 100000 && got.calls == before; ++i) w.turn();
      ASSERT_EQ(got.calls, before + 1);
      ASSERT_TRUE(w.finish(got.request));
      EXPECT_TRUE(header.holds(got.header.data(), length) && got.header.size() == length);
      EXPECT_TRUE(to.holds(from.packed().data(), to.size()) && to.guarded()) << length << " " << count;
      Engine::release(got.request);
      if (send != TW_REQUEST_NONE) {
        ASSERT_TRUE(w.finish(send));
        Engine::release(send);
      }
    }
  }
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
  set_handler(*w.right, 1, handle, &got);
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
  for (tw_am_data* data : got.kept) EXPECT_EQ(active_release(data), TW_OK);
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
    set_handler(*w.right, 1, handle, &got);
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

/// A header that a socket has not taken yet when the call returns.
TEST(ActiveFlow, HeadersOfWhatGoesByReferenceAreCopies) {
  FakeOptions options;
  options.features = kLinkByReference;
  options.fragment = 32768;  // in one frame
  options.copied = 0;
  World w(options, seed());
  w.connect();
  w.settle(5);
  Got got;
  set_handler(*w.right, 1, handle, &got);
  size_t frames = 0;
  for (size_t length : {16, 256, 2000}) {
    Buffer from(w.random, 20000), header(w.random, length);
    const std::vector<std::byte> sent(header.data(), header.data() + length);
    tw_request send = 0;
    ASSERT_EQ(w.left->start(am_op(w.a, from, 1, header, 0), {&send}), TW_IN_PROGRESS);
    EXPECT_EQ(w.pa->frames(Frame::am), ++frames) << length;
    std::memset(header.data(), 0, length);
    ASSERT_TRUE(w.finish(send));
    EXPECT_TRUE(got.header == sent) << length;
    EXPECT_TRUE(from.holds(got.data.data(), from.size()));
    Engine::release(send);
  }
}

/// Nothing of the budget is left but the window, part of which is consumed and not yet given back, or kept.
TEST(ActiveFlow, LongHeadersWithoutABudget) {
  World w({}, seed(), 1);
  w.connect();
  w.settle(5);
  Got got;
  set_handler(*w.right, 1, handle, &got);
  got.what = Got::keep;
  Buffer kept(w.random, 30000), header(w.random, 10), long_one(w.random, kHeaderOnCredit),
      longer(w.random, kHeaderOnCredit + 1);
  for (int i = 0; i < 2; ++i) ASSERT_GE(w.left->start(am_op(w.a, kept, 1, header, 0), {}), TW_OK);
  w.settle(20);
  ASSERT_EQ(got.kept.size(), 2u);
  got.what = Got::look;
  Buffer payload(w.random, 40);
  tw_request waits = 0, refused = 0;
  ASSERT_EQ(w.left->start(am_op(w.a, payload, 1, long_one, 0), {&waits}), TW_IN_PROGRESS);
  w.settle(50);
  EXPECT_EQ(got.calls, 2) << "there is neither credit nor room";
  for (tw_am_data* data : got.kept) EXPECT_EQ(active_release(data), TW_OK);
  ASSERT_TRUE(w.finish(waits));
  EXPECT_EQ(Engine::test(waits), TW_OK);
  EXPECT_TRUE(got.header.size() == long_one.size() && long_one.holds(got.header.data(), long_one.size()));
  ASSERT_EQ(w.left->start(am_op(w.a, payload, 1, longer, 0), {&refused}), TW_IN_PROGRESS);
  ASSERT_TRUE(w.finish(refused));
  EXPECT_EQ(Engine::test(refused), TW_ERR_LIMIT);
  EXPECT_NE(std::string(Engine::message(refused)).find("unexpected_budget"), std::string::npos) << Engine::message(refused);
  Engine::release(waits);
  Engine::release(refused);
  EXPECT_EQ(w.left->start(am_op(w.a, kept, 1, long_one, TW_OP_EAGER), {}), TW_ERR_LIMIT);
  const int before = got.calls;
  ASSERT_GE(w.left->start(am_op(w.a, payload, 1, header, 0), {}), TW_OK);  // what was refused is behind nobody's back
  w.settle(20);
  EXPECT_EQ(got.calls, before + 1);
  EXPECT_EQ(w.b.state, TW_OK);
  EXPECT_EQ(w.b.held_bytes, 0u);
  EXPECT_EQ(static_cast<uint64_t>(w.a.eager_credit) + w.b.consumed_bytes, w.b.granted_bytes) << "no credit is lost";
  // A payload that no window takes beside its header.
  Buffer beside(w.random, 40000);
  tw_request announced = 0;
  ASSERT_GE(w.a.eager_credit, eager_cost(beside.size()));
  ASSERT_EQ(w.left->start(am_op(w.a, beside, 1, long_one, 0), {&announced}), TW_IN_PROGRESS);
  ASSERT_TRUE(w.finish(announced));
  EXPECT_EQ(Engine::test(announced), TW_OK);
  EXPECT_EQ(got.calls, before + 2);
  EXPECT_FALSE(got.here);
  Engine::release(announced);
}

TEST(ActiveFlow, AFloodOfLongHeadersStaysWithinTheBudget) {
  constexpr uint64_t kBudget = 8u << 20;
  World w({}, seed(), kBudget);
  w.connect();
  Got got;
  set_handler(*w.right, 1, handle, &got);
  std::vector<tw_request> sends;
  Buffer payload(w.random, 100000);
  std::deque<Buffer> headers;
  for (size_t length : {300, 60000, 200000, 700000}) headers.emplace_back(w.random, length);
  for (unsigned i = 0; i < 200; ++i) {
    got.what = i % 2 == 0 ? Got::look : Got::keep;
    OpDesc op = am_op(w.a, payload, 1, headers[i % 4], i % 3 == 0 ? TW_OP_RENDEZVOUS : 0);
    op.length = i % 5 == 0 ? 0 : op.length;
    tw_request send = 0;
    ASSERT_GE(w.left->start(op, {&send}), TW_OK);
    if (send != TW_REQUEST_NONE) sends.push_back(send);
    w.turn();
    EXPECT_LE(w.right->granted, kBudget);
    EXPECT_LE(w.b.held_bytes, w.b.granted_bytes);
  }
  for (int i = 0; i < 3000; ++i) {
    w.turn();
    EXPECT_LE(w.right->granted, kBudget);
    EXPECT_LE(w.b.held_bytes, w.b.granted_bytes);
    if (i % 50 != 0) continue;
    for (tw_am_data* data : std::exchange(got.kept, {})) EXPECT_EQ(active_release(data), TW_OK);
  }
  for (tw_request send : sends) {
    EXPECT_EQ(Engine::test(send), TW_OK);
    Engine::release(send);
  }
  EXPECT_EQ(got.calls, 200);
  EXPECT_EQ(w.right->headers, 0u);
  EXPECT_EQ(w.b.state, TW_OK);
}

/// Each waiting message has a copy of its header at whoever keeps it: that is what a sender is not to make grow.
TEST(ActiveFlow, HeadersOfKeptMessagesStayWithinTheBudget) {
  constexpr uint64_t kBudget = 8u << 20;
  constexpr size_t kSends = 400;
  for (const size_t length : {60000, 100000}) {
    World w({}, seed(), kBudget);
    w.connect();
    w.settle(5);
    const uint64_t granted = w.right->granted;
    Got got;
    got.what = Got::keep;
    set_handler(*w.right, 1, handle, &got);
    Buffer payload(w.random, 8), header(w.random, length);
    std::vector<tw_request> sends;
    for (size_t i = 0; i < kSends; ++i) {
      tw_request send = 0;
      ASSERT_GE(w.left->start(am_op(w.a, payload, 1, header, i % 3 == 0 ? TW_OP_RENDEZVOUS : 0), {&send}), TW_OK);
      if (send != TW_REQUEST_NONE) sends.push_back(send);
      w.turn();
    }
    w.settle(2000);
    EXPECT_GT(got.kept.size() * length, kBudget / 4) << "the budget is there to be used";
    EXPECT_LE(got.kept.size() * length, kBudget);
    EXPECT_LE(w.right->granted, kBudget);
    for (int i = 0; i < 2000 && got.calls != kSends; ++i) {
      for (tw_am_data* data : std::exchange(got.kept, {})) EXPECT_EQ(active_release(data), TW_OK);
      w.settle(10);
      EXPECT_LE(got.kept.size() * length, kBudget);
    }
    for (tw_am_data* data : got.kept) EXPECT_EQ(active_release(data), TW_OK);
    w.settle(100);
    EXPECT_EQ(got.calls, static_cast<int>(kSends));
    for (tw_request send : sends) {
      EXPECT_EQ(Engine::test(send), TW_OK);
      Engine::release(send);
    }
    EXPECT_EQ(w.right->headers, 0u);
    EXPECT_EQ(w.right->granted, granted);
    EXPECT_EQ(w.b.held_bytes, 0u);
    EXPECT_EQ(w.b.state, TW_OK);
  }
}

/// A kept message has the memory that was granted for its header, whatever becomes of its sender.
TEST(ActiveLoss, AKeptHeadersGrantEndsWithItsMessage) {
  constexpr size_t kLength = 200000;
  for (const uint32_t flags : {0u, uint32_t{TW_OP_RENDEZVOUS}}) {
    World w({}, seed());
    w.connect();
    w.settle(5);
    Got got;
    got.what = Got::keep;
    set_handler(*w.right, 1, handle, &got);
    Buffer payload(w.random, 100), header(w.random, kLength);
    tw_request send = 0;
    ASSERT_EQ(w.left->start(am_op(w.a, payload, 1, header, flags), {&send}), TW_IN_PROGRESS);
    w.settle(20);
    ASSERT_EQ(got.kept.size(), 1u);
    EXPECT_EQ(w.right->headers, kLength);
    w.pa->lose(*w.la);
    w.settle(5);
    EXPECT_EQ(w.right->headers, kLength);
    const uint64_t of_payload = flags == 0 ? static_cast<uint64_t>(eager_cost(payload.size())) : 0;  // else at the sender
    EXPECT_EQ(w.right->granted, kLength + of_payload) << "nothing else is left of the peer's";
    w.right->remove(w.b);
    EXPECT_EQ(active_release(got.kept[0]), TW_OK);
    EXPECT_EQ(w.right->headers, 0u);
    EXPECT_EQ(w.right->granted, 0u);
    Engine::release(send);
  }
}

/// Keeping all the credit does not stop a header, even without waiting.
TEST(ActiveFlow, ALongHeaderBeyondTheCreditIsAskedFor) {
  World w;
  w.connect();
  Got got;
  got.what = Got::keep;
  set_handler(*w.right, 1, handle, &got);
  Buffer from(w.random, 60000), header(w.random, 10), long_one(w.random, 400);
  for (int i = 0; i < 40 && w.a.eager_credit >= eager_cost(60010 + 700); ++i) {
    ASSERT_GE(w.left->start(am_op(w.a, from, 1, header, 0), {}), TW_OK);
    w.settle(5);
  }
  w.a.eager_credit = 600;
  Buffer payload(w.random, 300);
  const int before = got.calls;
  tw_request send = 0;
  ASSERT_EQ(w.left->start(am_op(w.a, payload, 1, long_one, TW_OP_NO_WAIT), {&send}), TW_IN_PROGRESS);
  EXPECT_EQ(w.left->cancel(send), TW_ERR_BUSY) << "it is asked for";
  tw_request behind = 0;
  ASSERT_EQ(w.left->start(am_op(w.a, payload, 1, header, 0), {&behind}), TW_IN_PROGRESS) << "in its order";
  EXPECT_EQ(w.left->cancel(behind), TW_OK);
  ASSERT_TRUE(w.finish(send));
  EXPECT_EQ(Engine::test(send), TW_OK);
  w.settle(5);
  EXPECT_EQ(got.calls, before + 1);
  EXPECT_TRUE(got.here) << "the payload was paid for";
  EXPECT_TRUE(got.header.size() == 400 && long_one.holds(got.header.data(), 400));
  Engine::release(send);
  Engine::release(behind);
  for (tw_am_data* data : got.kept) EXPECT_EQ(active_release(data), TW_OK);
  EXPECT_EQ(w.b.held_bytes, 0u);
}

TEST(ActiveLoss, InTheMiddleOfALongHeader) {
  for (size_t length : {size_t{9000}, size_t{200000}}) {
    for (size_t size : {size_t{0}, size_t{9000}, size_t{500000}}) {
      for (size_t frames = 0; frames < 8; ++frames) {
        World w({}, seed());
        w.connect();
        w.settle(5);
        Got got;
        set_handler(*w.right, 1, handle, &got);
        Buffer from(w.random, size), header(w.random, length);
        w.pa->allowed = frames;
        tw_request send = 0;
        const Status started = w.left->start(am_op(w.a, from, 1, header, 0), {&send});
        w.settle(5);
        w.pa->lose(*w.la);
        w.settle(5);
        EXPECT_EQ(started == TW_OK ? started : Engine::test(send), got.calls != 0 ? TW_OK : TW_ERR_PEER_LOST) << frames;
        EXPECT_TRUE(frames > 1 || got.calls == 0);
        EXPECT_EQ(w.right->granted, 0u);
        EXPECT_EQ(w.right->headers, 0u);
        EXPECT_EQ(w.right->active().dropped, 0u);
        if (started != TW_OK) Engine::release(send);
      }
    }
  }
}

TEST(ActiveLoss, KeptRtsEndAndCopiesStay) {
  World w;
  w.connect();
  Got got;
  got.what = Got::keep;
  set_handler(*w.right, 1, handle, &got);
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
  ASSERT_EQ(active_receive(got.kept[0], receive_op(to.data(), 100, 0, 0), {&first}), TW_IN_PROGRESS);
  EXPECT_EQ(Engine::test(first), TW_OK);
  EXPECT_TRUE(to.holds(small.data(), 100));
  ASSERT_EQ(active_receive(got.kept[1], receive_op(to.data(), 500000, 0, 0), {&second}), TW_IN_PROGRESS);
  EXPECT_EQ(Engine::test(second), TW_ERR_PEER_LOST);
  Engine::release(first);
  Engine::release(second);
  EXPECT_EQ(active_release(got.kept[1]), TW_ERR_HANDLE);
}

TEST(ActiveReply, HandlersPostAndMissingHandlersDrop) {
  World w;
  w.connect();
  Buffer from(w.random, 64), header(w.random, 4), answer(w.random, 64);
  struct Reply {
    World* world;
    Buffer* with;
  } reply{&w, &from};
  set_handler(
      *w.right, 2,
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
