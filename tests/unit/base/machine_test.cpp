// SPDX-License-Identifier: Apache-2.0
// Clock, log, membarrier and process facts.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/platform/membarrier.hpp"
#include "base/platform/process.hpp"

namespace thalweg::impl {
namespace {

TEST(Clock, SpinDeadlineAgreesWithTheMonotonicClock) {
  const uint64_t start = monotonic_ns();
  const SpinDeadline spin(5 * kMillisecond);
  while (!spin.passed()) cpu_pause();
  const uint64_t took = monotonic_ns() - start;
  EXPECT_GE(took, 4 * kMillisecond);
  EXPECT_LT(took, kSecond);
  EXPECT_FALSE(SpinDeadline(kForever).passed());
  EXPECT_TRUE(SpinDeadline(0).passed());
}

TEST(Clock, Deadline) {
  EXPECT_FALSE(Deadline(kForever).passed());
  EXPECT_EQ(Deadline(kForever).left_ms(), -1);
  EXPECT_FALSE(Deadline(kForever - 5).passed());
  EXPECT_TRUE(Deadline(0).passed());
  EXPECT_EQ(Deadline(0).left_ms(), 0);
  const Deadline soon(kSecond);
  EXPECT_GT(soon.left_ms(), 0);
  EXPECT_LE(soon.left_ms(), 1000);
}

TEST(Log, HandlerGetsWarningsOnce) {
  static std::vector<std::pair<int, std::string>> lines;
  lines.clear();
  int here = 0;
  tw_set_log_handler(
      [](void* arg, int level, const char* text) {
        ++*static_cast<int*>(arg);
        lines.emplace_back(level, text);
      },
      &here);
  EXPECT_TRUE(warn_once("machine_test", "no cable; plug one in"));
  EXPECT_FALSE(warn_once("machine_test", "no cable; plug one in"));
  log(LogLevel::error, "value %d", 42);
  log(LogLevel::debug, "not shown by default");
  tw_set_log_handler(nullptr, nullptr);
  log(LogLevel::error, "this line on stderr is part of a test");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(here, 2);
  EXPECT_EQ(lines[0], std::pair(int(TW_LOG_WARNING), std::string("no cable; plug one in")));
  EXPECT_EQ(lines[1], std::pair(int(TW_LOG_ERROR), std::string("value 42")));
  EXPECT_NE(warnings_so_far().find("machine_test: no cable"), std::string::npos);
}

TEST(Membarrier, CanBeCalledWhetherOrNotAvailable) {
  EXPECT_EQ(membarrier::available(), membarrier::available());
  membarrier::global();
}

TEST(Process, HostAndIds) {
  EXPECT_NE(host_id(), 0u);
  EXPECT_EQ(host_id(), host_id());
  EXPECT_NE(random_id(), random_id());
}

TEST(Process, PidfdTellsTheEndOfAChild) {
  int hold[2];
  ASSERT_EQ(pipe(hold), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(hold[1]);
    char byte;
    const ssize_t n = read(hold[0], &byte, 1);
    _exit(int(n));
  }
  close(hold[0]);
  UniqueFd pidfd;
  const Status status = open_pidfd(child, &pidfd);
  EXPECT_TRUE(may_access_process(getpid()));
  if (status == TW_OK) {
    pollfd one{pidfd.get(), POLLIN, 0};
    EXPECT_EQ(poll(&one, 1, 0), 0);
    close(hold[1]);
    EXPECT_EQ(poll(&one, 1, 10000), 1);
  } else {
    EXPECT_EQ(status, TW_ERR_UNSUPPORTED);
    close(hold[1]);
  }
  int code;
  waitpid(child, &code, 0);
  EXPECT_FALSE(may_access_process(child));
  if (status == TW_OK) {
    EXPECT_EQ(open_pidfd(child, &pidfd), TW_ERR_PEER_LOST);
  }
}

TEST(Process, PeerOfAUnixSocket) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  const UniqueFd a(pair[0]);
  const UniqueFd b(pair[1]);
  EXPECT_EQ(peer_pid(a.get()), getpid());
  EXPECT_EQ(peer_uid(a.get()), geteuid());
  UniqueFd pidfd;
  const Status status = open_peer_pidfd(a.get(), &pidfd);
  EXPECT_TRUE(status == TW_OK || status == TW_ERR_UNSUPPORTED) << last_error();
  if (status == TW_OK) {
    pollfd one{pidfd.get(), POLLIN, 0};
    EXPECT_EQ(poll(&one, 1, 0), 0);
  }
}

}  // namespace
}  // namespace thalweg::impl
