// SPDX-License-Identifier: Apache-2.0
// A program may leave main without ending its contexts, whose threads may be in the middle of a handshake then.
#include <gtest/gtest.h>
#include <thalweg/thalweg.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "../../fixtures/rooms.hpp"

namespace thalweg::tests {
namespace {

/// Eight connections are asked for; so many microseconds later the program leaves main.
[[noreturn]] void leave_after(int microseconds) {
  tw_context_options options = TW_CONTEXT_OPTIONS_INIT;
  options.job_key = "thalweg-unit-test-job-key-of-32-b";
  options.job_key_length = 32;
  tw_context* contexts[2];
  tw_worker* workers[2];
  for (int i = 0; i < 2; ++i) {
    if (tw_context_create(&options, &contexts[i]) != TW_OK || tw_worker_create(contexts[i], nullptr, &workers[i]) != TW_OK)
      std::exit(2);
  }
  unsigned char address[kAddressRoom];
  size_t length = sizeof address;
  if (tw_worker_address(workers[1], address, &length) != TW_OK) std::exit(3);
  for (int i = 0; i < 8; ++i) {
    tw_endpoint* endpoint = nullptr;
    if (tw_connect(workers[0], address, length, nullptr, &endpoint) != TW_OK) std::exit(4);
  }
  std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
  std::exit(0);
}

TEST(LeavingMainDeathTest, EndsTheProcessWithItsOwnCode) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (int microseconds = 0; microseconds < 1'500; microseconds += 100)
    EXPECT_EXIT(leave_after(microseconds), testing::ExitedWithCode(0), "") << microseconds;
}

}  // namespace
}  // namespace thalweg::tests
