// SPDX-License-Identifier: Apache-2.0
// Memory that the library allocates is host memory without a driver being asked, while it is there.
#include <gtest/gtest.h>

#include "devices/host_ranges.hpp"
#include "memory/registry.hpp"

namespace thalweg::impl {
namespace {

TEST(HostSegments, AreThoseThatARegistryHasAllocated) {
  char* at = nullptr;
  {
    Registry registry(1);
    tw_memory* memory = nullptr;
    ASSERT_EQ(registry.allocate(5000, TW_MEMORY_ALL, false, &memory), TW_OK);
    at = reinterpret_cast<char*>(memory->address);
    EXPECT_TRUE(host_ranges.contain(at + 4999));
    ASSERT_EQ(registry.release(memory), TW_OK);
    EXPECT_FALSE(host_ranges.contain(at));
    ASSERT_EQ(registry.allocate(5000, TW_MEMORY_ALL, false, &memory), TW_OK);
    at = reinterpret_cast<char*>(memory->address);
    EXPECT_TRUE(host_ranges.contain(at));
  }
  EXPECT_FALSE(host_ranges.contain(at));  // with its registry
}

}  // namespace
}  // namespace thalweg::impl
