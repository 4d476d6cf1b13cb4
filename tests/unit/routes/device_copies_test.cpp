// SPDX-License-Identifier: Apache-2.0
// What moves the copies of an operation on a device.
#include <gtest/gtest.h>

#include "routes/device_copies.hpp"

namespace thalweg::impl::test {
namespace {

constexpr uint64_t kMuch = 2u << 20;

DeviceCopies one(uint64_t row, uint64_t rows = 1) { return {true, true, row, rows}; }

TEST(DeviceCopies, ManyShortRowsAreAKernels) {
  EXPECT_EQ(copy_by(one(kShortRow - 1, kManyRows), kMuch), CopyBy::kernel);
  EXPECT_EQ(copy_by(one(kShortRow, kManyRows), kMuch), CopyBy::resident);
  EXPECT_EQ(copy_by(one(kShortRow - 1, kManyRows - 1), kMuch), CopyBy::resident);
}

TEST(DeviceCopies, SeveralRectanglesAndMemoryOutOfReachAreTheEngines) {
  DeviceCopies copies = one(8, kManyRows);
  copies.kernels = false;
  EXPECT_EQ(copy_by(copies, kMuch), CopyBy::engine);
  copies = one(8, kManyRows);
  copies.one = false;
  EXPECT_EQ(copy_by(copies, kMuch), CopyBy::engine);
}

TEST(DeviceCopies, MuchThatGoesAgainstAnEngineIsAKernels) {
  for (const uint64_t rows : {uint64_t{1}, uint64_t{4}}) {
    DeviceCopies copies = one(kMuch / rows, rows);
    EXPECT_EQ(copy_by(copies, kMuch), CopyBy::resident);
    copies.against = true;
    EXPECT_EQ(copy_by(copies, kMuch), CopyBy::kernel);
    copies.waited_for = true;
    EXPECT_EQ(copy_by(copies, kMuch), CopyBy::resident) << "kernels that wait may hold all multiprocessors";
    copies.waited_for = false;
    copies.row -= 1;
    EXPECT_EQ(copy_by(copies, kMuch), CopyBy::resident);
  }
}

}  // namespace
}  // namespace thalweg::impl::test
