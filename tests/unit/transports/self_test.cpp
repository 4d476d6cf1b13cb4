// SPDX-License-Identifier: Apache-2.0
// The self transport: a worker to itself.
#include "transports/self/self.hpp"

#include <gtest/gtest.h>
#include <poll.h>

#include "unit/transports/shm_pair.hpp"

namespace thalweg::impl::test {
namespace {

struct SelfSide {
  RecordingSink sink;
  std::unique_ptr<Transport> transport = make_self_transport();
  std::unique_ptr<Port> port;
  Link* link = nullptr;
  SelfSide() {
    PortOptions options;
    options.sink = &sink;
    EXPECT_EQ(transport->unavailable(), "");
    EXPECT_EQ(transport->open(options, &port), TW_OK);
    EXPECT_EQ(port->establish(LinkInit{}, &link), TW_OK);
  }
  bool readable() {
    pollfd p{port->fd(), POLLIN, 0};
    return poll(&p, 1, 0) == 1;
  }
};

TEST(Self, DeliversAtTheNextProgressInOrder) {
  SelfSide self;
  EXPECT_TRUE(self.link->features & kLinkSameProcess);
  std::mt19937 random(std::random_device{}());
  uint64_t sent = 0, received = 0;
  self.sink.frame = [&](Link&, const FrameHeader& h, const std::byte* body) {
    EXPECT_EQ(h.a, received);
    EXPECT_TRUE(filled(body, h.length, received));
    ++received;
  };
  for (int round = 0; round < 300; ++round) {
    for (unsigned i = random() % 20; i > 0; --i) {
      const uint32_t n = random() % 4 == 0 ? random() % (self.link->copy_max + 1) : random() % 100;
      std::vector<std::byte> body(n);
      fill(body.data(), n, sent);
      ASSERT_EQ(self.port->send(*self.link, FrameHeader{n, 1, 0, 0, sent, 0}, body.data()), TW_OK);
      std::fill(body.begin(), body.end(), std::byte(0xee));
      ++sent;
    }
    const uint64_t before = received;
    EXPECT_EQ(self.port->progress(1000), sent - before);
    EXPECT_EQ(received, sent);
    EXPECT_EQ(self.port->queued(*self.link), 0u);
  }
}

TEST(Self, FullSaysAgainAndAnswersWaitForTheNextProgress) {
  SelfSide self;
  std::vector<std::byte> body(self.link->copy_max, std::byte(7));
  uint64_t sent = 0;
  while (self.port->send(*self.link, FrameHeader{self.link->copy_max, 1, 0, 0, sent, 0}, body.data()) == TW_OK) ++sent;
  EXPECT_GT(sent, 100u);
  EXPECT_EQ(self.port->send(*self.link, FrameHeader{self.link->copy_max + 1, 1, 0, 0, 0, 0}, body.data()), TW_ERR_INVALID);
  while (self.port->progress(64) != 0) {
  }
  EXPECT_EQ(self.sink.frames, sent);
  self.sink.frame = [&](Link& link, const FrameHeader& h, const std::byte* bytes) {
    EXPECT_EQ(self.port->send(link, h, bytes), TW_OK);
  };
  ASSERT_EQ(self.port->send(*self.link, FrameHeader{5, 1, 0, 0, 0, 0}, body.data()), TW_OK);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(self.port->progress(64), 1u);
}

TEST(Self, ArmedPortIsWokenByASendAndByWake) {
  SelfSide self;
  EXPECT_EQ(self.port->arm(), TW_OK);
  EXPECT_FALSE(self.readable());
  ASSERT_EQ(self.port->send(*self.link, FrameHeader{0, 1, 0, 0, 0, 0}, nullptr), TW_OK);
  EXPECT_TRUE(self.readable());
  EXPECT_EQ(self.port->arm(), TW_ERR_BUSY);
  EXPECT_EQ(self.port->progress(8), 1u);
  EXPECT_EQ(self.port->arm(), TW_OK);
  EXPECT_FALSE(self.readable());
  self.port->wake();
  EXPECT_TRUE(self.readable());
}

TEST(Self, CloseInACallbackEndsDelivery) {
  SelfSide self;
  for (uint64_t i = 0; i < 5; ++i) ASSERT_EQ(self.port->send(*self.link, FrameHeader{8, 1, 0, 0, i, 0}, &i), TW_OK);
  self.sink.frame = [&](Link& link, const FrameHeader& h, const std::byte*) {
    if (h.a == 1) self.port->close(link, true);
  };
  self.port->progress(64);
  EXPECT_EQ(self.sink.frames, 2u);
}

TEST(Self, CopiesListsOfDifferentPieces) {
  SelfSide self;
  std::vector<std::byte> from(1000), to(1002, std::byte(0x5a));
  fill(from.data(), from.size(), random_id());
  const iovec local[] = {{to.data() + 1, 300}, {to.data() + 301, 700}};
  const iovec remote[] = {{from.data(), 1}, {from.data() + 1, 998}, {from.data() + 999, 1}};
  EXPECT_EQ(self.port->read_peer(*self.link, local, 2, remote, 3), 1000);
  EXPECT_EQ(std::memcmp(to.data() + 1, from.data(), 1000), 0);
  EXPECT_EQ(to[0], std::byte(0x5a));
  EXPECT_EQ(to[1001], std::byte(0x5a));
}

}  // namespace
}  // namespace thalweg::impl::test
