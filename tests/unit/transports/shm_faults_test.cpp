// SPDX-License-Identifier: Apache-2.0
// Hostile and dying peers.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>

#include "unit/transports/shm_hostile.hpp"

namespace thalweg::impl::test {
namespace {

TEST(ShmFaults, BitsOfTheDoorbellThatNobodyHasAreHarmless) {
  Hostile h;
  Side other;
  Link *la, *lb;
  connect_sides(other, h.side, &la, &lb);
  for (uint32_t bit = 0; bit < shm::kDoorbellBits; ++bit) h.theirs.ring(bit);
  const uint64_t value = std::random_device{}();
  uint64_t got = ~value;
  h.side.sink.frame = [&](Link&, const FrameHeader& header, const std::byte* body) {
    ASSERT_EQ(header.length, sizeof got);
    std::memcpy(&got, body, sizeof got);
  };
  EXPECT_EQ(other.port->send(*la, FrameHeader{8, 1, 0, 0, 0, 0}, &value), TW_OK);
  h.side.port->progress(8);
  EXPECT_EQ(got, value);
  EXPECT_EQ(h.side.sink.lost, 0);
}

TEST(ShmFaults, AFrameLongerThanTheRingEndsTheLinkOnly) {
  for (uint32_t length : {shm::kCopyMax + 1, 0x7fffffffu, 0xffffffffu}) {
    Hostile h;
    Side other;
    Link *la, *lb;
    connect_sides(other, h.side, &la, &lb);
    h.incoming().slots[0].word = length | shm::kParity;
    h.side.port->progress(8);
    EXPECT_EQ(h.side.sink.lost, 1);
    EXPECT_EQ(h.side.sink.lost_status, TW_ERR_PROTOCOL);
    EXPECT_EQ(h.side.port->send(*h.link, FrameHeader{}, nullptr), TW_ERR_PROTOCOL);
    const uint64_t value = 5;
    EXPECT_EQ(other.port->send(*la, FrameHeader{8, 1, 0, 0, 0, 0}, &value), TW_OK);
    h.side.port->progress(8);
    EXPECT_EQ(h.side.sink.frames, 1u);
    h.side.port->close(*h.link, false);
  }
}

TEST(ShmFaults, ImpossibleCreditEndsTheLink) {
  for (int which : {0, 1}) {
    Hostile h;
    shm::RingControl& control = h.memory().direction[1].control;
    (which == 0 ? control.consumed_slots : control.consumed_bulk) = 1 << 20;
    const uint64_t value = 5;
    Status s = TW_OK;
    for (int i = 0; i < 1000 && s == TW_OK; ++i) s = h.side.port->send(*h.link, FrameHeader{8, 1, 0, 0, 0, 0}, &value);
    EXPECT_EQ(s, TW_ERR_PROTOCOL);
    EXPECT_EQ(h.side.sink.lost, 0);  // reported by progress, not inside a send
    h.side.port->progress(8);
    EXPECT_EQ(h.side.sink.lost, 1);
    EXPECT_EQ(h.side.sink.lost_status, TW_ERR_PROTOCOL);
  }
}

TEST(ShmFaults, RandomRingContents) {
  std::mt19937_64 random(std::random_device{}());
  for (int round = 0; round < 200; ++round) {
    Hostile h;
    uint64_t touched = 0;
    h.side.sink.frame = [&](Link&, const FrameHeader& header, const std::byte* body) {
      for (uint32_t i = 0; i < header.length; ++i) touched += uint64_t(body[i]);
    };
    auto* bytes = reinterpret_cast<std::byte*>(&h.memory());
    for (size_t i = 0; i + 8 <= sizeof(shm::Connection); i += 8) {
      const uint64_t x = random();
      std::memcpy(bytes + i, &x, 8);
    }
    for (auto& slot : h.incoming().slots)  // mostly plausible lengths, so that positions move
      if (random() % 8 != 0) slot.word = (slot.word & ~uint64_t(0xffffffff)) | random() % (shm::kCopyMax + 1);
    for (int i = 0; i < 20; ++i) {
      h.side.port->progress(64);
      const uint64_t value = 0;
      h.side.port->send(*h.link, FrameHeader{8, 1, 0, 0, 0, 0}, &value);
    }
    EXPECT_LE(h.side.sink.lost, 1);
  }
}

TEST(ShmFaults, BadSetupIsRefused) {
  Side a, b;
  SetupMessage offer, answer;
  ASSERT_EQ(a.port->offer({}, offer), TW_OK);
  SetupMessage bad = copy_of(offer);
  bad.bytes.pop_back();
  EXPECT_EQ(b.port->answer({}, bad, answer), TW_ERR_PROTOCOL);
  bad = copy_of(offer);
  bad.bytes[0] ^= std::byte(1);
  EXPECT_EQ(b.port->answer({}, bad, answer), TW_ERR_PROTOCOL);
  bad = copy_of(offer);
  bad.bytes[4] ^= std::byte(1);
  EXPECT_EQ(b.port->answer({}, bad, answer), TW_ERR_VERSION);
  bad = copy_of(offer);
  bad.fds.pop_back();
  EXPECT_EQ(b.port->answer({}, bad, answer), TW_ERR_PROTOCOL);
  for (int which : {0, 1, 2}) {  // an unsealed memfd in the place of each descriptor
    LinkInit init;
    init.theirs = copy_of(offer);
    UniqueFd file(memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(ftruncate(file.get(), 1 << 20), 0);
    init.theirs.fds[size_t(which)] = std::move(file);
    ASSERT_EQ(b.port->answer({}, init.theirs, init.mine), TW_OK);
    Link* link = nullptr;
    EXPECT_EQ(b.port->establish(std::move(init), &link), TW_ERR_PROTOCOL) << which;
  }
}

TEST(ShmFaults, KilledPeerWithFramesInFlight) {
  for (bool grandchild : {false, true}) {
    Child child([&](int socket) {
      Side side;
      Link* link = connect_over(side, socket, true);
      // A forked child of the dead keeps everything it inherited, and must not hide the death.
      if (grandchild && fork() == 0) {
        for (int i = 0; i < 100; ++i) usleep(100'000);
        _exit(0);
      }
      std::vector<std::byte> body(1000);
      for (uint64_t i = 0;; ++i) {
        while (side.port->send(*link, FrameHeader{i % 3 == 0 ? 1000u : 8u, 1, 0, 0, i, 0}, body.data()) != TW_OK) cpu_pause();
      }
      return 0;
    });
    Side side;
    Link* link = connect_over(side, child.socket(), false);
    bool ordered = true;
    side.sink.frame = [&](Link&, const FrameHeader& h, const std::byte*) { ordered = ordered && h.a == side.sink.frames - 1; };
    EXPECT_TRUE(progress_until({side.port.get()}, [&] { return side.sink.frames > 10000; }));
    kill(child.pid(), SIGKILL);
    EXPECT_TRUE(progress_until({side.port.get()}, [&] { return side.sink.lost == 1; }, 2 * kSecond)) << grandchild;
    EXPECT_EQ(side.sink.lost_status, TW_ERR_PEER_LOST);
    EXPECT_TRUE(ordered);
    side.port->close(*link, false);
    EXPECT_EQ(child.wait(), -SIGKILL);
  }
}

TEST(ShmFaults, KilledPeerWakesASleeper) {
  Child child([&](int socket) {
    Side side;
    connect_over(side, socket, true);
    for (;;) pause();
    return 0;
  });
  Side side;
  Link* link = connect_over(side, child.socket(), false);
  while (side.port->arm() != TW_OK) side.port->progress(8);
  kill(child.pid(), SIGKILL);
  EXPECT_TRUE(progress_until({side.port.get()}, [&] { return side.sink.lost == 1; }, 2 * kSecond));
  side.port->close(*link, false);
}

TEST(ShmFaults, MemoryIsGivenBack) {
  auto shared_kb = [] {
    long kb = 0;
    FILE* f = fopen("/proc/self/status", "r");
    char line[200];
    while (fgets(line, sizeof line, f))
      if (sscanf(line, "RssShmem: %ld", &kb) == 1) break;
    fclose(f);
    return kb;
  };
  Side a, b;
  const long before = shared_kb();
  std::vector<std::pair<Link*, Link*>> links(50);
  for (auto& [la, lb] : links) connect_sides(a, b, &la, &lb);
  const long with = shared_kb();
  // Mapped twice in this one process; an endpoint pair has one segment.
  EXPECT_LE((with - before) / 2, 50 * 128);
  EXPECT_GE((with - before) / 2, 50 * 64);
  for (auto& [la, lb] : links) a.port->close(*la, false);
  EXPECT_TRUE(progress_until({b.port.get()}, [&] { return b.sink.lost == 50; }));
  EXPECT_LE(shared_kb() - before, 64);
  for (auto& [la, lb] : links) b.port->close(*lb, false);
}

}  // namespace
}  // namespace thalweg::impl::test
