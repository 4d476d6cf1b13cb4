// SPDX-License-Identifier: Apache-2.0
// The C++ view of channels' ends: two ranks of one process that exchange by code of their own on the host.
#include <thalweg/device/channel.hpp>

#include "unit/plans/window_ranks.hpp"

namespace thalweg::test {
namespace {

constexpr size_t kLength = 4'099;

TEST(ChannelEndView, EachSendsToTheOther) {
  run_ranks(2, [](Rank& rank) {
    const uint32_t other = 1 - rank.number;
    tw_endpoint* const peer = rank.handles[other];
    std::string to[2] = {std::string(kLength, '\x5a'), std::string(kLength, '\x5a')};
    // In this order at both: a binding waits for the peer's other end.
    const auto bind_send = [&] { return BoundSend(peer, 3); };
    const auto bind_recv = [&] { return BoundRecv(peer, {Bytes(std::span(to[0])), Bytes(std::span(to[1]))}, 3); };
    BoundSend out;
    BoundRecv in;
    if (rank.number == 0) out = bind_send();
    in = bind_recv();
    if (rank.number == 1) out = bind_send();
    device::Sender<> sender(out.end(), out.guard());
    device::Receiver<> receiver(in.end(), in.guard());
    for (int round = 0; round < 3; ++round) {
      const std::string mine = random_bytes(kLength);
      std::string all(2 * kLength, '\0');
      ASSERT_EQ(rank.meeting.exchange(rank.number, mine.data(), kLength, all.data()), TW_OK);
      const uint32_t at = static_cast<uint32_t>(round % 2);
      ASSERT_TRUE(receiver.post(device::Thread(), in.recv_buffer(at)));
      ASSERT_TRUE(sender.send(device::Thread(), mine.data(), mine.size()));
      ASSERT_TRUE(receiver.take(device::Thread()));
      EXPECT_TRUE(to[at] == all.substr(other * kLength, kLength)) << "round " << round;
    }
    out.check();
    in.check();
    EXPECT_EQ(out.explain(), "channel 3, the sending end, of host: mapped");
    EXPECT_EQ(in.explain(), "channel 3, the receiving end, of host: mapped");
    rank.barrier();
    EXPECT_EQ(in.release(), TW_OK) << tw_last_error();
    EXPECT_EQ(out.release(), TW_OK) << tw_last_error();
  });
}

TEST(ChannelEndView, StridedBuffersAndWhatIsThrown) {
  run_ranks(2, [](Rank& rank) {
    tw_endpoint* const peer = rank.handles[1 - rank.number];
    constexpr uint64_t kRows = 5, kColumns = 7;
    std::vector<uint64_t> grid(kRows * kColumns, 7), wanted = grid;
    const Layout column = Layout::subarray<uint64_t>({kRows, kColumns}, {kRows, 1}, {0, 2});
    const std::string mine = random_bytes(kRows * sizeof(uint64_t));
    std::string all(2 * mine.size(), '\0');
    ASSERT_EQ(rank.meeting.exchange(rank.number, mine.data(), mine.size(), all.data()), TW_OK);
    EXPECT_THROW(BoundRecv(peer, std::vector<tw_channel_buffer>(), 1), Error);
    if (rank.number == 0) {
      const BoundSend out(peer, 1, "host", std::chrono::seconds(20));
      device::Sender<> sender(out.end(), out.guard());
      EXPECT_TRUE(sender.send(device::Thread(), mine.data(), mine.size()));
    } else {
      const BoundRecv in(peer, {ChannelBuffer(grid.data(), column)}, 1);
      EXPECT_THROW(in.recv_buffer(1), Error);
      device::Receiver<> receiver(in.end(), in.guard());
      EXPECT_TRUE(receiver.post(device::Thread(), in.recv_buffer(0)) && receiver.take(device::Thread()));
      for (uint64_t row = 0; row < kRows; ++row) std::memcpy(&wanted[row * kColumns + 2], &all[row * 8], 8);
      EXPECT_EQ(grid, wanted);
    }
    rank.barrier();
  });
}

}  // namespace
}  // namespace thalweg::test
