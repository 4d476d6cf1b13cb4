// SPDX-License-Identifier: Apache-2.0
// What the service thread does of a link without anybody's progress: before establish() it answers the peer's imports and
// notices its end; afterwards it revokes the mappings of what the peer has released or lost.
#include <atomic>
#include <thread>

#include "shm_pair.hpp"

namespace thalweg::impl::test {
namespace {

/// Confirmed, and taken by side a alone.
struct HalfTaken {
  Side a, b;
  Link* la = nullptr;
  LinkInit pending;
  HalfTaken() {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    LinkInit ia;
    ia.initiator = true;
    ia.socket = UniqueFd(fds[0]);
    pending.socket = UniqueFd(fds[1]);
    ia.peer.incarnation = b.incarnation;
    pending.peer.incarnation = a.incarnation;
    EXPECT_EQ(a.port->offer(ia.peer, ia.mine), TW_OK);
    EXPECT_EQ(b.port->answer(pending.peer, ia.mine, pending.mine), TW_OK);
    pending.theirs = copy_of(ia.mine);
    ia.theirs = copy_of(pending.mine);
    b.port->adopt(pending);
    EXPECT_EQ(a.port->establish(std::move(ia), &la), TW_OK) << last_error();
  }
  Status import(uint64_t segment, Mapping** mapping) {
    Status status = TW_IN_PROGRESS;
    progress_until({a.port.get()}, [&] { return (status = a.port->import(*la, segment, mapping)) != TW_IN_PROGRESS; });
    return status;
  }
};

/// Without progress.
bool comes(const std::function<bool()>& what) {
  const Deadline deadline(20 * kSecond);
  while (!what()) {
    if (deadline.passed()) return false;
    sched_yield();
  }
  return true;
}

TEST(ShmAdopt, ImportsAreAnsweredBeforeTheLinkIsTaken) {
  HalfTaken p;
  tw_memory* memory = nullptr;
  ASSERT_EQ(p.b.registry.allocate(4096, TW_MEMORY_ALL, false, &memory), TW_OK);
  Mapping* mapping = nullptr;
  ASSERT_EQ(p.import(memory->segment_id, &mapping), TW_OK) << last_error();
  mapping->address[5] = std::byte{9};
  EXPECT_EQ(memory->address[5], std::byte{9});
  Link* lb = nullptr;
  ASSERT_EQ(p.b.port->establish(std::move(p.pending), &lb), TW_OK) << last_error();
  ASSERT_EQ(p.a.port->send(*p.la, FrameHeader{0, 1, 0, 0, 0, 0}, nullptr), TW_OK);
  EXPECT_TRUE(progress_until({p.b.port.get()}, [&] { return p.b.sink.frames == 1; }));
  EXPECT_EQ(p.b.registry.release(memory), TW_OK);
}

TEST(ShmAdopt, AnEndBeforeTheLinkIsTakenIsToldBehindWhatWasSent) {
  HalfTaken p;
  ASSERT_EQ(p.a.port->send(*p.la, FrameHeader{0, 1, 0, 0, 0, 0}, nullptr), TW_OK);
  auto& early = static_cast<shm::EarlyLink&>(*p.pending.adopted);
  p.a.port->close(*p.la, true);
  ASSERT_TRUE(comes([&] { return early.control->peer_ended(); }));
  Link* lb = nullptr;
  ASSERT_EQ(p.b.port->establish(std::move(p.pending), &lb), TW_OK) << last_error();
  EXPECT_TRUE(progress_until({p.b.port.get()}, [&] { return p.b.sink.lost == 1; }));
  EXPECT_EQ(p.b.sink.frames, 1u);
  EXPECT_EQ(p.b.sink.lost_status, TW_ERR_CLOSED);
}

TEST(ShmAdopt, OneThatIsGivenUpIsAnEndForThePeer) {
  HalfTaken p;
  p.pending.adopted.reset();
  EXPECT_TRUE(progress_until({p.a.port.get()}, [&] { return p.a.sink.lost == 1; }));
  EXPECT_EQ(p.a.sink.lost_status, TW_ERR_PEER_LOST);
}

/// Whoever gives it up may free the memory that the peer copies into.
TEST(ShmAdopt, OneThatIsGivenUpEndsBehindTheCopyUnderWay) {
  HalfTaken p;
  std::vector<std::byte> bytes(4096);
  tw_memory* memory = nullptr;
  ASSERT_EQ(p.b.registry.register_memory(bytes.data(), bytes.size(), 0, &memory), TW_OK);
  KeyBody key;
  ASSERT_EQ(p.b.registry.export_range(memory, 0, 0, 0, &key), TW_OK);
  ASSERT_TRUE(p.a.port->enter_peer(*p.la));
  std::atomic<bool> released{false};
  std::thread gives_up([&] {
    p.pending.adopted.reset();
    EXPECT_EQ(p.b.registry.release(memory), TW_OK);
    released = true;
  });
  for (int i = 0; i < 2000; ++i) sched_yield();
  EXPECT_FALSE(released);
  p.a.port->leave_peer(*p.la);
  gives_up.join();
  EXPECT_FALSE(p.a.port->enter_peer(*p.la)) << "the other side has taken its memory back";
}

/// A deep ring that is offered when there is no link yet to take it.
TEST(ShmAdopt, ARingThatIsOfferedBeforeTheLinkIsTakenIsUsed) {
  HalfTaken p;
  const std::vector<std::byte> body(shm::kCopyMax);
  const auto send = [&] { return p.a.port->send(*p.la, FrameHeader{shm::kCopyMax, 1, 0, 0, 0, 0}, body.data()) == TW_OK; };
  uint64_t sent = 0;
  for (unsigned i = 0; i < 2 * shm::DeepOut::kOften + 8; ++i) sent += send();
  for (int i = 0; i < 3; ++i) {
    p.a.loop.call([] {});
    p.b.loop.call([] {});
  }
  p.b.port->progress(8);
  Link* lb = nullptr;
  ASSERT_EQ(p.b.port->establish(std::move(p.pending), &lb), TW_OK) << last_error();
  uint64_t burst = 0;
  EXPECT_TRUE(progress_until(
      {p.a.port.get()},
      [&] {
        while (p.b.port->progress(64) != 0) {
        }
        for (burst = 0; send(); ++burst) {
        }
        sent += burst;
        return burst > 4;  // more than the first ring holds
      },
      10 * kSecond))
      << burst;
  while (p.b.port->progress(64) != 0) {
  }
  EXPECT_EQ(p.b.sink.frames, sent);
}

TEST(ShmRevoke, AReleaseShowsWithoutProgress) {
  HalfTaken p;
  tw_memory* memory = nullptr;
  ASSERT_EQ(p.b.registry.allocate(4096, TW_MEMORY_ALL, false, &memory), TW_OK);
  Mapping* mapping = nullptr;
  ASSERT_EQ(p.import(memory->segment_id, &mapping), TW_OK);
  ++mapping->users;
  const uint64_t segment = memory->segment_id;
  ASSERT_EQ(p.b.registry.release(memory), TW_OK);
  EXPECT_TRUE(comes([&] { return mapping->revoked.load(); }));
  EXPECT_EQ(mapping->why, TW_ERR_STALE);
  Mapping* again = nullptr;
  EXPECT_EQ(p.import(segment, &again), TW_ERR_STALE);
  --mapping->users;
}

TEST(ShmRevoke, ALossShowsWithoutProgressOnThatLinkOnly) {
  HalfTaken p;
  Link *other = nullptr, *back = nullptr;
  connect_sides(p.a, p.b, &other, &back);
  tw_memory* memory = nullptr;
  ASSERT_EQ(p.b.registry.allocate(4096, TW_MEMORY_ALL, false, &memory), TW_OK);
  Mapping *lost = nullptr, *kept = nullptr;
  ASSERT_EQ(p.import(memory->segment_id, &lost), TW_OK);
  ++lost->users;
  Status status = TW_IN_PROGRESS;
  progress_until({p.a.port.get()},
                 [&] { return (status = p.a.port->import(*other, memory->segment_id, &kept)) != TW_IN_PROGRESS; });
  ASSERT_EQ(status, TW_OK);
  ++kept->users;
  p.pending.adopted.reset();
  EXPECT_TRUE(comes([&] { return lost->revoked.load(); }));
  EXPECT_EQ(lost->why, TW_ERR_PEER_LOST);
  EXPECT_FALSE(kept->revoked);
  --lost->users;
  --kept->users;
  EXPECT_EQ(p.b.registry.release(memory), TW_OK);
}

}  // namespace
}  // namespace thalweg::impl::test
