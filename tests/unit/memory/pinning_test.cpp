// SPDX-License-Identifier: Apache-2.0
// Host memory that a thread of its own pins for an emulated device.
#include "memory/pinning.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "unit/devices/emulated_tools.hpp"

namespace thalweg::impl::test {
namespace {

TEST(PinningAhead, IsDoneInItsOwnTimeAndEndsWithItsLastHolder) {
  const auto device = emulated::open_device(0, emulated::Options());
  std::vector<std::byte> bytes(100'003);
  const auto address = reinterpret_cast<uint64_t>(bytes.data());
  const size_t before = device->holdings();
  auto ahead = PinningAhead::start(*device, address, bytes.size());
  Status status;
  while ((status = ahead->status()) == TW_IN_PROGRESS) {
  }
  EXPECT_EQ(status, TW_OK) << last_error();
  EXPECT_EQ(device->holdings(), before + 1);
  auto other = ahead;
  ahead.reset();
  EXPECT_EQ(device->holdings(), before + 1);
  other.reset();
  EXPECT_EQ(device->holdings(), before);
}

TEST(PinningAhead, SaysWhyItIsNot) {
  const auto device = emulated::open_device(0, emulated::Options());
  std::vector<std::byte> bytes(100'003);
  ASSERT_EQ(device->register_host(bytes.data() + 4096, 4096), TW_OK) << last_error();
  const auto ahead = PinningAhead::start(*device, reinterpret_cast<uint64_t>(bytes.data()), bytes.size());
  ahead->settle();
  set_last_error("another one");
  EXPECT_EQ(ahead->status(), TW_ERR_BUSY);
  EXPECT_NE(std::string(last_error()).find("pinned already"), std::string::npos) << last_error();
  EXPECT_EQ(device->unregister_host(bytes.data() + 4096), TW_OK);
}

/// Its result was not collected.
TEST(PinningAhead, IsWaitedForByWhoeverLetsGo) {
  const auto device = emulated::open_device(0, emulated::Options());
  std::vector<std::byte> bytes(100'003);
  const size_t before = device->holdings();
  for (int i = 0; i < 50; ++i) {
    PinningAhead::start(*device, reinterpret_cast<uint64_t>(bytes.data()), bytes.size()).reset();
    EXPECT_EQ(device->holdings(), before);
  }
}

}  // namespace
}  // namespace thalweg::impl::test
