// SPDX-License-Identifier: Apache-2.0
// Sealed, preallocated shared memory.
#include "memory/segment.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <utility>

namespace thalweg::impl {
namespace {

TEST(Segment, IsZeroSealedAndPreallocated) {
  Segment segment;
  ASSERT_EQ(Segment::create("test", 100'000, true, false, &segment), TW_OK) << last_error();
  ASSERT_GE(segment.size(), 100'000u);
  for (size_t i = 0; i < segment.size(); ++i) ASSERT_EQ(segment.data()[i], std::byte(0));
  const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  EXPECT_EQ(fcntl(segment.fd(), F_GET_SEALS) & seals, seals);
  EXPECT_NE(ftruncate(segment.fd(), 4096), 0);
  EXPECT_NE(ftruncate(segment.fd(), 1 << 20), 0);
  struct stat status;
  ASSERT_EQ(fstat(segment.fd(), &status), 0);
  EXPECT_GE(size_t(status.st_blocks) * 512, segment.size());
  EXPECT_TRUE(fcntl(segment.fd(), F_GETFD) & FD_CLOEXEC);
}

TEST(Segment, OpensAsTheSameMemory) {
  Segment first, second;
  ASSERT_EQ(Segment::create("test", 8192, true, false, &first), TW_OK);
  ASSERT_EQ(Segment::open(UniqueFd(dup(first.fd())), 8192, &second), TW_OK) << last_error();
  EXPECT_NE(first.data(), second.data());
  std::memset(second.data() + 5000, 0x3c, 7);
  EXPECT_EQ(first.data()[5006], std::byte(0x3c));
  EXPECT_EQ(first.data()[5007], std::byte(0));
  Segment moved = std::move(second);
  EXPECT_EQ(second.data(), nullptr);
  EXPECT_EQ(moved.data()[5000], std::byte(0x3c));
  moved = Segment();
  EXPECT_EQ(first.data()[5000], std::byte(0x3c));
}

TEST(Segment, RefusesUnsealedAndWrongSize) {
  Segment out;
  UniqueFd plain(memfd_create("plain", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(plain.get(), 8192), 0);
  EXPECT_EQ(Segment::open(UniqueFd(dup(plain.get())), 8192, &out), TW_ERR_PROTOCOL);
  ASSERT_EQ(fcntl(plain.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_EQ(Segment::open(UniqueFd(dup(plain.get())), 8192, &out), TW_ERR_PROTOCOL);
  ASSERT_EQ(fcntl(plain.get(), F_ADD_SEALS, F_SEAL_GROW), 0);
  EXPECT_EQ(Segment::open(UniqueFd(dup(plain.get())), 16384, &out), TW_ERR_PROTOCOL);
  EXPECT_EQ(Segment::open(UniqueFd(dup(plain.get())), 8192, &out), TW_ERR_PROTOCOL);  // without pages
  EXPECT_NE(std::string(last_error()).find("sparse"), std::string::npos) << last_error();
  ASSERT_EQ(fallocate(plain.get(), 0, 0, 4096), 0);
  EXPECT_EQ(Segment::open(UniqueFd(dup(plain.get())), 8192, &out), TW_ERR_PROTOCOL);  // with half of them
  ASSERT_EQ(fallocate(plain.get(), 0, 0, 8192), 0);
  EXPECT_EQ(Segment::open(UniqueFd(dup(plain.get())), 8192, &out), TW_OK);
  int pipes[2];
  ASSERT_EQ(pipe2(pipes, O_CLOEXEC), 0);
  UniqueFd other(pipes[1]);
  EXPECT_EQ(Segment::open(UniqueFd(pipes[0]), 8192, &out), TW_ERR_PROTOCOL);
  EXPECT_EQ(Segment::create("none", 0, true, false, &out), TW_ERR_INVALID);
}

TEST(Segment, TooMuchIsAnErrorAndNotASignal) {
  Segment out;
  const Status s = Segment::create("huge", size_t(1) << 45, true, false, &out);
  EXPECT_EQ(s, TW_ERR_NO_SHARED_MEMORY);
  EXPECT_EQ(out.data(), nullptr);
}

TEST(Segment, PrivateOnesAreNotInherited) {
  Segment segment;
  ASSERT_EQ(Segment::create("private", 4096, true, false, &segment), TW_OK);
  const pid_t child = fork();
  if (child == 0) {
    unsigned char in_core;
    _exit(mincore(segment.data(), 4096, &in_core) != 0 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace thalweg::impl
