// SPDX-License-Identifier: Apache-2.0
// What moves the copies of an operation on a device.
#include <gtest/gtest.h>

#include "routes/device_copies.hpp"

namespace thalweg::impl::test {
namespace {

constexpr uint64_t kMuch = 2u << 20;

DeviceCopies one(uint64_t row, uint64_t rows = 1) { return {true, true, row, rows}; }

DeviceCopies with_persistent(uint64_t row, uint64_t rows = 1) {
  DeviceCopies copies = one(row, rows);
  copies.persistent_most = 4096;
  return copies;
}

TEST(DeviceCopies, ManyShortRowsAreAKernels) {
  EXPECT_EQ(copy_by(one(kShortRow - 1, kManyRows), kMuch), CopyBy::kernel);
  EXPECT_EQ(copy_by(one(kShortRow, kManyRows), kMuch), CopyBy::engine);
  EXPECT_EQ(copy_by(one(kShortRow - 1, kManyRows - 1), kMuch), CopyBy::engine);
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
    EXPECT_EQ(copy_by(copies, kMuch), CopyBy::engine);
    copies.against = true;
    EXPECT_EQ(copy_by(copies, kMuch), CopyBy::kernel);
    copies.waited_for = true;
    EXPECT_EQ(copy_by(copies, kMuch), CopyBy::engine) << "kernels that wait may hold all multiprocessors";
    copies.waited_for = false;
    copies.row -= 1;
    EXPECT_EQ(copy_by(copies, kMuch), CopyBy::engine);
  }
}

TEST(DeviceCopies, SmallOnesAreThePersistentKernelsWhileItIsFree) {
  EXPECT_EQ(copy_by(with_persistent(4096), kMuch), CopyBy::persistent);
  EXPECT_EQ(copy_by(with_persistent(4097), kMuch), CopyBy::engine);
  EXPECT_EQ(copy_by(with_persistent(64, 2), kMuch), CopyBy::engine) << "one row";
  EXPECT_EQ(copy_by(one(8), kMuch), CopyBy::engine) << "the context asked for none";
  DeviceCopies copies = with_persistent(8);
  copies.persistent_free = false;
  EXPECT_EQ(copy_by(copies, kMuch), CopyBy::engine);
  copies = with_persistent(8);
  copies.kernels = false;
  EXPECT_EQ(copy_by(copies, kMuch), CopyBy::engine);
}

TEST(DeviceCopies, ManyBlocksAreGatheredByAKernel) {
  EXPECT_EQ(gather_by({5, 5, true}), CopyBy::kernel);
  EXPECT_EQ(gather_by({4, 4, true}), CopyBy::engine);
  EXPECT_EQ(gather_by({5, 80, true}), CopyBy::kernel);
  EXPECT_EQ(gather_by({5, 81, true}), CopyBy::engine) << "they have only a short length in common";
  EXPECT_EQ(gather_by({5, 5, false}), CopyBy::engine);
}

}  // namespace
}  // namespace thalweg::impl::test
