// SPDX-License-Identifier: Apache-2.0
// Hot and cold rings, sleep and wake.
#include <poll.h>

#include <thread>

#include "unit/transports/shm_pair.hpp"

namespace thalweg::impl::test {
namespace {

bool wait_readable(int fd, int ms) {
  pollfd p{fd, POLLIN, 0};
  return poll(&p, 1, ms) == 1;
}

/// Sleeps until there is something; false on a time-out.
bool sleep_once(Port& port, int ms) {
  if (port.arm() == TW_OK && !wait_readable(port.fd(), ms)) return false;
  return true;
}

TEST(ShmWakeup, IdleRingsGoColdAndComeBack) {
  constexpr size_t kLinks = 64;
  Side a, b;
  std::vector<Link*> out(kLinks), in(kLinks);
  for (size_t i = 0; i < kLinks; ++i) connect_sides(a, b, &out[i], &in[i]);
  EXPECT_EQ(b.shm().hot_rings(), kLinks);
  const uint64_t value = random_id();
  // Only one speaks: all the others go cold.
  EXPECT_TRUE(progress_until({b.port.get()}, [&] {
    a.port->send(*out[5], FrameHeader{8, 1, 0, 0, 5, 0}, &value);
    return b.shm().hot_rings() <= 1;
  }));
  std::vector<uint64_t> seen(kLinks);
  b.sink.frame = [&](Link& link, const FrameHeader& h, const std::byte* body) {
    EXPECT_EQ(&link, in[h.a]);
    EXPECT_EQ(std::memcmp(body, &value, 8), 0);
    ++seen[h.a];
  };
  while (b.port->progress(1000) != 0) {
  }
  std::fill(seen.begin(), seen.end(), 0);
  // A frame in a cold ring arrives within a few calls and makes it hot.
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < kLinks; ++i) {
      ASSERT_EQ(a.port->send(*out[i], FrameHeader{8, 1, 0, 0, i, 0}, &value), TW_OK);
      for (int p = 0; p < 3; ++p) b.port->progress(8);
      EXPECT_EQ(seen[i], uint64_t(round) + 1) << i;
    }
    EXPECT_GE(b.shm().hot_rings(), kLinks - 1);
    EXPECT_TRUE(progress_until({b.port.get()}, [&] { return b.shm().hot_rings() <= 8; }));
  }
}

TEST(ShmWakeup, FewRingsStayHot) {
  Side a, b;
  Link *la, *lb;
  connect_sides(a, b, &la, &lb);
  for (int i = 0; i < 200000; ++i) b.port->progress(8);
  EXPECT_EQ(b.shm().hot_rings(), 1u);
}

TEST(ShmWakeup, AGlanceShowsWhateverProgressWouldFind) {
  Side a, b;
  Link *la, *lb;
  connect_sides(a, b, &la, &lb);
  const uint64_t value = 1;
  const FrameHeader header{8, 1, 0, 0, 0, 0};
  EXPECT_FALSE(b.port->glance.nothing());  // before the first progress
  EXPECT_EQ(b.port->progress(8), 0u);
  for (int i = 0; i < 1000; ++i) {  // around the ring, and while nothing is polled between two frames
    ASSERT_TRUE(b.port->glance.nothing()) << i;
    ASSERT_EQ(a.port->send(*la, header, &value), TW_OK);
    ASSERT_FALSE(b.port->glance.nothing()) << i;
    ASSERT_EQ(b.port->progress(8), 1u);
    a.port->progress(8);
  }
  ASSERT_EQ(b.port->arm(), TW_OK);
  EXPECT_FALSE(b.port->glance.nothing());
  b.port->progress(8);
  EXPECT_TRUE(b.port->glance.nothing());
  Link *la2, *lb2;
  connect_sides(a, b, &la2, &lb2);
  EXPECT_FALSE(b.port->glance.nothing());
  b.port->progress(8);
  EXPECT_FALSE(b.port->glance.nothing());  // it shows one ring
  b.port->close(*lb2, true);
  b.port->progress(8);
  EXPECT_TRUE(b.port->glance.nothing());
  // The end of the link is an event.
  a.port->close(*la, true);
  EXPECT_TRUE(progress_until({}, [&] { return !b.port->glance.nothing(); }));
  b.port->progress(8);
  EXPECT_EQ(b.sink.lost, 1);
}

TEST(ShmWakeup, TheFirstFrameBehindASendIsTakenAlone) {
  Side a, b;
  Link *la, *lb;
  connect_sides(a, b, &la, &lb);
  const uint64_t value = 1;
  const FrameHeader header{8, 1, 0, 0, 0, 0};
  for (int i = 0; i < 1000; ++i) {  // around the ring, with a glance and without one
    if (i % 3 != 0) ASSERT_EQ(b.port->progress(8), 0u);
    ASSERT_EQ(b.port->send(*lb, header, &value), TW_OK);
    ASSERT_EQ(a.port->progress(8), 1u);
    for (int k = 0; k < 3; ++k) ASSERT_EQ(a.port->send(*la, header, &value), TW_OK);
    ASSERT_EQ(b.port->progress(8), 1u);
    ASSERT_FALSE(b.port->glance.nothing()) << i;
    ASSERT_EQ(b.port->progress(8), 2u);  // nothing was sent behind the first: it is a stream
  }
  a.port->close(*la, true);
  EXPECT_TRUE(progress_until({}, [&] {
    b.port->progress(8);
    return b.sink.lost == 1;
  }));
}

TEST(ShmWakeup, AGlanceShowsAFrameInAColdRing) {
  constexpr size_t kLinks = 64;
  Side a, b;
  std::vector<Link*> out(kLinks), in(kLinks);
  for (size_t i = 0; i < kLinks; ++i) connect_sides(a, b, &out[i], &in[i]);
  const uint64_t value = 1;
  const FrameHeader header{8, 1, 0, 0, 0, 0};
  EXPECT_TRUE(progress_until({b.port.get()}, [&] {
    a.port->send(*out[5], header, &value);
    return b.shm().hot_rings() <= 1;
  }));
  while (b.port->progress(8) != 0) {
  }
  ASSERT_TRUE(b.port->glance.nothing());
  ASSERT_EQ(a.port->send(*out[7], header, &value), TW_OK);
  EXPECT_FALSE(b.port->glance.nothing());
}

TEST(ShmWakeup, ArmSeesWhatIsThereAndWakesForWhatComes) {
  Side a, b;
  Link *la, *lb;
  connect_sides(a, b, &la, &lb);
  const uint64_t value = 1;
  ASSERT_EQ(a.port->send(*la, FrameHeader{8, 1, 0, 0, 0, 0}, &value), TW_OK);
  EXPECT_EQ(b.port->arm(), TW_ERR_BUSY);
  b.port->progress(8);
  EXPECT_EQ(b.port->arm(), TW_OK);
  EXPECT_FALSE(wait_readable(b.port->fd(), 0));
  ASSERT_EQ(a.port->send(*la, FrameHeader{8, 1, 0, 0, 0, 0}, &value), TW_OK);
  EXPECT_TRUE(wait_readable(b.port->fd(), 1000));
  EXPECT_EQ(b.port->progress(8), 1u);
  EXPECT_EQ(b.port->arm(), TW_OK);
  EXPECT_FALSE(wait_readable(b.port->fd(), 0));
  b.port->wake();
  EXPECT_TRUE(wait_readable(b.port->fd(), 0));
  b.port->progress(8);
  b.port->wake();  // before arm: must not be lost
  EXPECT_TRUE(b.port->arm() == TW_ERR_BUSY || wait_readable(b.port->fd(), 0));
}

TEST(ShmWakeup, AFullRingWakesItsSleepingProducer) {
  Side a, b;
  Link *la, *lb;
  connect_sides(a, b, &la, &lb);
  std::vector<std::byte> body(shm::kCopyMax);
  for (uint32_t size : {8u, shm::kCopyMax, 64u}) {
    while (a.port->send(*la, FrameHeader{size, 1, 0, 0, 0, 0}, body.data()) == TW_OK) {
    }
    ASSERT_EQ(a.port->arm(), TW_OK);
    EXPECT_FALSE(wait_readable(a.port->fd(), 0));
    while (b.port->progress(64) != 0) {
    }
    EXPECT_TRUE(wait_readable(a.port->fd(), 1000)) << size;
    a.port->progress(8);
    EXPECT_EQ(a.port->send(*la, FrameHeader{size, 1, 0, 0, 0, 0}, body.data()), TW_OK);
  }
}

TEST(ShmWakeup, AProducerThatNeverSleepsRemembersAFullRingOnce) {
  Side a, b;
  Link *la, *lb;
  connect_sides(a, b, &la, &lb);
  const uint64_t value = 1;
  for (int round = 0; round < 100; ++round) {
    while (a.port->send(*la, FrameHeader{8, 1, 0, 0, 0, 0}, &value) == TW_OK) {
    }
    while (b.port->progress(64) != 0) {
    }
  }
  EXPECT_EQ(a.shm().starved_links(), 1u);
  EXPECT_EQ(a.port->send(*la, FrameHeader{8, 1, 0, 0, 0, 0}, &value), TW_OK);
  EXPECT_EQ(a.port->arm(), TW_OK);
  EXPECT_EQ(a.shm().starved_links(), 0u);
}

/// The send that found no room was given up, or its frame went out by room that arm() had seen.
TEST(ShmWakeup, RoomThatCameKeepsNobodyAwakeTwice) {
  Side a, b;
  Link *la, *lb;
  connect_sides(a, b, &la, &lb);
  const uint64_t value = 1;
  const FrameHeader header{8, 1, 0, 0, 0, 0};
  const auto drain = [&] {
    while (b.port->progress(64) != 0) {
    }
  };
  for (const bool sends_again : {true, false}) {
    while (a.port->send(*la, header, &value) == TW_OK) {
    }
    drain();
    EXPECT_EQ(a.port->arm(), TW_ERR_BUSY);
    if (sends_again) {
      ASSERT_EQ(a.port->send(*la, header, &value), TW_OK);
    }
    drain();
    EXPECT_EQ(a.port->arm(), TW_OK) << sends_again;
    EXPECT_EQ(a.shm().starved_links(), 0u);
    a.port->progress(8);
  }
  // Room is found by a thread that posts while the progress owner sleeps.
  while (a.port->send(*la, header, &value) == TW_OK) {
  }
  ASSERT_EQ(a.port->arm(), TW_OK);
  drain();
  ASSERT_EQ(a.port->send(*la, header, &value), TW_OK);
  a.port->progress(8);
  drain();
  EXPECT_EQ(a.port->arm(), TW_OK);
}

/// The consumer sleeps after every frame; a lost wake-up shows as a time-out.
TEST(ShmWakeup, AHundredThousandWakeUpsBetweenProcesses) {
  constexpr uint64_t kCount = 100'000;
  Child child([&](int socket) {
    Side side;
    Link* link = connect_over(side, socket, true);
    uint64_t answered = 0;
    side.sink.frame = [&](Link&, const FrameHeader&, const std::byte*) { ++answered; };
    std::mt19937 random(7);
    for (uint64_t i = 0; i < kCount; ++i) {
      if (side.port->send(*link, FrameHeader{8, 1, 0, 0, i, 0}, &i) != TW_OK) return 1;
      for (unsigned spin = random() % 64; spin > 0; --spin) cpu_pause();
      while (answered <= i) {
        side.port->progress(8);
        if (answered <= i && !sleep_once(*side.port, 10000)) return 2;
      }
    }
    side.port->close(*link, true);
    return 0;
  });
  Side side;
  Link* link = connect_over(side, child.socket(), false);
  side.sink.frame = [&](Link&, const FrameHeader& h, const std::byte* body) {
    EXPECT_EQ(side.port->send(*link, h, body), TW_OK);
  };
  bool slept_well = true;
  while (side.sink.lost == 0 && slept_well) {
    side.port->progress(8);
    slept_well = side.sink.lost != 0 || sleep_once(*side.port, 10000);
  }
  EXPECT_TRUE(slept_well);
  EXPECT_EQ(side.sink.frames, kCount);
  EXPECT_EQ(child.wait(), 0);
  side.port->close(*link, false);
}

/// One way, as fast as the ring lets: both the consumer and the producer sleep whenever they find nothing to do.
TEST(ShmWakeup, BackPressureWhileBothSleep) {
  constexpr uint64_t kCount = 200'000;
  Child child([&](int socket) {
    Side side;
    Link* link = connect_over(side, socket, true);
    std::vector<std::byte> body(4000);
    for (uint64_t i = 0; i < kCount;) {
      if (side.port->send(*link, FrameHeader{uint32_t(i % 97 == 0 ? 4000 : 8), 1, 0, 0, i, 0}, body.data()) == TW_OK) {
        ++i;
        continue;
      }
      side.port->progress(8);
      if (!sleep_once(*side.port, 10000)) return 2;
    }
    side.port->close(*link, true);
    return 0;
  });
  Side side;
  Link* link = connect_over(side, child.socket(), false);
  bool slept_well = true, ordered = true;
  uint64_t next = 0;
  side.sink.frame = [&](Link&, const FrameHeader& h, const std::byte*) { ordered = ordered && h.a == next++; };
  while (side.sink.lost == 0 && slept_well) {
    side.port->progress(8);
    slept_well = side.sink.lost != 0 || sleep_once(*side.port, 10000);
  }
  EXPECT_TRUE(slept_well);
  EXPECT_TRUE(ordered);
  EXPECT_EQ(side.sink.frames, kCount);
  EXPECT_EQ(child.wait(), 0);
  side.port->close(*link, false);
}

}  // namespace
}  // namespace thalweg::impl::test
