// SPDX-License-Identifier: Apache-2.0
// The threads of the library take no signals of the program.
#include <gtest/gtest.h>

#include <cstdint>

#include "../../fixtures/own_signals.hpp"
#include "thalweg/thalweg.h"

namespace {

TEST(ThreadSignals, StayWithTheProgram) {
  ASSERT_TRUE(thalweg::test::own_signals()) << "before there is a worker";
  tw_context* context = nullptr;
  ASSERT_EQ(tw_context_create(nullptr, &context), TW_OK) << tw_last_error();
  tw_worker_options options = TW_WORKER_OPTIONS_INIT;
  options.progress = TW_PROGRESS_THREAD;
  tw_worker* worker = nullptr;
  ASSERT_EQ(tw_worker_create(context, &options, &worker), TW_OK) << tw_last_error();
  EXPECT_TRUE(thalweg::test::own_signals()) << "the progress thread took it";
  tw_endpoint* endpoint = nullptr;
  ASSERT_EQ(tw_connect_to(worker, "localhost:1", nullptr, &endpoint), TW_OK) << tw_last_error();
  EXPECT_LT(tw_endpoint_wait(endpoint, 20'000'000'000), 0);
  EXPECT_TRUE(thalweg::test::own_signals()) << "the thread that looks names up took it";
  tw_worker_destroy(worker);
  tw_context_destroy(context);
}

}  // namespace
