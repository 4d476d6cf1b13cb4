// SPDX-License-Identifier: Apache-2.0
// Copies between sides of every shape, by any number of threads and blocks, word by word and by whole runs.
#include "tests/device/area.hpp"
#include "tests/device/shapes.hpp"
#include "tests/device/twins.hpp"

namespace thalweg::device::twins {
namespace {

/// In parts, each by every thread, one after the other, in a random direction: there is nothing they wait for.
template <class M>
void copy_by(M m, u32 threads, u32 parts, const Side& to, const Side& from, size_t bytes) {
  std::vector<u64> borders = {0, bytes};
  for (u32 i = 1; i < parts; ++i) borders.push_back(draw(bytes + 1) / 16 * 16);
  std::sort(borders.begin(), borders.end());
  const bool backwards = draw(2) == 0;
  for (u32 i = 0; i < threads * parts; ++i) {
    const u32 k = backwards ? threads * parts - 1 - i : i;
    copy_part(m, k % threads, threads, to, from, bytes, {borders[k / threads], borders[k / threads + 1]});
  }
}

template <class M>
void round_trip(M m) {
  const size_t bytes = draw(4) == 0 ? draw(6000) : draw(200);
  Area target(60000), source(60000);
  const Shape to = any_shape(reinterpret_cast<u64>(target.data()), bytes),
              from = any_shape(reinterpret_cast<u64>(source.data()), bytes);
  for (size_t i = 0; i < bytes; ++i) target.expect(to.offsets[i], source.data() + from.offsets[i], 1);
  constexpr u32 kThreads[] = {1, 7, 32, 33, 96, 512};
  const u32 threads = kThreads[draw(6)], parts = 1 + static_cast<u32>(draw(4));
  copy_by(m, threads, parts, to.side, from.side, bytes);
  ASSERT_TRUE(target.check()) << bytes << " bytes in " << parts << " parts by " << threads;
  ASSERT_TRUE(source.check());
}

TEST(DeviceCopy, WordByWordBetweenAllShapes) {
  for (int i = 0; i < 400; ++i) ASSERT_NO_FATAL_FAILURE(round_trip(WordMachine<32>()));
}

TEST(DeviceCopy, WordByWordWhateverTheWidthOfAWarp) {
  for (int i = 0; i < 100; ++i) ASSERT_NO_FATAL_FAILURE(round_trip(WordMachine<1>()));
  for (int i = 0; i < 100; ++i) ASSERT_NO_FATAL_FAILURE(round_trip(WordMachine<16>()));
  for (int i = 0; i < 100; ++i) ASSERT_NO_FATAL_FAILURE(round_trip(WordMachine<64>()));
}

TEST(DeviceCopy, ByWholeRunsBetweenAllShapes) {
  for (int i = 0; i < 200; ++i) ASSERT_NO_FATAL_FAILURE(round_trip(DirectMachine()));
}

TEST(DeviceCopy, ContiguousAtEveryAlignment) {
  for (size_t to = 0; to < 17; ++to) {
    for (size_t from = 0; from < 17; ++from) {
      for (const size_t bytes : {0, 1, 3, 4, 8, 12, 15, 16, 31, 64, 100, 128, 257, 512, 520, 1000, 1040}) {
        Area target(bytes + 32, to), source(bytes + 32, from);
        target.expect(0, source.data(), bytes);
        copy_by(WordMachine<32>(), 1 + static_cast<u32>(draw(70)), 1, contiguous_at(target.data()),
                contiguous_at(source.data()), bytes);
        ASSERT_TRUE(target.check()) << bytes << " bytes from " << from << " to " << to;
      }
    }
  }
}

TEST(DeviceCopy, TheWordDividesEverything) {
  alignas(16) static double grid[64 * 64];
  EXPECT_EQ(common_word(contiguous_at(grid), rows_at(grid, 1, 64), 64 * 8), 8u);
  EXPECT_EQ(common_word(contiguous_at(grid), rows_at(grid, 2, 64), 64 * 8), 16u);
  EXPECT_EQ(common_word(rows_at(grid, 2, 5), slices_at(grid, 2, 4, 64, 1024), 64 * 8), 8u);
  EXPECT_EQ(common_word(contiguous_at(grid), rows_at(reinterpret_cast<char*>(grid) + 4, 8, 64), 640), 4u);
  EXPECT_EQ(common_word(contiguous_at(grid), rows_at(reinterpret_cast<char*>(grid), 3, 64), 300), 1u);
  EXPECT_EQ(common_word(contiguous_at(grid), rows_at(grid, 128, 200), 4096), 0u) << "long rows are walked along";
}

}  // namespace
}  // namespace thalweg::device::twins
