// SPDX-License-Identifier: Apache-2.0
// Tcp ports in two processes: random frames both ways, and what the survivor sees when the other is killed.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "unit/transports/tcp_pair.hpp"

namespace thalweg::impl::tcp {
namespace {

/// Runs `child` in a forked process with its end of a connection.
template <typename Child>
pid_t with_child(Wire wire, int* fd, Child child) {
  const auto [a, b] = connected(wire);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::close(a);
    child(b);
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  ::close(b);
  *fd = a;
  return pid;
}

class TcpProcesses : public ::testing::TestWithParam<Wire> {};

TEST_P(TcpProcesses, CarryRandomFramesBothWays) {
  constexpr uint64_t kFrames = 3000;
  const uint64_t seed = std::random_device{}();
  const auto exchange = [&](int fd, uint64_t own) {
    Side side;
    side.add(fd);
    RandomSender sender(side, own);
    EXPECT_TRUE(progress_until({&side},
                               [&] {
                                 for (int i = 0; i < 8 && sender.accepted < kFrames && sender.step(); ++i) {
                                 }
                                 return sender.accepted == kFrames && side.sink.frames == kFrames &&
                                        side.sink.by_reference.empty();
                               }))
        << "seed " << seed << " sent " << sender.accepted << " received " << side.sink.frames;
    if (side.sink.lost == 0) side.port->close(*side.link, true);  // the other one may have been faster
    EXPECT_TRUE(progress_until({&side}, [&] { return static_cast<TcpPort&>(*side.port).link_count() == 0; }));
  };
  int fd = -1;
  const pid_t pid = with_child(GetParam(), &fd, [&](int mine) { exchange(mine, seed); });
  exchange(fd, seed + 1);
  int status = -1;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST_P(TcpProcesses, AKilledPeerIsLostWithinTwoSeconds) {
  int fd = -1;
  const pid_t pid = with_child(GetParam(), &fd, [](int mine) {
    Side side;
    side.add(mine);
    RandomSender sender(side, 3);
    while (true) {
      sender.step();
      side.port->progress(16);
    }
  });
  Side side;
  side.add(fd);
  RandomSender sender(side, 4);
  EXPECT_TRUE(progress_until({&side}, [&] { return sender.step(), side.sink.frames > 20; }));
  while (sender.step()) {
  }
  ::kill(pid, SIGKILL);
  ASSERT_EQ(::waitpid(pid, nullptr, 0), pid);
  ASSERT_TRUE(progress_until({&side}, [&] { return side.sink.lost > 0; }, 2 * kSecond));
  EXPECT_EQ(side.sink.lost_status, TW_ERR_PEER_LOST);
  EXPECT_TRUE(side.sink.by_reference.empty());
}

INSTANTIATE_TEST_SUITE_P(Wires, TcpProcesses, ::testing::Values(Wire::unix_pair, Wire::v4),
                         [](const auto& info) { return info.param == Wire::v4 ? "v4" : "unix"; });

// A stopped peer answers through its kernel only, and its window closes: that is no death, however short the time-out.
TEST(TcpProcesses, AStoppedPeerIsNotLost) {
  int fd = -1;
  const pid_t pid = with_child(Wire::v4, &fd, [](int mine) {
    Side side;
    side.add(mine);
    while (side.sink.lost == 0) side.port->progress(16);
  });
  Side side(2 * kSecond);
  side.add(fd);
  RandomSender sender(side, 5);
  ASSERT_TRUE(sender.step());
  ::kill(pid, SIGSTOP);
  ASSERT_FALSE(progress_until({&side}, [&] { return sender.step(), side.sink.lost > 0; }, 6 * kSecond)) << side.sink.why;
  EXPECT_GT(sender.again, 0u);
  ::kill(pid, SIGCONT);
  ASSERT_TRUE(progress_until({&side}, [&] { return side.port->queued(*side.link) == 0; }));
  EXPECT_EQ(side.sink.lost, 0u);
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
}

}  // namespace
}  // namespace thalweg::impl::tcp
