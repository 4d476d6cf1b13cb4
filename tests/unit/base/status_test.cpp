// SPDX-License-Identifier: Apache-2.0
// Status names, texts and the thread's last error.
#include "base/status.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <set>
#include <string>
#include <thread>

#include "base/told_status.hpp"

namespace thalweg::impl {
namespace {

constexpr Status kAll[] = {TW_OK,
                           TW_IN_PROGRESS,
                           TW_AGAIN,
                           TW_ERR_INVALID,
                           TW_ERR_HANDLE,
                           TW_ERR_UNSUPPORTED,
                           TW_ERR_OUT_OF_BOUNDS,
                           TW_ERR_MISALIGNED,
                           TW_ERR_THREAD,
                           TW_ERR_FORKED,
                           TW_ERR_BUSY,
                           TW_ERR_PERMISSION,
                           TW_ERR_NO_MEMORY,
                           TW_ERR_NO_DESCRIPTORS,
                           TW_ERR_NO_SHARED_MEMORY,
                           TW_ERR_LIMIT,
                           TW_ERR_IO,
                           TW_ERR_PEER_LOST,
                           TW_ERR_UNREACHABLE,
                           TW_ERR_REJECTED,
                           TW_ERR_TIMED_OUT,
                           TW_ERR_CLOSED,
                           TW_ERR_STALE,
                           TW_ERR_ADDRESS_IN_USE,
                           TW_ERR_AUTHENTICATION,
                           TW_ERR_VERSION,
                           TW_ERR_PROTOCOL,
                           TW_ERR_KEY_FILE,
                           TW_ERR_TRUNCATED,
                           TW_ERR_CANCELED,
                           TW_ERR_NO_MATCH,
                           TW_ERR_DEVICE};

TEST(Status, EveryCodeHasItsOwnNameAndText) {
  std::set<std::string> names;
  std::set<std::string> texts;
  for (const Status s : kAll) {
    EXPECT_STRNE(status_name(s), "unknown") << s;
    names.insert(status_name(s));
    texts.insert(status_text(s));
  }
  EXPECT_EQ(names.size(), std::size(kAll));
  EXPECT_EQ(texts.size(), std::size(kAll));
  EXPECT_STREQ(status_name(-9999), "unknown");
  EXPECT_NE(status_text(-9999), nullptr);
}

TEST(Status, FailKeepsATextPerThread) {
  set_last_error("");
  EXPECT_STREQ(last_error(), "");
  EXPECT_EQ(fail(TW_ERR_INVALID, "block %d of %s", 7, "nine"), TW_ERR_INVALID);
  EXPECT_STREQ(last_error(), "block 7 of nine");
  std::thread([] { EXPECT_STREQ(last_error(), ""); }).join();
  EXPECT_EQ(fail(TW_ERR_LIMIT, "%s", std::string(5000, 'x').c_str()), TW_ERR_LIMIT);
  EXPECT_GE(std::string(last_error()).size(), 1000u);
}

TEST(Status, ErrnoFindsItsClass) {
  EXPECT_EQ(fail_errno(EMFILE, "socket"), TW_ERR_NO_DESCRIPTORS);
  EXPECT_NE(std::string(last_error()).find("ulimit -n"), std::string::npos);
  EXPECT_EQ(fail_errno(ENOMEM, "mmap"), TW_ERR_NO_MEMORY);
  EXPECT_EQ(fail_errno(EADDRINUSE, "bind"), TW_ERR_ADDRESS_IN_USE);
  EXPECT_EQ(fail_errno(EBADF, "read"), TW_ERR_IO);
  EXPECT_NE(std::string(last_error()).find("read: "), std::string::npos);
}

TEST(Status, WhatAnotherProcessTellsIsOkOrAnErrorOfOurs) {
  for (const Status one : kAll) EXPECT_EQ(told_status(one), one > TW_OK ? Status{TW_ERR_PROTOCOL} : one);
  for (const int32_t one : {3, 77, INT32_MAX, -1, -100, INT32_MIN}) EXPECT_EQ(told_status(one), TW_ERR_PROTOCOL);
}

TEST(Status, AnOutcomeThatIsToldIsNeverACalls) {
  for (const Status one : kAll) {
    const bool calls =
        one == TW_ERR_HANDLE || one == TW_ERR_THREAD || one == TW_ERR_FORKED || one == TW_ERR_BUSY || one == TW_ERR_TIMED_OUT;
    EXPECT_EQ(told_outcome(one), one > TW_OK || calls ? Status{TW_ERR_PROTOCOL} : one);
    EXPECT_EQ(told_outcome(one, TW_ERR_INVALID), one > TW_OK || calls ? Status{TW_ERR_INVALID} : one);
  }
  for (const int64_t one :
       {int64_t{3}, INT64_MAX, int64_t{-1}, int64_t{-7777}, INT64_MIN, int64_t{TW_ERR_IO} - (int64_t{1} << 32)}) {
    EXPECT_EQ(told_outcome(one), TW_ERR_PROTOCOL) << one;
  }
}

}  // namespace
}  // namespace thalweg::impl
