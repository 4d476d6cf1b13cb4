// SPDX-License-Identifier: Apache-2.0
// Lengths that no memory has: refused by name where a plan, a queue or a kernel's end is given one, before anything is divided by them.
#include "channel_ends.hpp"

namespace thalweg::tests {
namespace {

class Lengths : public ChannelEnds {};
INSTANTIATE_TEST_SUITE_P(Ways, Lengths, testing::Values(kWays[0], kWays[2]), [](const auto& info) { return info.param.name; });

TEST_P(Lengths, ThatNoAddressSpaceHasAreRefused) {
  unsigned char *const from = memory(a, 64), *const to = memory(a, 64);
  tw_plan* const steps = plan(a);
  tw_queue* const on = queue(a);
  for (const size_t length : {(size_t{1} << 60) + 1, ~size_t{0} / 2, ~size_t{0}}) {
    SCOPED_TRACE(length);
    EXPECT_EQ(tw_plan_send(steps, a.endpoint, from, length, 1, nullptr, nullptr), TW_ERR_INVALID);
    expect_text({"address space", "length"});
    EXPECT_EQ(tw_plan_recv(steps, a.endpoint, to, length, 1, nullptr, nullptr), TW_ERR_INVALID);
    expect_text({"address space", "length"});
    EXPECT_EQ(tw_plan_copy(steps, to, from, length, nullptr, nullptr), TW_ERR_INVALID);
    expect_text({"address space", "length"});
    EXPECT_EQ(tw_send_on(on, a.endpoint, from, length, 1, nullptr), TW_ERR_INVALID);
    EXPECT_EQ(tw_copy_on(on, to, from, length, nullptr), TW_ERR_INVALID);
    Bound recv;
    EXPECT_EQ(bind_recv(1, {{b.memory("host", 64), length, nullptr}}, &recv), TW_ERR_INVALID);
    expect_text({"address space", "length"});
  }
}

/// What is there is seen by a run only: preparing one divides nothing by it.
TEST_P(Lengths, LongCopiesArePrepared) {
  unsigned char *const from = memory(a, 64), *const to = memory(a, 64);
  for (const unsigned bits : {45u, 46u, 50u, 60u}) {
    SCOPED_TRACE(bits);
    tw_plan* const copies = plan(a);
    ASSERT_EQ(tw_plan_copy(copies, to, from, size_t{1} << bits, nullptr, nullptr), TW_OK) << tw_last_error();
    EXPECT_EQ(tw_plan_prepare(copies, kLong), TW_OK) << tw_last_error();
  }
}

}  // namespace
}  // namespace thalweg::tests
