// SPDX-License-Identifier: Apache-2.0
// Channels between ranks that are threads: every group, receive buffers of every shape, stores in the worst order.
#include <thalweg/thalweg.h>

#include "tests/device/thread_groups.hpp"

namespace thalweg::device::twins {
namespace {

constexpr size_t kMost = 3000;
constexpr u32 kRecvBuffers = 4;
constexpr int kRounds = 100;  // more than there are slots

/// Both ends in this process's memory.
struct Pipe {
  u64 credits[kSlots] = {}, flags[kSlots] = {};
  RecvBuffer recv_buffers[kRecvBuffers] = {};
  SendEnd send{};
  RecvEnd recv{};
  Watched at_sender, at_receiver;
  Pipe() {
    send.credits = recv.credits = credits;
    send.flags = recv.flags = flags;
    send.recv_buffers = recv_buffers;
  }
  /// As if that many operations had passed.
  void advance(u64 count) {
    send.count = recv.posted = recv.taken = count;
    for (u64 n = count - kSlots; n != count; ++n) credits[n % kSlots] = flags[n % kSlots] = slot_word(n, 0);
  }
};

/// RecvBuffer 0 is contiguous, 1 rows of 24 bytes every 40, 2 a list, 3 shorter than what is sent.
struct Buffers {
  Area area[kRecvBuffers] = {Area(2 * kMost, 3), Area(2 * kMost, 8), Area(2 * kMost, 1), Area(2 * kMost)};
  Piece pieces[3];
  explicit Buffers(Pipe& pipe) {
    const auto at = [&](u32 i) { return area[i].data(); };
    for (u32 i = 0; i < kRecvBuffers; ++i) pipe.recv_buffers[i] = {contiguous_at(at(i)), kMost};
    pipe.recv_buffers[1].to = rows_at(at(1), 24, 40);
    pieces[0] = {0, reinterpret_cast<u64>(at(2))};
    pieces[1] = {100, reinterpret_cast<u64>(at(2) + 150)};
    pieces[2] = {1001, reinterpret_cast<u64>(at(2) + 1200)};
    pipe.recv_buffers[2].to = {0, 0, {0, 0}, {0, 0, 0}, pieces, 3};
    pipe.recv_buffers[3].capacity = 16;
  }
  void expect(u32 recv_buffer, const std::byte* data, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) {
      size_t to = i;
      if (recv_buffer == 1) to = i / 24 * 40 + i % 24;
      if (recv_buffer == 2) to = i < 100 ? i : i < 1001 ? i + 50 : i + 199;
      area[recv_buffer].expect(to, data + i, 1);
    }
  }
};

size_t size_of(int round) { return static_cast<size_t>(round) * 29 % kMost; }

void run_channel(const char* name, u64 start) {
  Pipe pipe;
  pipe.advance(start);
  Buffers buffers(pipe);
  std::vector<Area> sources;
  for (int i = 0; i < kRounds; ++i) sources.emplace_back(size_of(i), random_source()() % 16);
  std::thread receiver([&] {
    Receiver<> in(&pipe.recv, pipe.at_receiver.guard());
    for (int i = 0; i < kRounds; ++i) {
      const u32 recv_buffer = static_cast<u32>(i) % 3;
      ASSERT_TRUE(in.post(Thread(), recv_buffer));
      ASSERT_TRUE(in.take(Thread()));
      buffers.expect(recv_buffer, sources[static_cast<size_t>(i)].data(), size_of(i));
      ASSERT_TRUE(buffers.area[recv_buffer].check()) << name << ", message " << i;
    }
  });
  by_thread_group(name, [&](auto group, LateMachine m) {
    Sender<LateMachine> out(&pipe.send, pipe.at_sender.guard(), m);
    for (int i = 0; i < kRounds; ++i) {
      if (!out.send(group, sources[static_cast<size_t>(i)].data(), size_of(i))) return;
    }
  });
  receiver.join();
  EXPECT_EQ(pipe.at_sender.code(), 0);
  EXPECT_EQ(pipe.at_receiver.code(), 0);
  EXPECT_EQ(pipe.send.count, start + kRounds);
  EXPECT_EQ(pipe.recv.posted, start + kRounds);
  EXPECT_EQ(pipe.recv.taken, start + kRounds);
  for (u32 s = 0; s < kSlots; ++s) EXPECT_TRUE(pipe.send.arrived[s] == 0 && pipe.recv.arrived[s] == 0);
}

class ChannelAtLevel : public ::testing::TestWithParam<const char*> {};

TEST_P(ChannelAtLevel, EveryMessageLandsWhereItsReceiveSaid) { run_channel(GetParam(), 0); }
TEST_P(ChannelAtLevel, BeyondTheWrapOfCounts) { run_channel(GetParam(), (u64{1} << 48) - 50); }

/// Every message is another one, and lands where the last one did.
TEST_P(ChannelAtLevel, IsTakenByAllOfALevel) {
  const std::string name = GetParam();
  Pipe pipe;
  Buffers buffers(pipe);
  std::vector<Area> sources;
  for (int i = 0; i < kRounds; ++i) sources.emplace_back(1000, 5);
  std::thread sender([&] {
    Sender<> out(&pipe.send, pipe.at_sender.guard());
    for (Area& source : sources) ASSERT_TRUE(out.send(Block(), source.data(), 1000));
  });
  std::atomic<u32> wrong{0}, read{0};
  by_thread_group(name, [&](auto group, LateMachine m) {
    Receiver<LateMachine> in(&pipe.recv, pipe.at_receiver.guard(), m);
    for (u32 i = 0; i < kRounds; ++i) {
      if (!in.post(group, 0) || !in.take(group)) {
        read = kRounds * kSharers;
        return;
      }
      wrong += std::memcmp(buffers.area[0].data(), sources[i].data(), 1000) != 0;
      ++read;
      while (name == "blocks" && read < (i + 1) * kSharers) std::this_thread::yield();  // a grid barrier
    }
  });
  sender.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(pipe.recv.taken, u64{kRounds});
}

INSTANTIATE_TEST_SUITE_P(DeviceChannel, ChannelAtLevel, ::testing::ValuesIn(kThreadGroups),
                         [](const auto& info) { return info.param; });

TEST(DeviceChannel, NoMoreReceivesThanSlots) {
  Pipe pipe;
  Buffers buffers(pipe);
  const DirectMachine m;
  for (u64 n = 0; n < kSlots; ++n) ASSERT_TRUE(try_post(m, &pipe.recv, n, 0));
  EXPECT_FALSE(try_post(m, &pipe.recv, kSlots, 0));
  Receiver<> in(&pipe.recv, pipe.at_receiver.guard(1'000'000));
  EXPECT_FALSE(in.post(Thread(), 0, 8)) << "nothing was taken";
  EXPECT_EQ(pipe.at_receiver.code(), TW_ERR_TIMED_OUT);
  EXPECT_EQ(pipe.at_receiver.failure.what, 8u);
}

TEST(DeviceChannel, PiecesDoNotWait) {
  Pipe pipe;
  Buffers buffers(pipe);
  Area source(200, 1);
  const DirectMachine m;
  Sending sending;
  i64 status = 1;
  EXPECT_FALSE(try_begin_send(m, &pipe.send, 0, 200, &sending));
  EXPECT_FALSE(try_take(m, &pipe.recv, 0, &status));
  ASSERT_TRUE(try_post(m, &pipe.recv, 0, 2));
  ASSERT_TRUE(try_begin_send(m, &pipe.send, 0, 200, &sending));
  EXPECT_EQ(sending.status, 0);
  copy_part(m, 0, 1, sending.to, contiguous_at(source.data()), 200, {0, 200});
  EXPECT_FALSE(try_take(m, &pipe.recv, 0, &status));
  finish_send(m, Thread(), &pipe.send, sending);
  ASSERT_TRUE(try_take(m, &pipe.recv, 0, &status));
  EXPECT_EQ(status, 0);
  finish_take(m, Thread(), &pipe.recv, 0);
  buffers.expect(2, source.data(), 200);
  EXPECT_TRUE(buffers.area[2].check());
  EXPECT_TRUE(pipe.send.count == 1 && pipe.recv.posted == 1 && pipe.recv.taken == 1);
}

/// An entry that is filled in while it is read: of its words a plain read finds the room that is new and else what was there before,
/// as a GPU may, until the room was read with acquire order.
struct EntryMachine : DirectMachine {
  static constexpr bool whole_runs = false;
  const RecvBuffer* entry = nullptr;
  bool* acquired = nullptr;
  template <class T>
  T read(const T* from) const {
    const auto at = reinterpret_cast<uintptr_t>(from), first = reinterpret_cast<uintptr_t>(entry);
    const bool old = !*acquired && at - first < offsetof(RecvBuffer, capacity);
    return old ? T{} : DirectMachine::read(from);
  }
  u64 acquire(const u64* word) const {
    *acquired = *acquired || word == &entry->capacity;
    return DirectMachine::acquire(word);
  }
};

TEST(DeviceChannel, AnEntryThatIsOnlyNowFilledInIsReadBehindItsRoom) {
  for (u32 i = 0; i < kRecvBuffers - 1; ++i) {
    Pipe pipe;
    Buffers buffers(pipe);
    bool acquired = false;
    EntryMachine m;
    m.entry = &pipe.recv_buffers[i];
    m.acquired = &acquired;
    ASSERT_TRUE(try_post(DirectMachine(), &pipe.recv, 0, i));
    Sending sending;
    ASSERT_TRUE(try_begin_send(m, &pipe.send, 0, 200, &sending));
    EXPECT_EQ(sending.status, 0);
    Area source(200);
    copy_part(DirectMachine(), 0, 1, sending.to, contiguous_at(source.data()), 200, {0, 200});
    buffers.expect(i, source.data(), 200);
    EXPECT_TRUE(buffers.area[i].check());
  }
}

TEST(DeviceChannel, TooLongASendFailsOnBothSidesAndWritesNothing) {
  Pipe pipe;
  Buffers buffers(pipe);
  Area source(17);
  Receiver<> in(&pipe.recv, pipe.at_receiver.guard());
  Sender<> out(&pipe.send, pipe.at_sender.guard());
  ASSERT_TRUE(in.post(Block(), 3));
  EXPECT_FALSE(out.send(Block(), source.data(), 17, 21));
  EXPECT_FALSE(in.take(Block(), 22));
  EXPECT_EQ(pipe.at_sender.code(), TW_ERR_TRUNCATED);
  EXPECT_EQ(pipe.at_sender.failure.expected, 16u) << "the room";
  EXPECT_EQ(pipe.at_sender.failure.found, 17u);
  EXPECT_EQ(pipe.at_receiver.code(), TW_ERR_TRUNCATED);
  EXPECT_EQ(pipe.at_receiver.failure.what, 22u);
  EXPECT_TRUE(buffers.area[3].check());
}

TEST_P(ChannelAtLevel, AMissingPartnerReleasesEveryone) {
  Pipe pipe;
  Buffers buffers(pipe);
  Area source(100);
  std::atomic<int> sent{0}, taken{0};
  by_thread_group(GetParam(), [&](auto group, LateMachine m) {
    Sender<LateMachine> out(&pipe.send, pipe.at_sender.guard(2'000'000), m);
    sent += out.send(group, source.data(), 100, 3);
    Receiver<LateMachine> in(&pipe.recv, pipe.at_receiver.guard(2'000'000), m);
    taken += in.take(group, 4);
  });
  EXPECT_EQ(sent + taken, 0);
  EXPECT_EQ(pipe.at_sender.code(), TW_ERR_TIMED_OUT);
  EXPECT_EQ(pipe.at_sender.failure.what, 3u);
  EXPECT_EQ(pipe.at_sender.failure.expected, 1u);
  EXPECT_EQ(pipe.at_receiver.failure.what, 4u);
  for (Area& area : buffers.area) EXPECT_TRUE(area.check());
}

}  // namespace
}  // namespace thalweg::device::twins
