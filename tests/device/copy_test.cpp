// SPDX-License-Identifier: Apache-2.0
// Copies between sides of every shape, by any number of threads and blocks, word by word and by whole runs.
#include "tests/device/area.hpp"
#include "tests/device/twins.hpp"

namespace thalweg::device::twins {
namespace {

/// A side that somebody else than the code under test knows how to walk: the address of each packed byte.
struct Shape {
  Side side{};
  std::vector<size_t> offsets;  // from the area's start
  std::vector<Piece> pieces;
};

size_t draw(size_t below) { return random_source()() % below; }

Shape contiguous_shape(Area& area, size_t bytes) {
  Shape shape;
  const size_t at = draw(32);
  shape.side = contiguous_at(area.data() + at);
  for (size_t i = 0; i < bytes; ++i) shape.offsets.push_back(at + i);
  return shape;
}

/// One to three dimensions, gaps of multiples of `unit` between blocks.
Shape strided_shape(Area& area, size_t bytes, size_t unit) {
  Shape shape;
  const size_t block = unit * (1 + draw(draw(3) == 0 ? 200 : 5)), dimensions = 1 + draw(3);
  const size_t counts[2] = {1 + draw(5), 1 + draw(4)};
  size_t stride[3] = {block + unit * draw(3), 0, 0};
  stride[1] = stride[0] * counts[0] + unit * draw(3);
  stride[2] = stride[1] * counts[1] + unit * draw(3);
  const size_t at = unit * draw(4);
  shape.side = {reinterpret_cast<u64>(area.data() + at), block, {0, 0}, {0, 0, 0}, nullptr, 0};
  for (size_t d = 0; d < dimensions; ++d) shape.side.stride[d] = static_cast<i64>(stride[d]);
  for (size_t d = 0; d + 1 < dimensions; ++d) shape.side.count[d] = counts[d];
  for (size_t i = 0; i < bytes; ++i) {
    size_t index = i / block, offset = at + i % block;
    for (size_t d = 0; d < dimensions; ++d) {
      const size_t here = d + 1 < dimensions ? index % counts[d] : index;
      offset += here * stride[d];
      index = d + 1 < dimensions ? index / counts[d] : 0;
    }
    shape.offsets.push_back(offset);
  }
  return shape;
}

Shape list_shape(Area& area, size_t bytes) {
  Shape shape;
  for (size_t packed = 0, at = draw(16); packed < bytes;) {
    const size_t length = std::min(bytes - packed, 1 + draw(draw(3) == 0 ? 900 : 40));
    shape.pieces.push_back({packed, reinterpret_cast<u64>(area.data() + at)});
    for (size_t i = 0; i < length; ++i) shape.offsets.push_back(at + i);
    packed += length;
    at += length + draw(20);
  }
  shape.side = {0, 0, {0, 0}, {0, 0, 0}, shape.pieces.data(), shape.pieces.size()};
  return shape;
}

Shape any_shape(Area& area, size_t bytes) {
  const size_t unit = size_t{1} << draw(5);
  switch (draw(3)) {
    case 0:
      return contiguous_shape(area, bytes);
    case 1:
      return strided_shape(area, bytes, unit);
    default:
      return list_shape(area, bytes == 0 ? 1 : bytes);
  }
}

/// Every block's every thread, one after the other, in a random direction: there is nothing they wait for.
template <class M>
void copy_by(M m, u32 threads, u32 blocks, const Side& to, const Side& from, size_t bytes) {
  const bool backwards = draw(2) == 0;
  for (u32 i = 0; i < threads * blocks; ++i) {
    const u32 k = backwards ? threads * blocks - 1 - i : i;
    copy_part(m, k % threads, threads, to, from, bytes, Blocks(nullptr, k / threads, blocks).part(bytes));
  }
}

template <class M>
void round_trip(M m) {
  const size_t bytes = draw(4) == 0 ? draw(6000) : draw(200);
  Area target(60000), source(60000);
  const Shape to = any_shape(target, bytes), from = any_shape(source, bytes);
  for (size_t i = 0; i < bytes; ++i) target.expect(to.offsets[i], source.data() + from.offsets[i], 1);
  constexpr u32 kThreads[] = {1, 7, 32, 33, 96, 512};
  const u32 threads = kThreads[draw(6)], blocks = 1 + static_cast<u32>(draw(4));
  copy_by(m, threads, blocks, to.side, from.side, bytes);
  ASSERT_TRUE(target.check()) << bytes << " bytes by " << blocks << " blocks of " << threads;
  ASSERT_TRUE(source.check());
}

TEST(DeviceCopy, WordByWordBetweenAllShapes) {
  for (int i = 0; i < 400; ++i) ASSERT_NO_FATAL_FAILURE(round_trip(WordMachine()));
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
        copy_by(WordMachine(), 1 + static_cast<u32>(draw(70)), 1, contiguous_at(target.data()), contiguous_at(source.data()),
                bytes);
        ASSERT_TRUE(target.check()) << bytes << " bytes from " << from << " to " << to;
      }
    }
  }
}

TEST(DeviceCopy, PartsCoverEveryByteOnceInWholeLines) {
  for (int i = 0; i < 2000; ++i) {
    const u64 bytes = draw(20000);
    const u32 blocks = 1 + static_cast<u32>(draw(40));
    u64 at = 0;
    for (u32 b = 0; b < blocks; ++b) {
      const Part part = Blocks(nullptr, b, blocks).part(bytes);
      ASSERT_EQ(part.begin, at);
      ASSERT_TRUE(part.end == bytes || part.end % 128 == 0);
      at = part.end;
    }
    ASSERT_EQ(at, bytes);
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
