// SPDX-License-Identifier: Apache-2.0
// What a forked child keeps of its parent: nothing that could hide the parent's death or close the child's own files.
#include "base/platform/fork.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <optional>

#include "base/event_loop.hpp"
#include "base/log.hpp"
#include "base/platform/process.hpp"
#include "base/unique_fd.hpp"

namespace thalweg::impl {
namespace {

bool is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }

// The exit code of a child that runs work.
int in_child(const std::function<int()>& work) {
  const pid_t child = fork();
  if (child == 0) _exit(work());
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

TEST(Fork, ChildHasNoDescriptorOfItsParent) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  const UniqueFd kept(pair[0]);
  const UniqueFd other(pair[1]);
  EXPECT_EQ(in_child([&] { return is_open(kept.get()) || is_open(other.get()) ? 1 : 0; }), 0);
  EXPECT_TRUE(is_open(kept.get()));
}

TEST(Fork, LivingChildDoesNotHideTheEndOfItsParentsSocket) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  int hold[2];
  ASSERT_EQ(pipe(hold), 0);
  UniqueFd mine(pair[0]);
  UniqueFd peer(pair[1]);
  const pid_t child = fork();
  if (child == 0) {
    close(hold[1]);
    char byte;
    const ssize_t n = read(hold[0], &byte, 1);  // lives until told
    _exit(n == 0 ? 0 : 1);
  }
  mine.reset();
  pollfd one{peer.get(), POLLIN, 0};
  EXPECT_EQ(poll(&one, 1, 10000), 1);
  char byte;
  EXPECT_EQ(read(peer.get(), &byte, 1), 0);
  close(hold[0]);
  close(hold[1]);
  int status;
  EXPECT_EQ(waitpid(child, &status, 0), child);
}

TEST(Fork, ChildsOwnFileSurvivesTheParentsObjects) {
  std::optional<UniqueFd> parents(std::in_place, open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int number = parents->get();
  EXPECT_EQ(in_child([&] {
              UniqueFd own(open("/dev/zero", O_RDONLY | O_CLOEXEC));
              if (own.get() != number) return 2;  // the lowest free number is the one the child has lost
              parents.reset();
              return is_open(number) ? 0 : 1;
            }),
            0);
  EXPECT_TRUE(is_open(number));
}

TEST(Fork, ReleasedDescriptorIsTheCallersAlsoInAChild) {
  UniqueFd owned(open("/dev/null", O_RDONLY));
  const int raw = owned.release();
  EXPECT_FALSE(owned);
  EXPECT_EQ(in_child([&] { return is_open(raw) ? 0 : 1; }), 0);
  close(raw);
}

TEST(Fork, GenerationTellsParentFromChild) {
  const BornHere object;
  EXPECT_EQ(object.check("worker"), TW_OK);
  EXPECT_EQ(in_child([&] {
              const bool named =
                  object.check("worker") == TW_ERR_FORKED && std::string(last_error()).find("worker") != std::string::npos;
              const BornHere own;
              return named && forked() && own.check("worker") == TW_OK ? 0 : 1;
            }),
            0);
  EXPECT_FALSE(object.forked());
}

TEST(Fork, IncarnationDiffersInTheChild) {
  const uint64_t mine = process_incarnation();
  EXPECT_NE(mine, 0u);
  EXPECT_EQ(mine, process_incarnation());
  EXPECT_EQ(in_child([&] { return process_incarnation() != mine && process_incarnation() == process_incarnation() ? 0 : 1; }),
            0);
}

TEST(Fork, ServiceLoopIsLeftAloneByTheChild) {
  auto loop = std::make_unique<EventLoop>();
  ASSERT_EQ(loop->start(), TW_OK);
  EXPECT_EQ(in_child([&] {
              bool ran = false;
              loop->call([&] { ran = true; });
              loop->post([&] { ran = true; });
              const Status status = loop->add(0, 0, [](uint32_t) {});
              loop.reset();  // does not wait for a thread that is not there
              warn_once("fork test", "the log works in a child too");
              return !ran && status == TW_ERR_FORKED ? 0 : 1;
            }),
            0);
  bool ran = false;
  loop->call([&] { ran = true; });
  EXPECT_TRUE(ran);
}

}  // namespace
}  // namespace thalweg::impl
