// SPDX-License-Identifier: Apache-2.0
// More workers than requests can be named for.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "protocols/run_pool.hpp"
#include "thalweg/thalweg.h"

namespace thalweg::impl {
namespace {

TEST(WorkerLimit, OneMoreIsRefused) {
  tw_context* context = nullptr;
  ASSERT_EQ(tw_context_create(nullptr, &context), TW_OK) << tw_last_error();
  std::vector<RunPool*> taken;
  alignas(64) char nobody[64] = {};  // has no requests, so nobody looks at it
  while (RunPool* pool = RunPool::take(reinterpret_cast<Engine*>(nobody))) taken.push_back(pool);
  EXPECT_GT(taken.size(), 4000u);
  tw_worker* worker = nullptr;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(tw_worker_create(context, nullptr, &worker), TW_ERR_LIMIT);
    EXPECT_EQ(worker, nullptr);
    EXPECT_NE(std::string(tw_last_error()).find("workers are alive"), std::string::npos) << tw_last_error();
  }
  for (RunPool* pool : taken) pool->give_back();
  ASSERT_EQ(tw_worker_create(context, nullptr, &worker), TW_OK) << tw_last_error();
  tw_worker_destroy(worker);
  tw_context_destroy(context);
}

}  // namespace
}  // namespace thalweg::impl
