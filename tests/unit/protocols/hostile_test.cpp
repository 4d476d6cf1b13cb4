// SPDX-License-Identifier: Apache-2.0
// Protocol violations: each closes its link with TW_ERR_PROTOCOL and affects no other.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <set>
#include <thread>

#include "base/clock.hpp"
#include "memory/placement.hpp"
#include "protocols/active.hpp"
#include "protocols/blocks.hpp"
#include "protocols/device_queues.hpp"
#include "protocols/eager.hpp"
#include "protocols/flow.hpp"
#include "protocols/one_sided.hpp"
#include "support.hpp"
#include "unit/devices/emulated_tools.hpp"

namespace thalweg::test {
namespace {

std::vector<std::byte> bytes_of(const void* from, size_t n) {
  const std::byte* b = static_cast<const std::byte*>(from);
  return {b, b + n};
}

void expect_closed(const char* what, FrameHeader header, const std::vector<std::byte>& body) {
  World w;
  w.connect();
  Buffer to(w.random, 8);
  tw_request restricted = 0;
  OpDesc op = receive_op(to.data(), 8, 12345, ~0ull);
  op.peer = &w.b;
  w.right->post_receive(op, {&restricted});
  w.settle(3);
  header.length = static_cast<uint32_t>(body.size());
  w.pb->inject(*w.lb, header, body);
  w.settle(5);
  EXPECT_EQ(w.b.state, TW_ERR_PROTOCOL) << what;
  EXPECT_EQ(Engine::test(restricted), TW_ERR_PROTOCOL) << what;
  EXPECT_EQ(w.a.state, TW_ERR_PROTOCOL) << what;  // the peer is notified
  EXPECT_EQ(w.pb->parted, 1u) << what;            // nothing that it shows in shared memory is waited for
  Engine::release(restricted);
}

/// Whoever says goodbye copies no more; at the side that closes, the other one may.
TEST(Hostile, APeerThatHasSaidGoodbyeIsNotWaitedFor) {
  World w;
  w.connect();
  w.pb->inject(*w.lb, make_header(Frame::goodbye, 0, 0, 0), {});
  w.right->progress();
  EXPECT_EQ(w.b.state, TW_ERR_CLOSED);
  EXPECT_EQ(w.pb->parted, 1u);
  World other;
  other.connect();
  other.left->close(other.a, true);
  EXPECT_EQ(other.pa->closed, 1u);
  EXPECT_EQ(other.pa->parted, 0u);
}

TEST(Hostile, BadFramesCloseTheLink) {
  expect_closed("unknown type", make_header(static_cast<Frame>(60), 0, 0, 0), {});
  expect_closed("short sync", make_header(Frame::tagged, 0, 0, 0, kFrameSync), bytes_of("abc", 3));
  expect_closed("short first", make_header(Frame::tagged_first, 0, 0, 0), bytes_of("abc", 3));
  FirstBody first{1, uint64_t{1} << 60};
  expect_closed("huge first", make_header(Frame::tagged_first, 0, 0, 0), bytes_of(&first, sizeof first));
  expect_closed("huge am", make_header(Frame::am_first, 0, 0, 0), bytes_of(&first, sizeof first));
  expect_closed("short rts", make_header(Frame::tagged_rts, 0, 0, 0), bytes_of("abc", 3));
  expect_closed("am header too long", make_header(Frame::am, 0, 5, 0), std::vector<std::byte>(4));
  expect_closed("more of nothing", make_header(Frame::data, 0, 1, 0, kFrameMore), std::vector<std::byte>(4));
  expect_closed("credit", make_header(Frame::credit, 0, ~0ull, 0), {});
  expect_closed("short cts", make_header(Frame::cts, 0, 1, 0), bytes_of("abc", 3));
}

std::vector<std::byte> first_part(uint64_t length, size_t n, bool announced = false) {
  const FirstBody first{1, length};
  std::vector<std::byte> body = bytes_of(&first, sizeof first);
  body.resize(body.size() + (announced ? sizeof(RtsBody) : 0) + n);
  return body;
}

TEST(Hostile, BadLongHeadersCloseTheLink) {
  const uint64_t huge = ~0ull;
  const auto closed = [](const char* what, uint64_t a, const std::vector<std::byte>& body, Frame frame = Frame::am_long) {
    expect_closed(what, make_header(frame, 0, a, 0), body);
  };
  for (const Frame frame : {Frame::am_long, Frame::am_long_rts}) {
    const bool announced = frame == Frame::am_long_rts;
    const auto part = [=](uint64_t length, size_t n) { return first_part(length, n, announced); };
    closed("cut", 300, bytes_of("abc", 3), frame);
    closed("longer than what comes", 301, part(300, 10), frame);
    closed("short", kShortHeader, part(kShortHeader, 10), frame);
    closed("more than declared", 300, part(300, 301), frame);
    closed("nothing of it", 300, part(300, 0), frame);
    closed("overflow", 300, part(huge, 10), frame);
    closed("overflow of both", huge, part(huge, 10), frame);
    closed("beyond the grant", 2u << 20, part(2u << 20, 10), frame);
    closed("all of the grant", 1u << 20, part(1u << 20, 10), frame);
  }
  closed("a payload beyond the grant", 300, first_part(300 + (2u << 20), 10));
  closed("an announced one that comes along", 300, first_part(301, 10, true), Frame::am_long_rts);
  closed("a cut RTS", 300, first_part(300, 10), Frame::am_long_rts);
  expect_closed("asked for nothing", make_header(Frame::am_ask, 0, 1, 0), {});
  expect_closed("asked for a short one", make_header(Frame::am_ask, 0, 1, kShortHeader), {});
}

/// What may not follow the first part of a long header, of 1000 bytes and as many of payload.
TEST(Hostile, NothingComesBetweenThePartsOfALongHeader) {
  const FirstBody tagged{2, 1000};
  const struct {
    FrameHeader header;
    std::vector<std::byte> body;
  } bad[] = {{make_header(Frame::am_long, 0, 1000, 0), first_part(1000, 10)},
             {make_header(Frame::am_long_rts, 0, 1000, 0), first_part(1000, 10, true)},
             {make_header(Frame::am_first, 0, 0, 0), first_part(1000, 10)},
             {make_header(Frame::tagged_first, 0, 1, 0), bytes_of(&tagged, sizeof tagged)},
             {make_header(Frame::data, 0, 1, 101, kFrameMore), std::vector<std::byte>(10)},
             {make_header(Frame::data, 0, 1, 100, kFrameMore), std::vector<std::byte>(1901)},
             {make_header(Frame::data, 0, 2, 100, kFrameMore), std::vector<std::byte>(10)}};
  for (const auto& frame : bad) {
    World w;
    w.connect();
    int calls = 0;
    const auto count = [](void* arg, const tw_am_message*) -> tw_status { return ++*static_cast<int*>(arg), TW_OK; };
    set_handler(*w.right, 3, count, &calls);
    std::vector<std::byte> body = first_part(2000, 100);
    w.pb->inject(*w.lb, make_header(Frame::am_long, body.size(), 1000, 0, 0, 3), body);
    w.settle(3);
    ASSERT_EQ(w.b.state, TW_OK);
    FrameHeader header = frame.header;
    header.length = static_cast<uint32_t>(frame.body.size());
    w.pb->inject(*w.lb, header, frame.body);
    w.settle(3);
    EXPECT_EQ(w.b.state, TW_ERR_PROTOCOL) << &frame - bad;
    EXPECT_EQ(calls, 0);
    EXPECT_EQ(w.right->granted, 0u);
  }
}

TEST(Hostile, AHeaderIsTheOneThatWasAskedFor) {
  constexpr uint64_t kAsked = 3u << 20;
  const auto ask = [](World& w, uint64_t length) {
    w.pb->inject(*w.lb, make_header(Frame::am_ask, 0, 5, length), {});
    w.settle(3);
  };
  {
    World w;
    w.connect();
    ask(w, ~0ull);  // refused by name, and nothing else
    ask(w, 60u << 20);
    EXPECT_EQ(w.pb->frames(Frame::fin), 2u);
    EXPECT_EQ(w.b.state, TW_OK);
    EXPECT_EQ(w.right->headers, 0u);
    ask(w, kAsked);
    EXPECT_EQ(w.right->headers, kAsked);
    ask(w, 1000);  // before it has come
    EXPECT_EQ(w.b.state, TW_ERR_PROTOCOL);
    EXPECT_EQ(w.right->headers, 0u);
    EXPECT_EQ(w.right->granted, 0u);
  }
  for (const uint64_t length : {kAsked - 1, kAsked + 1, uint64_t{300}}) {
    World w;
    w.connect();
    ask(w, kAsked);
    const std::vector<std::byte> body = first_part(length, 100);
    w.pb->inject(*w.lb, make_header(Frame::am_long, body.size(), length, 0, 0, 3), body);
    w.settle(3);
    EXPECT_EQ(w.b.state, TW_ERR_PROTOCOL) << length;
    EXPECT_EQ(w.right->granted, 0u);
  }
}

/// What stalls while it holds a header's memory holds up those that find no room, and its end lets them go.
TEST(Hostile, HeadersOfManyPeersShareTheBudget) {
  constexpr uint64_t kBudget = 16u << 20;
  World w({}, seed(), kBudget);
  w.connect();
  std::deque<Peer> peers;
  std::vector<FakeLink*> theirs;
  for (int i = 0; i < 12; ++i) {
    FakeLink *to_b = nullptr, *to_a = nullptr;
    FakePort::connect(*w.pa, *w.pb, &to_b, &to_a);
    theirs.push_back(to_a);
    w.right->attach(peers.emplace_back(), *to_a);
  }
  const uint64_t length = (kBudget - w.right->granted) / 8;
  const auto granted = [&] {
    return std::count_if(peers.begin(), peers.end(), [](const Peer& p) { return p.header.granted; });
  };
  for (FakeLink* link : theirs) w.pb->inject(*link, make_header(Frame::am_ask, 0, 5, length), {});
  w.settle(5);
  EXPECT_EQ(granted(), 8);
  EXPECT_LE(w.right->granted, kBudget);
  w.right->fail(peers[0], TW_ERR_CLOSED, "it stalls");
  w.settle(5);
  EXPECT_GE(granted(), 8) << "the next one";
  EXPECT_LE(w.right->granted, kBudget);
  for (Peer& peer : peers) w.right->remove(peer);
  EXPECT_EQ(w.right->headers, 0u);
}

/// Those that were granted memory for a header and send none: a short one of another peer does not wait for them, a long one
/// not for ever.
TEST(Hostile, HeadersThatNeverComeHoldUpNobodyForLong) {
  constexpr uint64_t kBudget = 16u << 20;
  World w({}, seed(), kBudget);
  w.connect();
  std::deque<Peer> peers;
  std::vector<FakeLink*> theirs;
  for (int i = 0; i < 10; ++i) {
    FakeLink *to_b = nullptr, *to_a = nullptr;
    FakePort::connect(*w.pa, *w.pb, &to_b, &to_a);
    theirs.push_back(to_a);
    w.right->attach(peers.emplace_back(), *to_a);
  }
  const uint64_t length = (kBudget - w.right->granted) / 8;
  for (size_t i = 0; i < 9; ++i) w.pb->inject(*theirs[i], make_header(Frame::am_ask, 0, 5, length), {});
  w.settle(5);
  ASSERT_TRUE(peers[7].header.granted);
  ASSERT_FALSE(peers[8].header.granted);
  w.pb->inject(*theirs[9], make_header(Frame::am_ask, 0, 5, kHeaderOnCredit), {});
  w.settle(5);
  EXPECT_EQ(peers[9].header.length, 0u) << "it was answered: credit can take that one";
  EXPECT_EQ(peers[7].state, TW_OK) << "not yet";
  while (w.right->arm() == TW_ERR_BUSY) w.right->progress();
  peers[3].header.since = 1;
  EXPECT_EQ(w.right->arm(), TW_ERR_BUSY) << "its end is due before a sleep";
  w.settle(5);
  EXPECT_EQ(peers[3].state, TW_ERR_PEER_LOST);
  EXPECT_TRUE(peers[8].header.granted) << "in its place";
  EXPECT_EQ(peers[7].state, TW_OK);
  for (Peer& peer : peers) w.right->remove(peer);
  EXPECT_EQ(w.right->headers, 0u);
}

/// Those that send theirs byte by byte hold others up no longer.
TEST(Hostile, HeadersThatComeByteByByteHoldUpNobodyForLong) {
  constexpr uint64_t kBudget = 8u << 20, kPause = 20 * kMillisecond;
  World w({}, seed(), kBudget, false, {}, 50 * kMillisecond);
  w.connect();
  std::deque<Peer> peers;
  std::vector<FakeLink*> theirs;
  for (int i = 0; i < 9; ++i) {
    FakeLink *to_b = nullptr, *to_a = nullptr;
    FakePort::connect(*w.pa, *w.pb, &to_b, &to_a);
    theirs.push_back(to_a);
    w.right->attach(peers.emplace_back(), *to_a);
  }
  const uint64_t length = (kBudget - w.right->granted) / 8;
  ASSERT_GT(length, kHeaderOnCredit);
  for (FakeLink* link : theirs) w.pb->inject(*link, make_header(Frame::am_ask, 0, 5, length), {});
  w.settle(5);
  ASSERT_TRUE(peers[7].header.granted);
  ASSERT_FALSE(peers[8].header.granted);
  const std::vector<std::byte> first = first_part(length, 1);
  for (size_t i = 0; i < 8; ++i) w.pb->inject(*theirs[i], make_header(Frame::am_long, first.size(), length, 0, 0, 3), first);
  uint64_t sent = 1, at = monotonic_ns();
  const Deadline limit(10 * kSecond);
  while (!peers[8].header.granted && !limit.passed()) {
    w.turn();
    if (monotonic_ns() - at < kPause) continue;
    at = monotonic_ns();
    for (size_t i = 0; i < 8; ++i) {
      if (peers[i].state == TW_OK) w.pb->inject(*theirs[i], make_header(Frame::data, 1, 1, sent, kFrameMore), {std::byte{1}});
    }
    ++sent;
  }
  EXPECT_TRUE(peers[8].header.granted) << "its turn never came, after " << sent << " bytes of the others";
  EXPECT_EQ(peers[8].state, TW_OK);
  EXPECT_EQ(peers[0].state, TW_ERR_PEER_LOST);
  EXPECT_GT(sent, 2u) << "none at all";
  for (Peer& peer : peers) w.right->remove(peer);
  EXPECT_EQ(w.right->headers, 0u);
}

/// Answers to a sender: none that it does not wait for, and no request for a payload whose header is under way.
TEST(Hostile, AnswersForALongHeader) {
  const auto limit = static_cast<uint64_t>(int64_t{TW_ERR_LIMIT}), stale = static_cast<uint64_t>(int64_t{TW_ERR_STALE});
  const CtsBody cts{1, 0, 100, 0, 0, 0};
  const std::vector<std::byte> asks = bytes_of(&cts, sizeof cts);
  for (const int lie : {0, 1, 2, 3, 4}) {
    World w;
    w.connect();
    w.settle(5);
    Buffer from(w.random, 300000), header(w.random, lie < 2 || lie == 4 ? 200000 : 9000);
    OpDesc op = send_op(w.b, from, 1, 0);
    op.verb = Verb::am;
    op.header = header.data();
    op.header_length = static_cast<uint32_t>(header.size());
    w.pb->allowed = 1;  // am_ask, or the first part
    tw_request send = 0;
    ASSERT_EQ(w.right->start(op, {&send}), TW_IN_PROGRESS);
    const uint64_t name = wire_op(*w.right, send);
    w.pb->allowed = 0;
    if (lie == 0) w.right->on_frame(*w.lb, make_header(Frame::fin, 0, name, stale), nullptr);
    if (lie == 1 || lie == 3) w.right->on_frame(*w.lb, make_header(Frame::cts, asks.size(), name, 0), asks.data());
    if (lie == 2) w.right->on_frame(*w.lb, make_header(Frame::fin, 0, name, limit), nullptr);
    for (int twice = 0; lie == 4 && twice < 2; ++twice) {
      EXPECT_FALSE(w.b.doomed);
      w.right->on_frame(*w.lb, make_header(Frame::fin, 0, name, 0), nullptr);
    }
    w.settle(5);
    EXPECT_EQ(w.b.state, TW_ERR_PROTOCOL) << lie;
    EXPECT_EQ(Engine::test(send), TW_ERR_PROTOCOL) << lie;
    Engine::release(send);
  }
}

TEST(Hostile, BadFramesOfBlocksCloseTheLink) {
  const BlockName names[2] = {{1, 0, 100}, {1, 0, UINT64_MAX - 50}};
  std::vector<std::byte> body = bytes_of(names, sizeof names);
  body.resize(body.size() + 49);  // the sum of the lengths, past its end
  expect_closed("put of short blocks", make_header(Frame::put_blocks, 0, 2, 0), bytes_of(names, 30));
  expect_closed("put of too long blocks", make_header(Frame::put_blocks, 0, 1, 0), bytes_of(names, sizeof names));
  expect_closed("put of blocks past the end", make_header(Frame::put_blocks, 0, 2, 0), body);
  expect_closed("put of many blocks", make_header(Frame::put_blocks, 0, ~0ull / 3, 0), body);
  expect_closed("put of short acknowledgement", make_header(Frame::put_blocks, 0, 0, 0, kFrameAck), bytes_of("abc", 3));
  expect_closed("get of no blocks", make_header(Frame::get_blocks, 0, 1, 0), {});
  expect_closed("get of a cut name", make_header(Frame::get_blocks, 0, 1, 0), bytes_of(names, 30));
  expect_closed("get of more than a frame", make_header(Frame::get_blocks, 0, 1, 0), bytes_of(&names[1], sizeof names[1]));
  expect_closed("long notification", make_header(Frame::notify, 0, 0, 0, 0, UINT16_MAX), std::vector<std::byte>(65));
  NoticeBody notice{7, kNoSignal, {}};
  const FrameHeader plain = make_header(Frame::notice, 0, 0, 0, 0, kNotifyQueue);
  expect_closed("notification behind a put, cut", plain, bytes_of(&notice, sizeof notice - 1));
  expect_closed("notification behind a put, too long", plain, std::vector<std::byte>(sizeof notice + 1));
  expect_closed("notification with a cut acknowledgement", make_header(Frame::notice, 0, 0, 0, kFrameAck, kNotifyQueue),
                bytes_of(&notice, sizeof notice));
  notice.signal_op = 2;
  expect_closed("notification with a signal of unknown kind", plain, bytes_of(&notice, sizeof notice));
  World w;
  w.connect();
  for (int i = 0; i < 10'000; ++i) w.pb->inject(*w.lb, make_header(Frame::notify, 8, 0, 0, 0, UINT16_MAX), bytes_of(names, 8));
  w.settle(300);
  EXPECT_EQ(w.b.state, TW_ERR_PROTOCOL);
  World more;
  more.connect();
  notice.signal_op = kNoSignal;
  const FrameHeader whole = make_header(Frame::notice, sizeof notice, 0, 0, 0, kNotifyQueue);
  for (int i = 0; i < 10'000; ++i) more.pb->inject(*more.lb, whole, bytes_of(&notice, sizeof notice));
  more.settle(300);
  EXPECT_EQ(more.b.state, TW_ERR_PROTOCOL);
  EXPECT_NE(more.b.why.find("than it was granted"), std::string::npos) << more.b.why;
}

/// A stream takes longer bodies than are sent by copy: pinned memory, through which they go to a device, has room for those alone.
TEST(Hostile, BlocksOfMoreThanAFrameTakesDoNotReachADevice) {
  constexpr size_t kChunk = DeviceQueues::kChunk;
  static auto* const device = emulated::open_device(12).release();  // until the program exits: engines keep queues of it
  for (const uint32_t most : {4096u, 2u << 20}) {
    FakeOptions options;
    options.copy_max = most;
    World w(options, seed());
    w.connect();
    tw_memory* memory = nullptr;
    ASSERT_EQ(allocate_at(w.registry_b, {MemoryKind::emulated, device}, 2 * kChunk, 0, false, &memory), TW_OK) << last_error();
    KeyBody key;
    ASSERT_EQ(w.registry_b.export_range(memory, 0, 0, 0, &key), TW_OK);
    const auto put = [&](uint64_t length) {
      const BlockName name{key.rkey, 0, length};
      std::vector<std::byte> body = bytes_of(&name, sizeof name);
      for (uint64_t i = 0; i < length; ++i) body.push_back(static_cast<std::byte>(w.random() | 1));
      w.pb->inject(*w.lb, make_header(Frame::put_blocks, body.size(), 1, 0), body);
      w.settle(5);
      body.erase(body.begin(), body.begin() + sizeof name);
      return emulated::holds(*device, reinterpret_cast<uint64_t>(memory->address), body);
    };
    EXPECT_TRUE(put(std::min<uint64_t>(most, kChunk)));
    EXPECT_EQ(w.b.state, TW_OK) << w.b.why;
    EXPECT_FALSE(put(kChunk + 4072));
    EXPECT_EQ(w.b.state, TW_ERR_PROTOCOL);
    EXPECT_NE(w.b.why.find("more blocks than a frame"), std::string::npos) << w.b.why;
    EXPECT_EQ(w.registry_b.release(memory), TW_OK);
  }
}

/// A signal whose key a peer never had is not touched, and there is no notification.
TEST(Hostile, NotificationsWithAForeignSignalTellNothing) {
  World w;
  w.connect();
  const NoticeBody notice{7, TW_SIGNAL_ADD, {}};
  w.pb->inject(*w.lb, make_header(Frame::notice, sizeof notice, 0x1234567, 1, 0, kNotifyQueue),
               bytes_of(&notice, sizeof notice));
  w.settle(50);
  tw_notification got;
  EXPECT_EQ(next_notification(*w.right, &got), TW_AGAIN);
  EXPECT_EQ(w.b.state, TW_OK) << w.b.why;
}

TEST(Hostile, MoreThanGrantedClosesTheLink) {
  World w;
  w.connect();
  std::vector<std::byte> body(4096);
  for (int i = 0; i < 1000; ++i) w.pb->inject(*w.lb, make_header(Frame::tagged, body.size(), 1, 0), body);
  w.settle(50);
  EXPECT_EQ(w.b.state, TW_ERR_PROTOCOL);
  World v;
  v.connect();
  RtsBody rts{};
  for (int i = 0; i < 1000; ++i)
    v.pb->inject(*v.lb, make_header(Frame::tagged_rts, sizeof rts, 1, 0), bytes_of(&rts, sizeof rts));
  v.settle(50);
  EXPECT_EQ(v.b.state, TW_ERR_PROTOCOL);
  World u;
  u.connect();
  for (int i = 0; i < 1000; ++i) u.pb->inject(*u.lb, make_header(Frame::bytes, body.size(), 0, 0), body);
  u.settle(50);
  EXPECT_EQ(u.b.state, TW_ERR_PROTOCOL);
}

/// A receiver that maps its peer's memory, and a segment of it.
struct BounceWorld : World {
  static constexpr uint64_t kSegment = 77, kLength = 4096;
  BounceWorld() : World(FakeOptions{.features = kLinkMaps}), bytes(kLength) {
    for (std::byte& b : bytes) b = static_cast<std::byte>(random());
    connect();
    pb->segments[kSegment].address = bytes.data();
    pb->segments[kSegment].length = kLength;
  }
  template <class Body>
  void send(Frame type, uint64_t a, uint64_t b, const Body& body, uint8_t flags = 0) {
    pb->inject(*lb, make_header(type, sizeof body, a, b, flags), bytes_of(&body, sizeof body));
    settle(3);
  }
  void tell(uint64_t segment = kSegment, uint64_t offset = 96, uint64_t length = 4000, bool on_device = false) {
    send(Frame::bounce, segment, 0, BounceBody{offset, length, {}, static_cast<uint8_t>(on_device), {}});
  }
  /// A receive of 1000 bytes that has asked for them. Its name.
  uint64_t receive(Buffer& to) {
    EXPECT_EQ(post(*this, to, 1, ~0ull, &request), TW_IN_PROGRESS);
    send(Frame::tagged_rts, 1, 0, RtsBody{77, 1000, 0, 0, 0});
    return wire_op(*right, request);
  }
  std::vector<std::byte> bytes;
  tw_request request = 0;
};

TEST(Hostile, NamedPiecesArriveAndAreGivenBack) {
  BounceWorld w;
  w.tell();
  EXPECT_EQ(w.pb->frames(Frame::bounce), 1u);  // that it is mapped
  Buffer to(w.random, 1000);
  const uint64_t op = w.receive(to);
  w.send(Frame::data_at, op, 0, PieceBody{w.kSegment, 100, 600, 5});
  w.send(Frame::data_at, op, 600, PieceBody{w.kSegment, 3696, 400, 5});
  EXPECT_EQ(Engine::test(w.request), TW_OK);
  EXPECT_TRUE(to.holds(w.bytes.data() + 100, 600) && std::memcmp(to.data() + 600, w.bytes.data() + 3696, 400) == 0);
  EXPECT_TRUE(to.guarded());
  EXPECT_EQ(w.pb->frames(Frame::taken), 2u);
  w.send(Frame::data_at, op, 0,
         PieceBody{w.kSegment, 100, 600, 5});  // of a receive that has ended: given back, and nothing else
  EXPECT_EQ(w.pb->frames(Frame::taken), 3u);
  EXPECT_EQ(w.b.state, TW_OK);
  Engine::release(w.request);
}

TEST(Hostile, BadPiecesCloseTheLink) {
  const uint64_t segment = BounceWorld::kSegment, huge = ~0ull;
  const PieceBody bad[] = {{segment + 1, 100, 600, 5}, {segment, 95, 600, 5},   {segment, 3497, 600, 5}, {segment, 100, 0, 5},
                           {segment, 100, huge, 5},    {segment, huge, 600, 5}, {segment, 100, 1001, 5}};
  for (const PieceBody& piece : bad) {
    BounceWorld w;
    w.tell();
    Buffer to(w.random, 1000);
    const uint64_t op = w.receive(to);
    w.send(Frame::data_at, op, 0, piece);
    EXPECT_EQ(w.b.state, TW_ERR_PROTOCOL) << &piece - bad;
    EXPECT_EQ(Engine::test(w.request), TW_ERR_PROTOCOL) << &piece - bad;
    EXPECT_TRUE(to.guarded());
    Engine::release(w.request);
    if (piece.length == 1001) continue;  // a put may be as long
    BounceWorld v;
    v.tell();
    v.send(Frame::put_at, 1, 0, piece);
    EXPECT_EQ(v.b.state, TW_ERR_PROTOCOL) << &piece - bad;
  }
  for (const uint64_t position : {uint64_t{1}, huge}) {
    BounceWorld w;
    w.tell();
    Buffer to(w.random, 1000);
    const uint64_t op = w.receive(to);
    w.send(Frame::data_at, op, position, PieceBody{segment, 100, 600, 5});
    EXPECT_EQ(w.b.state, TW_ERR_PROTOCOL) << position;
    Engine::release(w.request);
  }
  expect_closed("short piece", make_header(Frame::data_at, 0, 1, 0), bytes_of(bad, 30));
  expect_closed("piece of nothing", make_header(Frame::data_at, 0, 1, 0), bytes_of(bad, sizeof bad[0]));
}

TEST(Hostile, BadBounceBuffersCloseTheLink) {
  BounceWorld twice, many, none, around, device;
  twice.tell();
  twice.tell();
  EXPECT_EQ(twice.b.state, TW_ERR_PROTOCOL);
  for (uint64_t i = 0; i < 70; ++i) many.tell(1000 + i);
  EXPECT_EQ(many.b.state, TW_ERR_PROTOCOL);
  none.tell(BounceWorld::kSegment, 0, 0);
  EXPECT_EQ(none.b.state, TW_ERR_PROTOCOL);
  around.tell(BounceWorld::kSegment, ~0ull - 5, 100);
  EXPECT_EQ(around.b.state, TW_ERR_PROTOCOL);
  // A device's, for a receive in host memory.
  device.tell(BounceWorld::kSegment, 96, 4000, true);
  Buffer to(device.random, 1000);
  const uint64_t op = device.receive(to);
  device.send(Frame::data_at, op, 0, PieceBody{BounceWorld::kSegment, 100, 600, 5});
  EXPECT_EQ(device.b.state, TW_ERR_PROTOCOL);
  Engine::release(device.request);
  // One that is not mapped: shorter than it was said to be, or unknown to its owner.
  for (const uint64_t segment : {BounceWorld::kSegment, uint64_t{4}}) {
    BounceWorld w;
    w.tell(segment, 0, 5000);
    w.send(Frame::put_at, 1, 0, PieceBody{segment, 100, 600, 5});
    EXPECT_EQ(w.b.state, TW_ERR_PROTOCOL) << segment;
  }
}

TEST(Hostile, NamedPutsKeepToTheirKeys) {
  BounceWorld w;
  w.tell();
  std::vector<std::byte> memory(1000);
  tw_memory* region = nullptr;
  KeyBody key{};
  ASSERT_EQ(w.registry_b.register_memory(memory.data(), memory.size(), TW_MEMORY_ALL, &region), TW_OK);
  ASSERT_EQ(w.registry_b.export_range(region, 0, memory.size(), TW_MEMORY_READ, &key), TW_OK);
  const PieceBody piece{w.kSegment, 100, 600, 5};
  w.send(Frame::put_at, key.rkey, 0, piece);      // may only be read
  w.send(Frame::put_at, key.rkey + 1, 0, piece);  // unknown
  EXPECT_EQ(std::count(memory.begin(), memory.end(), std::byte{0}), 1000);
  ASSERT_EQ(w.registry_b.export_range(region, 0, memory.size(), TW_MEMORY_WRITE, &key), TW_OK);
  w.send(Frame::put_at, key.rkey, 401, piece);  // past its end
  EXPECT_EQ(std::count(memory.begin(), memory.end(), std::byte{0}), 1000);
  w.send(Frame::put_at, key.rkey, 400, piece);
  EXPECT_EQ(std::memcmp(memory.data() + 400, w.bytes.data() + 100, 600), 0);
  EXPECT_EQ(w.pb->frames(Frame::fin), 4u);
  EXPECT_EQ(w.b.state, TW_OK);
  w.registry_b.release(region);
}

TEST(Hostile, PiecesThatWereNotSentAreNotTaken) {
  World w(FakeOptions{.features = kLinkMaps});
  w.connect();
  Buffer large(w.random, 300000);
  tw_request send = 0;
  ASSERT_EQ(w.right->start(send_op(w.b, large, 1, 0), {&send}), TW_IN_PROGRESS);
  w.settle(3);
  w.pb->inject(*w.lb, make_header(Frame::taken, 0, wire_op(*w.right, send), 0), {});
  w.settle(3);
  EXPECT_EQ(w.b.state, TW_ERR_PROTOCOL);
  EXPECT_EQ(Engine::test(send), TW_ERR_PROTOCOL);
  Engine::release(send);
}

TEST(Hostile, UnknownWithoutTheMustUnderstandBitIsSkipped) {
  World w;
  w.connect();
  FrameHeader header = make_header(static_cast<Frame>(60), 0, 0, 0);
  header.type = 60;
  w.pb->inject(*w.lb, header, {});
  w.settle(3);
  EXPECT_EQ(w.b.state, TW_OK);
}

TEST(Hostile, AnotherEndpointsOperationCannotBeTouched) {
  World w;
  w.connect();
  Peer other;
  FakeLink *to_b = nullptr, *to_a = nullptr;
  FakePort::connect(*w.pa, *w.pb, &to_b, &to_a);
  w.right->attach(other, *to_a);
  Buffer large(w.random, 300000);
  tw_request send = 0;
  w.right->start(send_op(w.b, large, 1, 0), {&send});
  w.settle(3);
  const uint64_t op = wire_op(*w.right, send);
  w.pb->inject(*to_a, make_header(Frame::fin, 0, op, 0), {});
  CtsBody cts{1, 0, 100, 0, 0, 0};
  w.pb->inject(*to_a, make_header(Frame::cts, sizeof cts, op, 0), bytes_of(&cts, sizeof cts));
  w.pb->inject(*to_a, make_header(Frame::matched, 0, op, 0), {});
  w.settle(3);
  EXPECT_EQ(Engine::test(send), TW_IN_PROGRESS);
  w.right->remove(other);
  Engine::release(send);
}

TEST(Hostile, DataOutsideOfWhatWasAskedFor) {
  World w;
  w.connect();
  Buffer to(w.random, 1000);
  tw_request receive = 0;
  post(w, to, 1, ~0ull, &receive);
  RtsBody rts{77, 1000, 0, 0, 0};
  w.pb->inject(*w.lb, make_header(Frame::tagged_rts, sizeof rts, 1, 0), bytes_of(&rts, sizeof rts));
  w.settle(3);
  w.pb->inject(*w.lb, make_header(Frame::data, 600, wire_op(*w.right, receive), 500), std::vector<std::byte>(600));
  w.settle(3);
  EXPECT_EQ(Engine::test(receive), TW_ERR_PROTOCOL);
  EXPECT_TRUE(to.guarded());
  Engine::release(receive);
}

TEST(Hostile, NamesOnTheWireSayNothingOfRequests) {
  World w;
  w.connect();
  Buffer to(w.random, 100);
  OpDesc op_of = receive_op(to.data(), to.size(), 1, ~0ull);
  op_of.peer = &w.b;
  std::set<uint64_t> secrets;
  for (int i = 0; i < 100; ++i) {
    tw_request receive = 0;
    w.right->post_receive(op_of, {&receive});
    const uint64_t op = wire_op(*w.right, receive);
    secrets.insert(op << 20);
    EXPECT_EQ(w.right->runs().answered(op, w.b), w.right->runs().find(receive));
    EXPECT_EQ(w.right->runs().answered(receive, w.b), nullptr);
    EXPECT_EQ(w.right->runs().answered(op ^ 1, w.b), nullptr);
    EXPECT_EQ(w.right->cancel(receive), TW_OK);
    Engine::release(receive);
    EXPECT_EQ(w.right->runs().answered(op, w.b), nullptr);
  }
  EXPECT_EQ(secrets.size(), 100u);  // the same slots again, and never the same name
}

/// The first frame of a message of 2000 bytes with tag 1, with 100 of them.
void begin_message(World& w) {
  const FirstBody first{9, 2000};
  std::vector<std::byte> body = bytes_of(&first, sizeof first);
  body.resize(body.size() + 100, std::byte{1});
  w.pb->inject(*w.lb, make_header(Frame::tagged_first, body.size(), 1, 0), body);
  w.settle(3);
}
void go_on(World& w, uint64_t at, size_t n) {
  w.pb->inject(*w.lb, make_header(Frame::data, n, 9, at, kFrameMore), std::vector<std::byte>(n, std::byte{2}));
  w.settle(3);
}

TEST(Hostile, AnEndThatNobodyWaitsFor) {
  const uint64_t failed = static_cast<uint64_t>(int64_t{TW_ERR_DEVICE});
  World w;
  w.connect();
  Buffer to(w.random, 2000);
  tw_request receive = 0;
  post(w, to, 1, ~0ull, &receive);
  begin_message(w);
  // Guessed: the request number, and numbers near it.
  for (uint64_t op = receive - 4; op != receive + 4; ++op) {
    w.pb->inject(*w.lb, make_header(Frame::fin, 0, op, failed, kFrameLast), {});
    w.pb->inject(*w.lb, make_header(Frame::fin, 0, op, failed), {});
  }
  w.settle(3);
  EXPECT_EQ(Engine::test(receive), TW_IN_PROGRESS);
  // Known: the phase does not wait for it.
  w.pb->inject(*w.lb, make_header(Frame::fin, 0, wire_op(*w.right, receive), failed, kFrameLast), {});
  w.settle(3);
  EXPECT_EQ(Engine::test(receive), TW_ERR_PROTOCOL);
  EXPECT_EQ(w.b.state, TW_ERR_PROTOCOL);
  Engine::release(receive);
}

/// Of a message that was asked for, and of one that is arriving.
TEST(Hostile, NoEndThatAPeerTellsIsTheResultOfALocalCall) {
  for (const int64_t told : {int64_t{TW_ERR_HANDLE}, int64_t{TW_ERR_THREAD}, int64_t{TW_ERR_FORKED}, int64_t{TW_ERR_BUSY},
                             int64_t{TW_ERR_TIMED_OUT}, int64_t{-7777}, int64_t{TW_IN_PROGRESS}, INT64_MIN, INT64_MAX}) {
    const auto code = static_cast<uint64_t>(told);
    World w;
    w.connect();
    w.settle(3);
    Buffer to(w.random, 100'000);
    tw_request asked = 0, arriving = 0;
    post(w, to, 1, ~0ull, &asked);
    const RtsBody rts{77, to.size(), 0, 0, 0};
    w.pb->inject(*w.lb, make_header(Frame::tagged_rts, sizeof rts, 1, 0), bytes_of(&rts, sizeof rts));
    w.settle(3);
    w.pb->inject(*w.lb, make_header(Frame::fin, 0, wire_op(*w.right, asked), code, kFrameLast), {});
    w.settle(3);
    EXPECT_EQ(Engine::test(asked), TW_ERR_PROTOCOL) << told;
    post(w, to, 1, ~0ull, &arriving);
    begin_message(w);
    w.pb->inject(*w.lb, make_header(Frame::fin, 0, 9, code, kFrameMore), {});
    w.settle(3);
    EXPECT_EQ(Engine::test(arriving), TW_ERR_PROTOCOL) << told;
    EXPECT_EQ(w.b.state, TW_OK) << "an operation's end, not the connection's";
    for (const tw_request request : {asked, arriving}) EXPECT_EQ(Engine::release(request), TW_OK);
  }
}

TEST(Hostile, TheRestOfAMessageForAReceiveThatHasEnded) {
  World w;
  w.connect();
  Buffer to(w.random, 2000), other(w.random, 2000);
  tw_request receive = 0, next = 0;
  post(w, to, 1, ~0ull, &receive);
  begin_message(w);
  w.right->complete(*w.right->runs().find(receive), TW_ERR_DEVICE);  // whatever ended it
  Engine::release(receive);
  std::memset(to.data(), 7, to.size());  // it is the caller's again
  post(w, other, 5, ~0ull, &next);       // perhaps the same slot
  go_on(w, 100, 900);
  go_on(w, 1000, 1000);
  EXPECT_EQ(std::count(to.data(), to.data() + to.size(), std::byte{7}), 2000);
  EXPECT_EQ(Engine::test(next), TW_IN_PROGRESS);
  EXPECT_EQ(w.b.state, TW_OK);
  w.pb->inject(*w.lb, make_header(Frame::tagged, 3, 5, 0), bytes_of("abc", 3));
  w.settle(3);
  EXPECT_EQ(Engine::test(next), TW_OK);
  EXPECT_TRUE(to.guarded() && other.guarded());
  Engine::release(next);
}

TEST(Hostile, AMatchForASendThatIsNotSynchronous) {
  FakeOptions options;
  options.features = kLinkByReference;
  World w(options);
  w.connect();
  w.settle(5);
  Buffer large(w.random, 200000);
  tw_request send = 0;
  for (int i = 0; i < 50 && send == 0; ++i) {  // until one is sent by reference and not read yet
    const OpDesc op = send_op(w.b, large.data(), w.b.limits.reference, 1, 0);
    if (w.right->start(op, {&send}) == TW_OK) w.settle(10);
  }
  ASSERT_NE(send, 0u);
  ASSERT_EQ(w.right->runs().find(send)->protocol, &kEagerSingle);
  ASSERT_EQ(w.right->runs().find(send)->stage, 1);
  w.right->on_frame(*w.lb, make_header(Frame::matched, 0, send, 0), nullptr);
  EXPECT_EQ(Engine::test(send), TW_IN_PROGRESS);
  w.right->on_frame(*w.lb, make_header(Frame::matched, 0, wire_op(*w.right, send), 0), nullptr);
  EXPECT_EQ(Engine::test(send), TW_IN_PROGRESS);  // not given back while the link reads it
  EXPECT_TRUE(w.b.doomed);
  w.settle(5);
  Engine::release(send);
}

/// What the link still reads is the operation's: nothing that the caller stores next may go.
TEST(Hostile, AnAnswerToAPutThatTheLinkStillReads) {
  for (const Status lie : {Status{TW_OK}, Status{TW_ERR_STALE}, Status{TW_ERR_HANDLE}}) {
    FakeOptions options;
    options.features = kLinkByReference;
    options.copied = 0;
    World w(options, seed());
    w.connect();
    Buffer from(w.random, 100'000), to(w.random, from.size());
    tw_memory* memory = nullptr;
    KeyBody key;
    RemoteRegion* region = nullptr;
    ASSERT_EQ(w.registry_b.register_memory(to.data(), to.size(), 0, &memory), TW_OK);
    ASSERT_EQ(w.registry_b.export_range(memory, 0, 0, 0, &key), TW_OK);
    ASSERT_EQ(import_region(w.a, key, &region), TW_OK);
    OpDesc put;
    put.verb = Verb::put;
    put.flags = TW_OP_REMOTE;
    put.peer = &w.a;
    put.address = from.data();
    put.length = from.size();
    put.remote = region;
    tw_request request = 0;
    ASSERT_EQ(w.left->start(put, {&request}), TW_IN_PROGRESS);
    ASSERT_NE(w.pa->last_token, nullptr) << "by reference";
    const auto code = static_cast<uint64_t>(int64_t{lie});
    w.pa->inject(*w.la, make_header(Frame::fin, 0, wire_op(*w.left, request), code), {});
    w.left->progress();
    EXPECT_EQ(Engine::test(request), TW_IN_PROGRESS) << lie;
    w.settle(10);
    EXPECT_EQ(Engine::test(request), lie == TW_ERR_HANDLE ? Status{TW_ERR_PROTOCOL} : lie);
    EXPECT_TRUE(to.holds(from.data(), from.size()));
    Engine::release(request);
    release_region(region);
  }
}

TEST(Hostile, AnRtsWhoseSenderIsLostAndNotYetClosed) {
  World w;
  w.connect();
  w.settle(3);
  RtsBody rts{77, 1000, 0, 0, 0};
  w.pb->inject(*w.lb, make_header(Frame::tagged_rts, sizeof rts, 1, 0), bytes_of(&rts, sizeof rts));
  w.settle(3);
  w.right->on_lost(*w.lb, TW_ERR_PEER_LOST, "noticed inside a send");
  w.lb->dead = true;
  Buffer to(w.random, 1000);
  tw_request receive = 0;
  post(w, to, 1, ~0ull, &receive);
  w.settle(3);
  EXPECT_EQ(Engine::test(receive), TW_ERR_PEER_LOST);
  Engine::release(receive);
}

TEST(Hostile, DataBeforeAGetHasAskedForIt) {
  World w;
  w.connect();
  w.right->progress();
  Buffer to(w.random, 1u << 20);
  KeyBody key{};
  key.rkey = 5;
  key.incarnation = 11;
  key.length = to.size();
  key.access = TW_MEMORY_ALL;
  RemoteRegion* region = nullptr;
  ASSERT_EQ(import_region(w.b, key, &region), TW_OK);
  OpDesc op;
  op.verb = Verb::get;
  op.peer = &w.b;
  op.address = to.data();
  op.length = to.size();
  op.remote = region;
  tw_request get = 0;
  ASSERT_EQ(w.right->start(op, {&get}), TW_IN_PROGRESS);
  w.right->progress();
  OpRun* run = w.right->runs().find(get);
  ASSERT_NE(run, nullptr);
  const uint64_t asked = run->moved, name = wire_op(*w.right, get);
  ASSERT_TRUE(asked > 0 && asked < to.size());
  const std::vector<std::byte> data(asked + 8);
  w.right->on_frame(*w.lb, make_header(Frame::data, data.size(), name, 0), data.data());
  w.right->progress();
  EXPECT_EQ(Engine::test(get), TW_ERR_PROTOCOL);
  Engine::release(get);
  release_region(region);
}

// ------------------------------------------------------------------------------------------------ memory that changes

/// A header in a handler is a copy: the peer cannot change it any more.
tw_status look_twice(void* arg, const tw_am_message* message) {
  auto& body = *static_cast<std::vector<std::byte>*>(arg);
  std::fill(body.begin(), body.end(), std::byte{9});
  const std::byte* header = static_cast<const std::byte*>(message->header);
  EXPECT_EQ(std::count(header, header + message->header_length, std::byte{1}), int64_t(message->header_length));
  return TW_OK;
}

TEST(Hostile, HeadersOfActiveMessagesAreCopies) {
  World w;
  w.connect();
  std::vector<std::byte> body(40, std::byte{1});
  set_handler(*w.right, 3, look_twice, &body);
  w.right->on_frame(*w.lb, make_header(Frame::am, 40, 24, 0, 0, 3), body.data());
  EXPECT_EQ(body[0], std::byte{9});
  body.assign(400, std::byte{1});
  w.right->on_frame(*w.lb, make_header(Frame::am, 400, 300, 0, 0, 3), body.data());
  EXPECT_EQ(body[0], std::byte{9});
  body.assign(sizeof(RtsBody) + 24, std::byte{1});
  w.right->on_frame(*w.lb, make_header(Frame::am_rts, body.size(), 24, 0, 0, 3), body.data());
  EXPECT_EQ(body[0], std::byte{9});
  body.assign(30, std::byte{1});
  w.right->on_frame(*w.lb, make_header(Frame::notify, 30, 0, 0, 0, 3), body.data());
  EXPECT_EQ(body[0], std::byte{9});
}

#ifndef __SANITIZE_THREAD__  // its point is a race

/// Writes two values in turn into a word of a frame while its handler runs.
class Rewriter {
 public:
  Rewriter(uint64_t* word, uint64_t one, uint64_t other)
      : thread_([this, word, one, other] {
          while (!stop_.load(std::memory_order_relaxed)) {
            __atomic_store_n(word, one, __ATOMIC_RELAXED);
            for (int i = 0; i < 8; ++i) __atomic_signal_fence(__ATOMIC_SEQ_CST);
            __atomic_store_n(word, other, __ATOMIC_RELAXED);
          }
        }) {}
  ~Rewriter() {
    stop_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

/// Frames of one block, which is named with 8 bytes and with 2000 in turn. While names were read twice the first worlds were
/// enough.
void send_changing_blocks(Frame type, int worlds) {
  const bool put = type == Frame::put_blocks;
  BlockName name{0, 0, 8};
  alignas(8) std::byte body[sizeof name + 2000] = {};
  std::memset(body + sizeof name, 5, 2000);
  const Rewriter rewriter(reinterpret_cast<uint64_t*>(body + offsetof(BlockName, length)), 8, 2000);
  for (int i = 0; i < worlds; ++i) {
    World w;
    w.connect();
    std::vector<std::byte> memory(2000);
    tw_memory* region = nullptr;
    KeyBody key{};
    ASSERT_EQ(w.registry_b.register_memory(memory.data(), memory.size(), TW_MEMORY_ALL, &region), TW_OK);
    ASSERT_EQ(w.registry_b.export_range(region, 0, memory.size(), TW_MEMORY_ALL, &key), TW_OK);
    std::memcpy(body, &key.rkey, sizeof key.rkey);
    const FrameHeader header = make_header(type, sizeof name + (put ? 8 : 0), put ? 1 : 77, 0);
    for (int k = 0; k < 32 && !w.b.doomed; ++k) w.right->on_frame(*w.lb, header, body);  // a put of 2000 ends the link
    w.settle(1);  // FakePort looks at what was written behind the answers to gets
    ASSERT_EQ(std::count(memory.begin() + 8, memory.end(), std::byte{0}), 1992);
    w.registry_b.release(region);
  }
}

TEST(Hostile, NamesOfBlocksThatChange) {
  send_changing_blocks(Frame::get_blocks, 200);
  send_changing_blocks(Frame::put_blocks, 1000);
}
#endif

TEST(Hostile, ARequesterThatReadsNoAnswersIsLeft) {
  World w;
  w.connect();
  std::byte word[8] = {};
  tw_memory* memory = nullptr;
  ASSERT_EQ(w.registry_b.register_memory(word, sizeof word, 0, &memory), TW_OK);
  KeyBody key;
  ASSERT_EQ(w.registry_b.export_range(memory, 0, sizeof word, 0, &key), TW_OK);
  w.pb->allowed = 0;  // no way back
  const GetBody body{1, sizeof word, 0, 0};
  size_t sent = 0;
  uint32_t most = 0;
  for (; sent < 400'000 && w.b.state == TW_OK; ++sent) {
    w.pb->inject(*w.lb, make_header(Frame::get, sizeof body, key.rkey, 0), bytes_of(&body, sizeof body));
    w.right->progress();
    most = std::max(most, w.right->runs().alive());
  }
  EXPECT_TRUE(is_error(w.b.state)) << sent << " requests wait for their answers";
  EXPECT_LT(most, 200'000u);
  EXPECT_NE(w.b.why.find("does not read the answers"), std::string::npos) << w.b.why;
}

/// Each of nine asks less than one alone may. The worker's requests are not for them alone, and a tenth peer that owes little stays.
TEST(Hostile, ManyRequestersThatReadNoAnswersDoNotTakeAllRequests) {
  World w;
  w.connect();
  std::byte word[8] = {};
  tw_memory* memory = nullptr;
  ASSERT_EQ(w.registry_b.register_memory(word, sizeof word, 0, &memory), TW_OK);
  KeyBody key;
  ASSERT_EQ(w.registry_b.export_range(memory, 0, sizeof word, 0, &key), TW_OK);
  std::deque<Peer> others(9);
  std::vector<FakeLink*> links;
  for (Peer& other : others) {
    FakeLink *there = nullptr, *here = nullptr;
    FakePort::connect(*w.pa, *w.pb, &there, &here);
    w.right->attach(other, *here);
    links.push_back(here);
  }
  w.pb->allowed = 0;  // no way back
  const GetBody body{1, sizeof word, 0, 0};
  const auto ask = [&](FakeLink& link) {
    if (!link.dead) w.pb->inject(link, make_header(Frame::get, sizeof body, key.rkey, 0), bytes_of(&body, sizeof body));
  };
  for (int i = 0; i < 10; ++i) ask(*w.lb);
  const uint32_t share = RunPool::kChunk * RunPool::kChunks / 4;
  uint32_t most = 0;
  for (uint32_t sent = 0; sent < share + share / 4; sent += 63) {
    for (int i = 0; i < 7; ++i) {
      for (FakeLink* const link : links) ask(*link);
    }
    w.right->progress();
    most = std::max(most, w.right->runs().alive());
  }
  EXPECT_LE(most, share);
  EXPECT_GT(most, share / 2);
  EXPECT_EQ(w.b.state, TW_OK);
  const auto left = std::count_if(others.begin(), others.end(), [](const Peer& one) { return one.state == TW_ERR_PEER_LOST; });
  EXPECT_GT(left, 0);
  EXPECT_LT(left, 9);
  for (Peer& other : others) w.right->remove(other);
  EXPECT_EQ(w.right->answers_cost, 10u);
}

/// The same with answers that are frames of their own.
class ShortAnswers : public ::testing::Test {
 protected:
  void attach(size_t others) {
    w.connect();
    others_ = std::deque<Peer>(others);
    for (Peer& other : others_) {
      FakeLink *there = nullptr, *here = nullptr;
      FakePort::connect(*w.pa, *w.pb, &there, &here);
      w.right->attach(other, *here);
      links_.push_back(here);
    }
    w.pb->allowed = 0;  // no way back
  }
  /// Of memory that there is not: refused at once.
  void ask(FakeLink& link) {
    const GetBody body{1, 8, 0, 0};
    if (!link.dead) w.pb->inject(link, make_header(Frame::get, sizeof body, 0x1234567, 0), bytes_of(&body, sizeof body));
  }
  void ask_all(int times) {  // of a few peers: as often as one progress takes
    for (int i = 0; i < times; ++i) {
      for (FakeLink* const link : links_) ask(*link);
    }
    w.right->progress();
  }
  void ask_often(FakeLink& link, size_t times) {
    for (size_t i = 0; i < times; ++i) {
      ask(link);
      if (i % 60 == 59 || i + 1 == times) w.right->progress();
    }
  }
  size_t waiting() const {
    size_t all = w.b.control.size();
    for (const Peer& other : others_) all += other.control.size();
    return all;
  }
  size_t lost() const {
    return static_cast<size_t>(
        std::count_if(others_.begin(), others_.end(), [](const Peer& one) { return one.state == TW_ERR_PEER_LOST; }));
  }
  void let_go() {
    w.pb->allowed = SIZE_MAX;
    for (Peer& other : others_) w.right->remove(other);
  }
  World w;
  std::deque<Peer> others_;
  std::vector<FakeLink*> links_;
};

/// Each of nine may have more waiting alone than all of them together.
TEST_F(ShortAnswers, ThatArePiledUpByManyPeersAreBoundedTogether) {
  attach(9);
  for (int i = 0; i < 10; ++i) ask(*w.lb);
  size_t most = 0;
  for (size_t sent = 0; sent < ControlQueue::kLimit * 5 / 4; sent += 63) {
    ask_all(7);
    EXPECT_EQ(waiting(), w.right->control_frames);
    most = std::max(most, waiting());
  }
  EXPECT_LE(most, ControlQueue::kLimit);
  EXPECT_GT(most, ControlQueue::kLimit / 2);
  EXPECT_EQ(w.b.state, TW_OK);
  EXPECT_GT(lost(), 0u);
  EXPECT_LT(lost(), 9u);
  let_go();
  EXPECT_EQ(w.right->control_frames, 10u);
  w.settle();
  EXPECT_EQ(w.right->control_frames, 0u);
}

TEST_F(ShortAnswers, AFewToEachOfManyPeersLoseNone) {
  constexpr size_t kPeers = 160, kEach = ControlQueue::kShare - 16;
  static_assert(kPeers * kEach > ControlQueue::kLimit);
  attach(kPeers);
  for (FakeLink* const link : links_) ask_often(*link, kEach);
  EXPECT_EQ(lost(), 0u);
  EXPECT_EQ(waiting(), kPeers * kEach);
  EXPECT_EQ(w.right->control_frames, kPeers * kEach);
  ask_often(*links_[0], 60);  // one that piles up more than the others
  EXPECT_EQ(others_[0].state, TW_ERR_PEER_LOST);
  EXPECT_EQ(lost(), 1u);
  let_go();
  EXPECT_EQ(w.right->control_frames, 0u);
}

}  // namespace
}  // namespace thalweg::test
