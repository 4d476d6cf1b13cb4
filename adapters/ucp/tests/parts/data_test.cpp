// SPDX-License-Identifier: Apache-2.0
// Room for payloads whose length a peer says: no user of ucp.h can send the lengths that matter here.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

#include "am.hpp"

using namespace thalweg::ucx;

namespace {

TEST(Data, ALengthThatWrapsIsRefused) {
  for (const size_t length : {SIZE_MAX, SIZE_MAX - 40, SIZE_MAX - 63, size_t{PTRDIFF_MAX}, size_t{PTRDIFF_MAX} - 40}) {
    for (const size_t alignment : {size_t{1}, size_t{64}, size_t{4096}}) EXPECT_EQ(make_data(length, alignment), nullptr);
  }
}

TEST(Data, IsAlignedAndFoundByItsAddress) {
  for (const size_t alignment : {size_t{1}, size_t{64}, size_t{4096}}) {
    AmData* const data = make_data(100, alignment);
    ASSERT_NE(data, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(address_of(*data)) % alignment, 0u);
    EXPECT_EQ(&data_of(address_of(*data)), data);
    std::memset(address_of(*data), 1, 100);
    free_data(*data);
  }
}

}  // namespace
