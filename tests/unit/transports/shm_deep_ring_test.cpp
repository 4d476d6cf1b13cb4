// SPDX-License-Identifier: Apache-2.0
// Deep bulk rings: when a direction gets one, what lies in it arrives as before, and it goes when nothing moves any more.
#include <chrono>
#include <thread>

#include "unit/transports/shm_hostile.hpp"

namespace thalweg::impl::test {
namespace {

constexpr uint32_t kFew = 3;  // of the largest bodies that the first ring holds

struct Frames {
  Side a, b;
  Link *la = nullptr, *lb = nullptr;
  uint64_t sent = 0, received = 0;
  std::mt19937 random{std::random_device{}()};
  std::vector<std::byte> body = std::vector<std::byte>(shm::kCopyMax);
  Frames() {
    connect_sides(a, b, &la, &lb);
    b.sink.frame = [this](Link&, const FrameHeader& h, const std::byte* bytes) {
      EXPECT_EQ(h.a, received);
      EXPECT_TRUE(filled(bytes, h.length, received)) << h.length;
      ++received;
    };
  }
  bool send(uint32_t length) {
    fill(body.data(), length, sent);
    const FrameHeader header{length, 1, 0, 0, sent, 0};
    bool done;
    if (random() % 2 == 0) {
      done = a.port->send(*la, header, body.data()) == TW_OK;
    } else {
      std::byte* const place = a.port->reserve(*la, length);
      done = place != nullptr;
      if (done) std::memcpy(place, body.data(), length);
      if (done) a.port->commit(*la, header);
    }
    sent += done;
    return done;
  }
  void drain() {
    while (b.port->progress(64) != 0) {
    }
    a.port->progress(64);
  }
  /// As many of the largest bodies as there is room for.
  unsigned burst() {
    unsigned count = 0;
    while (send(shm::kCopyMax)) ++count;
    drain();
    EXPECT_EQ(received, sent);
    return count;
  }
  /// Bursts until one is longer than the first ring allows.
  bool deepen() {
    const Deadline deadline(20'000'000'000);
    while (!deadline.passed()) {
      if (burst() > kFew) return true;
    }
    return false;
  }
};

TEST(ShmDeepRing, ComesWhenBodiesOftenFindNoRoom) {
  Frames f;
  for (unsigned i = 0; i < shm::DeepOut::kOften / 2; ++i) EXPECT_LE(f.burst(), kFew);
  ASSERT_TRUE(f.deepen());
  EXPECT_GE(f.burst(), shm::kDeepBytes / (shm::kCopyMax + shm::kBulkUnit) - 2);
}

/// What it needs is short when it is made: it comes another time.
TEST(ShmDeepRing, ComesLaterWhereThereWereNoDescriptorsForIt) {
  Frames f;
  {
    const NoDescriptors none;
    for (unsigned i = 0; i < 4 * shm::DeepOut::kOften; ++i) {
      EXPECT_LE(f.burst(), kFew);
      f.a.loop.call([] {});
    }
  }
  EXPECT_TRUE(f.deepen());
}

/// Small frames that find no slot are no reason.
TEST(ShmDeepRing, IsNotForFramesWithoutBodies) {
  Frames f;
  for (int i = 0; i < 200; ++i) {
    while (f.send(8)) {
    }
    f.drain();
  }
  EXPECT_LE(f.burst(), kFew);
}

TEST(ShmDeepRing, BodiesOfEverySizeArriveInOrderAcrossTurns) {
  Frames f;
  for (int i = 0; i < 60'000; ++i) {
    const uint32_t length = f.random() % 3 == 0 ? f.random() % (shm::kInlineMax + 2) : f.random() % (shm::kCopyMax + 1);
    while (!f.send(length)) {
      for (int turns = 1 + f.random() % 3; turns > 0; --turns) f.b.port->progress(1 + f.random() % 8);
      f.a.port->progress(1);
    }
  }
  f.drain();
  EXPECT_EQ(f.received, f.sent);
  EXPECT_GT(f.burst(), kFew);
}

/// Also behind a body that is too little for the consumer to give its room back at once, and where it sleeps.
TEST(ShmDeepRing, GoesWhenNothingMovesAndComesAgain) {
  Frames f;
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(f.deepen());
    if (round > 0) {
      ASSERT_TRUE(f.send(200));
      f.drain();
    }
    const Deadline deadline(20'000'000'000);
    unsigned count = kFew + 1;
    while (count > kFew && !deadline.passed()) {
      for (int i = 0; i < 150; ++i) {
        f.a.port->progress(1);
        for (int sweep = 0; sweep < 300; ++sweep) f.a.port->progress(1);
        if (round < 2) {
          for (int sweep = 0; sweep < 300; ++sweep) f.b.port->progress(1);
        } else if (f.b.port->arm() == TW_ERR_BUSY) {
          f.b.port->progress(1);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
      count = f.burst();
    }
    EXPECT_LE(count, kFew);
  }
}

/// Bodies that always find room, one after the other: what a ping-pong sends.
void trickle(Frames& f, uint32_t length, uint64_t bytes) {
  for (uint64_t moved = 0; moved < bytes; moved += length) {
    ASSERT_TRUE(f.send(length));
    f.drain();
  }
  ASSERT_EQ(f.received, f.sent);
}

/// Until a ring has come for what was moved: fewer bursts than those for which a deep one comes.
void widen(Frames& f) {
  f.la->wide = true;
  unsigned count = 0;
  for (unsigned i = 0; count <= kFew && i < shm::DeepOut::kOften / 2; ++i) {
    trickle(f, 8000, 2 * shm::DeepOut::kMuch);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    trickle(f, 8000, 2 * shm::kBulkBytes);
    count = f.burst();
  }
  EXPECT_GT(count, kFew);
  EXPECT_LE(count, shm::kDeepBytes / shm::kFragment);  // a small message behind them waits no longer than behind a deep ring's
}

TEST(ShmWideRing, ComesWhenMuchMovesWhereItIsWorthIt) {
  Frames f;
  widen(f);
  trickle(f, shm::kCopyMax, 3 * shm::kWideBytes);  // around its end
}

/// A port makes few at a time, not few in its life.
TEST(ShmWideRing, ThoseOfClosedLinksCountNoMore) {
  Frames f;
  for (unsigned i = 0; i <= shm::kMostWide && !HasFailure(); ++i) {
    widen(f);
    f.a.port->close(*f.la, true);
    ASSERT_TRUE(progress_until({f.b.port.get()}, [&] { return f.b.sink.lost == static_cast<int>(i) + 1; }));
    f.b.port->close(*f.lb, true);
    connect_sides(f.a, f.b, &f.la, &f.lb);
  }
}

TEST(ShmWideRing, IsNotForThoseWhoSendLittleOrHaveNoUseForIt) {
  Frames f;
  trickle(f, 8000, 4 * shm::DeepOut::kMuch);
  EXPECT_LE(f.burst(), kFew);
  f.la->wide = true;
  trickle(f, 8000, shm::DeepOut::kMuch / 2);
  EXPECT_LE(f.burst(), kFew);
}

TEST(ShmDeepRing, BothDirectionsAndTheEndOfTheLink) {
  Frames f;
  ASSERT_TRUE(f.deepen());
  uint64_t echoed = 0;
  f.a.sink.frame = [&](Link&, const FrameHeader& h, const std::byte* bytes) {
    EXPECT_TRUE(filled(bytes, h.length, echoed));
    ++echoed;
  };
  std::vector<std::byte> body(shm::kCopyMax);
  uint64_t back = 0;
  const Deadline deadline(20'000'000'000);
  for (unsigned count = 0; count <= kFew && !deadline.passed();) {
    count = 0;
    for (;; ++count, ++back) {
      fill(body.data(), shm::kCopyMax, back);
      if (f.b.port->send(*f.lb, FrameHeader{shm::kCopyMax, 1, 0, 0, back, 0}, body.data()) != TW_OK) break;
    }
    while (f.a.port->progress(64) != 0) {
    }
    f.b.port->progress(64);
    EXPECT_EQ(echoed, back);
    if (count > kFew) break;
  }
  EXPECT_FALSE(deadline.passed());
  while (f.send(shm::kCopyMax)) {
  }
  f.a.port->close(*f.la, true);  // what was accepted arrives
  EXPECT_TRUE(progress_until({f.b.port.get()}, [&] { return f.b.sink.lost == 1; }));
  EXPECT_EQ(f.received, f.sent);
}

}  // namespace
}  // namespace thalweg::impl::test
