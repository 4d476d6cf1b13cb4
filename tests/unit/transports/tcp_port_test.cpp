// SPDX-License-Identifier: Apache-2.0
// Two tcp ports in one process: every way of sending, back-pressure, destination, loss, sleeping, hostile bytes.
#include <sys/wait.h>
#include <unistd.h>
#include <functional>

#include <atomic>
#include <csignal>
#include <new>
#include <thread>

#include "unit/transports/tcp_pair.hpp"

namespace {
std::atomic<bool> no_chunks{false};  // there is no memory for output queues
}

void* operator new[](std::size_t n, const std::nothrow_t&) noexcept {
  if (no_chunks && n == thalweg::impl::tcp::ChunkPool::kChunk) return nullptr;
  try {
    return ::operator new[](n);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

namespace thalweg::impl::tcp {
namespace {

uint64_t fresh_seed() {
  const uint64_t seed = std::random_device{}();
  ::testing::Test::RecordProperty("seed", std::to_string(seed));
  return seed;
}

class TcpPortOver : public ::testing::TestWithParam<Wire> {
 protected:
  void SetUp() override {
    const auto [a, b] = connected(GetParam());
    if (a < 0) GTEST_SKIP() << "no such address here: " << last_error();
    left.add(a);
    right.add(b);
  }
  Side left, right;
};

TEST_P(TcpPortOver, CarriesRandomFramesInOrderBothWaysAtOnce) {
  const uint64_t seed = fresh_seed();
  RandomSender there(left, seed), back(right, seed + 1);
  exchange(left, there, right, back, 1500, seed);
  EXPECT_GT(right.sink.landed, 0u);
  EXPECT_GT(right.sink.asked, right.sink.landed);
  EXPECT_TRUE(
      progress_until({&left, &right}, [&] { return left.sink.by_reference.empty() && right.sink.by_reference.empty(); }));
  EXPECT_EQ(left.port->queued(*left.link), 0u);
}

TEST_P(TcpPortOver, BoundsItsQueueWhenThePeerDoesNotReadAndLosesNothing) {
  const uint64_t seed = fresh_seed();
  RandomSender there(left, seed), back(right, seed + 1);
  // Neither side reads until both are full.
  while (there.step()) {
  }
  while (back.step()) {
  }
  EXPECT_LE(left.port->queued(*left.link), ChunkPool::kChunk + kMaxReferences * size_t{kReferenceMax});
  EXPECT_LE(left.sink.by_reference.size(), kMaxReferences);
  ASSERT_TRUE(
      progress_until({&left, &right}, [&] { return right.sink.frames == there.accepted && left.sink.frames == back.accepted; }))
      << "seed " << seed;
  EXPECT_GT(there.again, 0u);
}

TEST_P(TcpPortOver, TakesNothingWhileThereIsNoMemoryForItsQueue) {
  const uint64_t seed = fresh_seed();
  std::vector<std::byte> body(512), large(64 * 8);
  FrameHeader header{};
  header.type = 33;
  header.length = static_cast<uint32_t>(body.size());
  header.a = seed;
  fill(body.data(), body.size(), seed);
  fill(large.data(), large.size(), seed);
  std::vector<iovec> pieces;
  for (size_t at = 0; at < large.size(); at += 8) pieces.push_back({large.data() + at, 8});
  const auto send = [&] { return left.port->send(*left.link, header, body.data()); };
  void* const token = &pieces;
  const auto send_reference = [&] {
    return left.port->send_reference(*left.link, header, pieces.data(), pieces.size(), token);
  };
  no_chunks = true;
  Status status = TW_OK;
  while ((status = send()) == TW_OK) ++header.b;
  EXPECT_EQ(status, TW_AGAIN) << last_error();
  EXPECT_EQ(header.b, kImmediate);
  EXPECT_EQ(left.port->arm(), TW_ERR_BUSY) << "nothing would wake who sleeps";
  EXPECT_EQ(send_reference(), TW_AGAIN) << last_error();
  EXPECT_EQ(left.port->arm(), TW_ERR_BUSY);
  EXPECT_EQ(left.port->reserve(*left.link, body.size()), nullptr);
  EXPECT_EQ(left.port->arm(), TW_ERR_BUSY);
  no_chunks = false;
  EXPECT_EQ(send(), TW_OK);
  ++header.b;
  status = send_reference();
  EXPECT_GE(status, TW_OK) << last_error();
  if (status == TW_IN_PROGRESS) left.sink.by_reference.emplace(token, std::move(large));
  EXPECT_TRUE(progress_until({&left, &right}, [&] { return right.sink.frames == header.b + 1; }));
  EXPECT_TRUE(progress_until({&left, &right}, [&] { return left.sink.by_reference.empty(); }));
}

TEST_P(TcpPortOver, TellsALossOnceAfterTheLastFrames) {
  RandomSender there(left, fresh_seed(), 20000);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(there.step());
  ASSERT_TRUE(progress_until({&left}, [&] { return left.port->queued(*left.link) == 0; }));
  left.port.reset();  // the sockets close
  ASSERT_TRUE(progress_until({&right}, [&] { return right.sink.lost > 0; }));
  for (int i = 0; i < 10; ++i) right.port->progress(64);
  EXPECT_EQ(right.sink.lost, 1u);
  EXPECT_EQ(right.sink.frames, 10u);
  EXPECT_EQ(right.sink.lost_status, TW_ERR_PEER_LOST);
  EXPECT_FALSE(right.sink.why.empty());
}

TEST_P(TcpPortOver, ReportsBodiesByReferenceWhenThePeerGoesAway) {
  RandomSender there(left, fresh_seed());
  there.by_reference_only = true;
  while (there.step()) {
  }
  ASSERT_EQ(left.sink.by_reference.size(), kMaxReferences);
  right.port.reset();
  ASSERT_TRUE(progress_until({&left}, [&] { return left.sink.lost > 0; }));
  EXPECT_TRUE(left.sink.by_reference.empty());
  EXPECT_EQ(left.sink.sent_status, TW_ERR_PEER_LOST);
}

TEST_P(TcpPortOver, GracefulCloseDeliversWhatIsQueued) {
  RandomSender there(left, fresh_seed()), back(right, fresh_seed(), 3000);
  while (there.step()) {
  }
  for (int i = 0; i < 5; ++i) back.step();  // unread bytes at the closing side must not reset the connection
  left.port->close(*left.link, true);
  ASSERT_TRUE(progress_until({&left, &right}, [&] { return right.sink.lost > 0; }));
  EXPECT_EQ(right.sink.frames, there.accepted);
  EXPECT_TRUE(left.sink.by_reference.empty());
  EXPECT_EQ(left.sink.lost, 0u);
  ASSERT_TRUE(progress_until({&left}, [&] { return static_cast<TcpPort&>(*left.port).link_count() == 0; }));
}

TEST_P(TcpPortOver, ForcedCloseReportsAtOnce) {
  RandomSender there(left, fresh_seed());
  there.by_reference_only = true;
  while (there.step()) {
  }
  ASSERT_FALSE(left.sink.by_reference.empty());
  left.port->close(*left.link, false);
  EXPECT_TRUE(left.sink.by_reference.empty());
  EXPECT_EQ(left.sink.sent_status, TW_ERR_CLOSED);
  for (int i = 0; i < 10; ++i) left.port->progress(64);
  EXPECT_EQ(left.sink.lost, 0u);
}

TEST_P(TcpPortOver, MayBeClosedFromItsOwnCallback) {
  RandomSender there(left, fresh_seed(), 100);
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(there.step());
  bool closed = false;
  right.sink.on_each = [&](Link& link, const FrameHeader& header) {
    ASSERT_FALSE(closed) << "delivered after close";
    if (header.b == 7) {
      right.port->close(link, false);
      closed = true;
    }
  };
  ASSERT_TRUE(progress_until({&left, &right}, [&] { return left.sink.lost > 0; }));
  EXPECT_EQ(right.sink.frames, 8u);
}

TEST_P(TcpPortOver, WithdrawnDestinationIsNotTouchedAgain) {
  right.sink.land_percent = 100;
  FrameHeader header{};
  header.length = kReferenceMax;
  header.a = fresh_seed();
  std::vector<std::byte> body(header.length);
  fill(body.data(), body.size(), header.a);
  const iovec piece{body.data(), body.size()};

  class Withdrawing final : public Sink {
   public:
    std::vector<std::byte> place = std::vector<std::byte>(kReferenceMax, std::byte{0x5a});
    unsigned asked = 0, landed = 0, frames = 0;
    void on_frame(Link&, const FrameHeader& h, const std::byte*) override {
      ++frames;
      EXPECT_EQ(h.b, 1u);
    }
    std::byte* destination(Link&, const FrameHeader&, const std::byte*, size_t) override { return ++asked, place.data(); }
    void on_landed(Link&, const FrameHeader&) override { ++landed; }
    void on_sent(Link&, void*, Status) override {}
    void on_lost(Link&, Status, const char* why) override { ADD_FAILURE() << why; }
    void on_import(Link&, uint64_t) override {}
  } sink;
  // A port of its own on a third connection.
  PortOptions options;
  options.sink = &sink;
  std::unique_ptr<Port> port;
  ASSERT_EQ(make_tcp_transport()->open(options, &port), TW_OK);
  const auto [theirs, ours] = connected(GetParam());
  const int a = theirs;  // a structured binding is not captured
  LinkInit init;
  init.socket = UniqueFd(ours);
  port->offer({}, init.theirs);
  Link* link = nullptr;
  ASSERT_EQ(port->establish(std::move(init), &link), TW_OK);

  // The first part of the frame by hand, so that the destination is asked for while the rest is missing.
  std::vector<std::byte> wire(kFrameHead + header.length + kFrameHead);
  write_head(wire.data(), 0, header);
  std::memcpy(wire.data() + kFrameHead, body.data(), body.size());
  FrameHeader next{};
  next.b = 1;
  write_head(wire.data() + kFrameHead + body.size(), 1, next);
  ASSERT_EQ(::send(a, wire.data(), 1000, MSG_NOSIGNAL), 1000);
  const Deadline deadline(5 * kSecond);
  while (sink.asked == 0 && !deadline.passed()) port->progress(8);
  ASSERT_EQ(sink.asked, 1u);
  port->withdraw(*link, sink.place.data());
  std::fill(sink.place.begin(), sink.place.end(), std::byte{0x77});
  std::thread writer([&] {
    for (size_t at = 1000; at < wire.size();) {
      const ssize_t n = ::send(a, wire.data() + at, wire.size() - at, MSG_NOSIGNAL);
      if (n <= 0) break;
      at += static_cast<size_t>(n);
    }
  });
  while (sink.frames == 0 && !deadline.passed()) port->progress(8);
  writer.join();
  EXPECT_EQ(sink.frames, 1u);
  EXPECT_EQ(sink.landed, 0u);
  for (const std::byte byte : sink.place) ASSERT_EQ(byte, std::byte{0x77});
  ::close(a);
  (void)piece;
}

TEST_P(TcpPortOver, SleepsUntilAFrameOrAWake) {
  const auto settle = [](Side& side) {
    const Deadline deadline(5 * kSecond);
    while (side.port->arm() != TW_OK && !deadline.passed()) side.port->progress(64);
  };
  const auto readable = [](Side& side, int ms) {
    pollfd waiting{side.port->fd(), POLLIN, 0};
    return ::poll(&waiting, 1, ms) == 1;
  };
  RandomSender there(left, fresh_seed(), 3000);
  for (int round = 0; round < 50; ++round) {
    settle(right);
    ASSERT_FALSE(readable(right, 0)) << round;
    ASSERT_TRUE(there.step());
    settle(left);  // arm() also sends what was coalesced
    ASSERT_TRUE(readable(right, 5000)) << round;
    EXPECT_EQ(right.port->arm(), TW_ERR_BUSY);
    ASSERT_TRUE(progress_until({&right}, [&] { return right.sink.frames == there.accepted; }));
  }
  settle(right);
  std::thread waker([&] { right.port->wake(); });
  EXPECT_TRUE(readable(right, 5000));
  waker.join();
  right.port->progress(64);
  EXPECT_EQ(right.port->arm(), TW_OK);
  EXPECT_FALSE(readable(right, 0));
}

TEST_P(TcpPortOver, ASleepingSenderWakesWhenThereIsRoom) {
  RandomSender there(left, fresh_seed());
  while (there.step()) {
  }
  const Deadline deadline(5 * kSecond);
  while (left.port->arm() != TW_OK && !deadline.passed()) left.port->progress(64);
  pollfd waiting{left.port->fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&waiting, 1, 0), 0);
  ASSERT_TRUE(progress_until({&right}, [&] { return ::poll(&waiting, 1, 0) == 1; }));
  ASSERT_TRUE(progress_until({&left, &right}, [&] { return left.port->queued(*left.link) == 0; }));
}

INSTANTIATE_TEST_SUITE_P(Wires, TcpPortOver, ::testing::Values(Wire::unix_pair, Wire::v4, Wire::v6), [](const auto& info) {
  return info.param == Wire::v4 ? "v4" : info.param == Wire::v6 ? "v6" : "unix";
});

TEST(TcpPort, DeliversAStreamCutAtEveryPosition) {
  // Frames around the sizes where the reader changes its ways, as one byte string.
  std::vector<std::byte> wire;
  uint32_t sequence = 0;
  for (const uint32_t n : {0u, 1u, 63u, 100u, kDestinationMin - 1, kDestinationMin, kDestinationMin + 100, 3u}) {
    FrameHeader header{};
    header.length = n;
    header.a = 77 + n;
    header.b = sequence;
    const size_t at = wire.size();
    wire.resize(at + kFrameHead + n);
    write_head(wire.data() + at, sequence++, header);
    fill(wire.data() + at + kFrameHead, n, header.a);
  }
  for (size_t cut = 0; cut <= wire.size(); ++cut) {
    Side side;
    const auto [a, b] = connected(Wire::unix_pair);
    side.add(b);
    ASSERT_EQ(::send(a, wire.data(), cut, MSG_NOSIGNAL), static_cast<ssize_t>(cut));
    for (int i = 0; i < 3; ++i) side.port->progress(64);
    ASSERT_EQ(::send(a, wire.data() + cut, wire.size() - cut, MSG_NOSIGNAL), static_cast<ssize_t>(wire.size() - cut));
    ASSERT_TRUE(progress_until({&side}, [&] { return side.sink.frames == sequence; })) << "cut at " << cut;
    ::close(a);
    ASSERT_FALSE(::testing::Test::HasFailure()) << "cut at " << cut;
  }
}

TEST(TcpPort, DeliversByteByByte) {
  Side side;
  const auto [a, b] = connected(Wire::unix_pair);
  side.add(b);
  uint64_t frames = 0;
  for (const uint32_t n : {5u, 0u, 200u, kDestinationMin + 10}) {
    FrameHeader header{};
    header.length = n;
    header.a = n;
    header.b = frames;
    std::vector<std::byte> wire(kFrameHead + n);
    write_head(wire.data(), static_cast<uint32_t>(frames++), header);
    fill(wire.data() + kFrameHead, n, header.a);
    for (const std::byte byte : wire) {
      ASSERT_EQ(::send(a, &byte, 1, MSG_NOSIGNAL), 1);
      side.port->progress(4);
    }
  }
  EXPECT_TRUE(progress_until({&side}, [&] { return side.sink.frames == frames; }));
  ::close(a);
}

TEST(TcpPort, HostileBytesEndThatLinkOnly) {
  const auto good = [](auto change) {
    std::vector<std::byte> wire(kFrameHead);
    FrameHeader header{};
    FramePrefix prefix{0, 0, kFrameVersion, 0};
    change(prefix, header);
    std::memcpy(wire.data(), &prefix, sizeof(prefix));
    std::memcpy(wire.data() + sizeof(prefix), &header, sizeof(header));
    return wire;
  };
  const std::vector<std::vector<std::byte>> bad = {good([](FramePrefix& p, FrameHeader&) { p.sequence = 1; }),
                                                   good([](FramePrefix& p, FrameHeader&) { p.rail = 1; }),
                                                   good([](FramePrefix& p, FrameHeader&) { p.version = 2; }),
                                                   good([](FramePrefix& p, FrameHeader&) { p.reserved = 9; }),
                                                   good([](FramePrefix&, FrameHeader& h) { h.length = kReferenceMax + 1; }),
                                                   good([](FramePrefix&, FrameHeader& h) { h.length = UINT32_MAX; }),
                                                   std::vector<std::byte>(500, std::byte{0x47})};
  Side bystander, side;
  const auto [x, y] = connected(Wire::unix_pair);
  bystander.add(x);
  side.add(y);
  uint64_t expected = 0;
  RandomSender there(bystander, fresh_seed(), 2000);
  for (const auto& wire : bad) {
    const auto [a, b] = connected(Wire::unix_pair);
    side.add(b);
    ASSERT_EQ(::send(a, wire.data(), wire.size(), MSG_NOSIGNAL), static_cast<ssize_t>(wire.size()));
    ASSERT_TRUE(progress_until({&side}, [&] { return side.sink.lost == expected + 1; }));
    EXPECT_EQ(side.sink.lost_status, TW_ERR_PROTOCOL);
    EXPECT_NE(side.sink.why.find("the peer sent"), std::string::npos);
    ++expected;
    ::close(a);
    ASSERT_TRUE(there.step());
    ASSERT_TRUE(progress_until({&bystander, &side}, [&] { return side.sink.frames == there.accepted; }));
  }
}

TEST(TcpPort, RefusesWhatIsTooLongAndASenselessOffer) {
  Side side;
  const auto [a, b] = connected(Wire::unix_pair);
  side.add(b);
  FrameHeader header{};
  header.length = kCopyMax + 1;
  std::vector<std::byte> body(header.length);
  EXPECT_EQ(side.port->send(*side.link, header, body.data()), TW_ERR_INVALID);
  EXPECT_EQ(side.port->reserve(*side.link, header.length), nullptr);
  LinkInit init;
  init.socket = UniqueFd(a);
  init.theirs.bytes.resize(3);
  Link* link = nullptr;
  EXPECT_EQ(side.port->establish(std::move(init), &link), TW_ERR_PROTOCOL);
}

TEST(TcpPort, ServesManyLinksAndForgetsClosedOnes) {
  Side hub;
  std::vector<std::unique_ptr<Side>> spokes;
  constexpr unsigned kLinks = 100;
  for (unsigned i = 0; i < kLinks; ++i) {
    const auto [a, b] = connected(Wire::unix_pair);
    spokes.push_back(std::make_unique<Side>());
    spokes.back()->add(a);
    hub.add(b);
  }
  // Frames of one link are numbered per link: the hub only counts here.
  hub.sink.on_each = nullptr;
  uint64_t number = 0;
  for (unsigned round = 0; round < 20; ++round) {
    for (auto& spoke : spokes) {
      FrameHeader header{};
      header.length = 40;
      header.a = number;
      header.b = number++;
      std::byte body[40];
      fill(body, sizeof(body), header.a);
      ASSERT_EQ(spoke->port->send(*spoke->link, header, body), TW_OK);
      ASSERT_TRUE(progress_until({&hub, spoke.get()}, [&] { return hub.sink.frames == number; }));
    }
  }
  for (auto& spoke : spokes) spoke->port->close(*spoke->link, true);
  ASSERT_TRUE(progress_until({&hub}, [&] { return hub.sink.lost == kLinks; }));
  EXPECT_EQ(static_cast<TcpPort&>(*hub.port).link_count(), 0u);
}

/// Its link lingers, and is drained so that the last bytes arrive.
TEST(TcpPort, APeerThatSendsOnAndOnDoesNotHoldUpThePortsEnd) {
  const auto [mine, theirs] = connected(Wire::unix_pair);
  const UniqueFd peer(theirs);
  std::atomic<bool> floods{true}, ended{false};
  auto side = std::make_unique<Side>(30 * kSecond);
  Link* const link = side->add(mine);
  std::thread flood([&] {
    const std::vector<char> bytes(1 << 20);
    while (floods && ::send(peer.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0) {
    }
  });
  side->port->close(*link, true);
  std::thread ends([&] {
    side->port.reset();
    ended = true;
  });
  const Deadline deadline(10 * kSecond);
  while (!ended && !deadline.passed()) sched_yield();
  EXPECT_TRUE(ended);
  floods = false;
  ::shutdown(peer.get(), SHUT_RDWR);
  flood.join();
  ends.join();
}

}  // namespace
}  // namespace thalweg::impl::tcp
