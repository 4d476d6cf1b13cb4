// SPDX-License-Identifier: Apache-2.0
// The thread that carries the steps of plans takes no signals of the program.
#include <gtest/gtest.h>

#include "../../fixtures/own_signals.hpp"
#include "core/context.hpp"
#include "plans/channel.hpp"  // which a proxy ends
#include "plans/proxy.hpp"

namespace thalweg::impl {
namespace {

TEST(ThreadSignals, StayWithTheProgram) {
  tw_context* context = nullptr;
  ASSERT_EQ(tw_context_create(nullptr, &context), TW_OK) << tw_last_error();
  ASSERT_TRUE(test::own_signals()) << "before there is a proxy";
  Proxy* proxy = nullptr;
  ASSERT_EQ(Proxy::of(*context, &proxy), TW_OK) << tw_last_error();
  EXPECT_TRUE(test::own_signals()) << "the proxy's thread took it";
  tw_context_destroy(context);
}

}  // namespace
}  // namespace thalweg::impl
