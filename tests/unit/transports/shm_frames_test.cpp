// SPDX-License-Identifier: Apache-2.0
// Frames over shm: content, order, room, in one process and between two.
#include "unit/transports/shm_pair.hpp"

namespace thalweg::impl::test {
namespace {

std::vector<uint32_t> switch_sizes() {
  std::vector<uint32_t> sizes;
  for (uint32_t around : {0u, 1u, 4u, 8u, 16u, 32u, shm::kInlineMax, 64u, 128u, 1000u, 2048u, 4096u, shm::kCreditBulk,
                          shm::kFragment, shm::kCopyMax})
    for (int d = -2; d <= 2; ++d)
      if (int64_t(around) + d >= 0 && int64_t(around) + d <= shm::kCopyMax) sizes.push_back(uint32_t(int64_t(around) + d));
  return sizes;
}

struct Frames {
  Side a, b;
  Link *la = nullptr, *lb = nullptr;
  Frames() { connect_sides(a, b, &la, &lb); }
};

/// By both routines that copy into the ring.
class ShmCopies : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Streamed, ShmCopies, testing::Bool());

TEST_P(ShmCopies, EverySizeArrivesWithHeaderBothWays) {
  Frames f;
  for (Link* link : {f.la, f.lb}) link->body_copy.choose(GetParam(), 0);
  for (auto [from, link, to] : {std::tuple{&f.a, f.la, &f.b}, std::tuple{&f.b, f.lb, &f.a}}) {
    uint64_t seed = random_id();
    for (uint32_t size : switch_sizes()) {
      ++seed;
      std::vector<std::byte> body(size + 3);
      std::byte* misaligned = body.data() + (size % 3);
      fill(misaligned, size, seed);
      const FrameHeader sent{size, uint8_t(seed & 0x7f), uint8_t(seed >> 8), uint16_t(seed >> 16), seed, ~seed};
      int seen = 0;
      to->sink.frame = [&](Link&, const FrameHeader& h, const std::byte* bytes) {
        ++seen;
        EXPECT_EQ(std::memcmp(&h, &sent, sizeof h), 0);
        EXPECT_TRUE(filled(bytes, h.length, seed)) << size;
      };
      ASSERT_EQ(from->port->send(*link, sent, misaligned), TW_OK) << size << last_error();
      to->port->progress(4);
      EXPECT_EQ(seen, 1) << size;
    }
  }
}

TEST(ShmFrames, ReserveAndCommitIncludingShorterThanReserved) {
  Frames f;
  std::mt19937 random(std::random_device{}());
  for (int i = 0; i < 20000; ++i) {
    const uint32_t reserved = random() % (shm::kCopyMax + 1);
    const uint32_t length = random() % 3 == 0 ? random() % (reserved + 1) : reserved;
    std::byte* place = f.a.port->reserve(*f.la, reserved);
    ASSERT_NE(place, nullptr) << i << " " << reserved;
    fill(place, length, uint64_t(i));
    int seen = 0;
    f.b.sink.frame = [&](Link&, const FrameHeader& h, const std::byte* bytes) {
      ++seen;
      EXPECT_EQ(h.length, length);
      EXPECT_TRUE(filled(bytes, h.length, uint64_t(i)));
    };
    f.a.port->commit(*f.la, FrameHeader{length, 1, 2, 3, 4, 5});
    f.b.port->progress(4);
    ASSERT_EQ(seen, 1) << i;
  }
}

TEST(ShmFrames, FullRingSaysAgainAndGoesOnInOrder) {
  for (uint32_t size : {8u, 1000u, shm::kCopyMax}) {
    Frames f;
    uint64_t next = 0, received = 0;
    std::vector<std::byte> body(size);
    f.b.sink.frame = [&](Link&, const FrameHeader& h, const std::byte* bytes) {
      EXPECT_EQ(h.a, received);
      EXPECT_TRUE(filled(bytes, h.length, received));
      ++received;
    };
    for (int round = 0; round < 50; ++round) {
      Status s;
      for (;;) {
        fill(body.data(), size, next);
        s = f.a.port->send(*f.la, FrameHeader{size, 1, 0, 0, next, 0}, body.data());
        if (s != TW_OK) break;
        ++next;
      }
      EXPECT_EQ(s, TW_AGAIN);
      EXPECT_EQ(f.a.port->reserve(*f.la, size), nullptr);
      for (int i = 0; i < 4; ++i) f.b.port->progress(1 + round % 64);
    }
    while (f.b.port->progress(64) != 0) {
    }
    EXPECT_EQ(received, next);
    EXPECT_GT(next, 100u);
  }
}

TEST(ShmFrames, TooLongIsRefused) {
  Frames f;
  std::vector<std::byte> body(shm::kCopyMax + 1);
  EXPECT_EQ(f.a.port->send(*f.la, FrameHeader{shm::kCopyMax + 1, 1, 0, 0, 0, 0}, body.data()), TW_ERR_INVALID);
  EXPECT_EQ(f.a.port->reserve(*f.la, shm::kCopyMax + 1), nullptr);
}

TEST(ShmFrames, CallbacksMaySendAndClose) {
  Frames f;
  f.b.sink.frame = [&](Link& link, const FrameHeader& h, const std::byte* bytes) {
    EXPECT_EQ(f.b.port->send(link, h, bytes), TW_OK);
    if (h.a == 2) f.b.port->close(link, true);
  };
  for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(f.a.port->send(*f.la, FrameHeader{8, 1, 0, 0, i, 0}, &i), TW_OK);
  EXPECT_TRUE(progress_until({f.a.port.get(), f.b.port.get()}, [&] { return f.a.sink.lost == 1; }));
  EXPECT_EQ(f.b.sink.frames, 3u);  // the fourth came to a closed link
  EXPECT_EQ(f.a.sink.frames, 3u);  // what was sent before the close arrives before the loss is reported
  EXPECT_EQ(f.a.sink.lost_status, TW_ERR_CLOSED);
  EXPECT_EQ(f.b.sink.lost, 0);
  EXPECT_EQ(f.a.port->send(*f.la, FrameHeader{0, 1, 0, 0, 0, 0}, nullptr), TW_ERR_CLOSED);
  f.a.port->close(*f.la, false);
}

int echo_child(int socket, uint64_t seed, uint64_t count) {
  Side side;
  Link* link = connect_over(side, socket, false);
  uint64_t received = 0;
  bool good = true;
  std::vector<std::vector<std::byte>> backlog;
  side.sink.frame = [&](Link&, const FrameHeader& h, const std::byte* bytes) {
    good = good && h.a == received && filled(bytes, h.length, seed + received);
    ++received;
    std::vector<std::byte> copy(sizeof h + h.length);
    std::memcpy(copy.data(), &h, sizeof h);
    std::memcpy(copy.data() + sizeof h, bytes, h.length);
    backlog.push_back(std::move(copy));
  };
  uint64_t returned = 0;
  const Deadline deadline(60 * kSecond);
  while (returned < count && good && !deadline.passed()) {
    if (side.port->progress(32) == 0) sched_yield();
    size_t sent = 0;
    for (; sent < backlog.size(); ++sent) {
      FrameHeader h;
      std::memcpy(&h, backlog[sent].data(), sizeof h);
      if (side.port->send(*link, h, backlog[sent].data() + sizeof h) != TW_OK) break;
    }
    returned += sent;
    backlog.erase(backlog.begin(), backlog.begin() + long(sent));
  }
  EXPECT_TRUE(progress_until({side.port.get()}, [&] { return side.sink.lost == 1; }));
  return good && returned == count ? 0 : 1;
}

TEST_P(ShmCopies, TwoProcessesRandomSizesBothWays) {
  const uint64_t seed = random_id() >> 1, count = 20000;
  Child child([&](int socket) { return echo_child(socket, seed, count); });
  Side side;
  Link* link = connect_over(side, child.socket(), true);
  ASSERT_NE(link, nullptr);
  link->body_copy.choose(GetParam(), 0);
  std::mt19937_64 random(seed);
  uint64_t sent = 0, received = 0;
  side.sink.frame = [&](Link&, const FrameHeader& h, const std::byte* bytes) {
    EXPECT_EQ(h.a, received);
    EXPECT_TRUE(filled(bytes, h.length, seed + received));
    ++received;
  };
  const auto sizes = switch_sizes();
  std::vector<std::byte> body(shm::kCopyMax);
  uint32_t size = sizes[0];
  EXPECT_TRUE(progress_until({side.port.get()}, [&] {
    if (sent < count) {
      fill(body.data(), size, seed + sent);
      if (side.port->send(*link, FrameHeader{size, 1, 0, 0, sent, 0}, body.data()) == TW_OK) {
        ++sent;
        size = random() % 2 == 0 ? sizes[random() % sizes.size()] : uint32_t(random() % (shm::kCopyMax + 1));
      }
    }
    return received == count;
  }));
  side.port->close(*link, true);
  EXPECT_EQ(child.wait(), 0);
}

TEST(ShmFrames, AMillionSmallFramesInOrder) {
  constexpr uint64_t kCount = 1'000'000;
  Child child([&](int socket) {
    Side side;
    Link* link = connect_over(side, socket, true);
    const Deadline deadline(60 * kSecond);
    for (uint64_t i = 0; i < kCount;) {
      const uint64_t value = i * 3;
      if (side.port->send(*link, FrameHeader{8, 1, 0, 0, i, 0}, &value) == TW_OK)
        ++i;
      else if (deadline.passed())
        return 1;
      else
        sched_yield();
    }
    side.port->close(*link, true);
    return 0;
  });
  Side side;
  Link* link = connect_over(side, child.socket(), false);
  bool good = true;
  side.sink.frame = [&](Link&, const FrameHeader& h, const std::byte* bytes) {
    uint64_t value;
    std::memcpy(&value, bytes, 8);
    good = good && h.a == side.sink.frames - 1 && value == h.a * 3;
  };
  EXPECT_TRUE(progress_until({side.port.get()}, [&] { return side.sink.lost != 0; }, 60 * kSecond));
  EXPECT_TRUE(good);
  EXPECT_EQ(side.sink.frames, kCount);
  EXPECT_EQ(child.wait(), 0);
  side.port->close(*link, false);
}

}  // namespace
}  // namespace thalweg::impl::test
