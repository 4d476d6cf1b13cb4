// SPDX-License-Identifier: Apache-2.0
// Ranges of blocks and the wire form of their keys.
#include "memory/blocks.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace thalweg::impl {
namespace {

BlockRange range(uint64_t stride, uint64_t count, uint32_t region = 0) {
  BlockRange made;
  made.stride = stride;
  made.count = count;
  made.region = region;
  return made;
}

TEST(Blocks, NumbersGoOnFromRangeToRange) {
  std::mt19937_64 random(std::random_device{}());
  BlockSpace space;
  space.length = 1 + random() % 100;
  std::vector<uint64_t> places;
  for (uint32_t i = 0; i < 300; ++i) {
    const uint64_t stride = space.length + random() % 50, count = 1 + random() % 40, offset = random() % 1000;
    ASSERT_EQ(space.add(range(stride, count, i), offset, UINT64_MAX), TW_OK);
    for (uint64_t k = 0; k < count; ++k) places.push_back(offset + k * stride);
  }
  ASSERT_EQ(space.count, places.size());
  const BlockRange* hint = nullptr;
  for (int i = 0; i < 20'000; ++i) {
    const uint64_t number = i < 10'000 ? random() % places.size() : static_cast<uint64_t>(i) % places.size();
    ASSERT_EQ(BlockSpace::place(space.range_of(number, hint), number), places[number]);
  }
}

TEST(Blocks, RangesThatMakeNoSenseAreRefused) {
  BlockSpace space;
  space.length = 100;
  EXPECT_EQ(space.add(range(99, 2), 0, 1000), TW_ERR_INVALID) << "overlapping";
  EXPECT_EQ(space.add(range(100, 0), 0, 1000), TW_ERR_INVALID);
  EXPECT_EQ(space.add(range(100, 10), 1, 1000), TW_ERR_OUT_OF_BOUNDS);
  EXPECT_EQ(space.add(range(UINT64_MAX, 3), 0, 1000), TW_ERR_OUT_OF_BOUNDS);
  EXPECT_EQ(space.add(range(100, 1), UINT64_MAX, UINT64_MAX), TW_ERR_OUT_OF_BOUNDS);
  EXPECT_EQ(space.add(range(100, BlockSpace::kBlocks + 1), 0, UINT64_MAX), TW_ERR_LIMIT);
  EXPECT_EQ(space.add(range(100, 10), 0, 1000), TW_OK);
  EXPECT_EQ(space.add(range(100, BlockSpace::kBlocks - 9), 0, UINT64_MAX), TW_ERR_LIMIT);
  EXPECT_EQ(space.add(range(0, 10), 0, 1000), TW_OK);
  EXPECT_EQ(space.ranges[1].stride, 100u);
  EXPECT_EQ(space.count, 20u);
  for (size_t i = 2; i < BlockSpace::kRanges; ++i) ASSERT_EQ(space.add(range(0, 1), 0, 1000), TW_OK);
  EXPECT_EQ(space.add(range(0, 1), 0, 1000), TW_ERR_LIMIT);
}

TEST(Blocks, AKeyRoundTripsAndRefusesDamage) {
  Registry registry(77);
  std::vector<std::byte> bytes(100'000);
  BlockKey key;
  key.space.length = 64;
  for (int i = 0; i < 3; ++i) {
    tw_memory* memory = nullptr;
    ASSERT_EQ(registry.register_memory(bytes.data() + i * 30'000, 30'000, 0, &memory), TW_OK);
    KeyBody body{};
    ASSERT_EQ(registry.export_range(memory, 0, 30'000, TW_MEMORY_READ, &body), TW_OK);
    key.keys.push_back(body);
    ASSERT_EQ(key.space.add(range(100, 200, static_cast<uint32_t>(i)), 500, 30'000), TW_OK);
    ASSERT_EQ(key.space.add(range(64, 7, static_cast<uint32_t>(i)), 29'000, 30'000), TW_OK);
  }
  std::vector<std::byte> wire(block_key_length(3, 6));
  ASSERT_EQ(write_block_key(key, wire.data()), TW_OK);
  BlockKey back;
  ASSERT_EQ(parse_block_key(wire.data(), wire.size(), &back), TW_OK);
  ASSERT_EQ(back.space.ranges.size(), 6u);
  EXPECT_EQ(back.space.count, key.space.count);
  EXPECT_EQ(std::memcmp(back.keys.data(), key.keys.data(), 3 * sizeof(KeyBody)), 0);
  for (size_t i = 0; i < 6; ++i) {
    const BlockRange &one = back.space.ranges[i], &other = key.space.ranges[i];
    EXPECT_TRUE(one.begin == other.begin && one.stride == other.stride && one.count == other.count &&
                one.first == other.first && one.region == other.region);
  }
  for (size_t cut = 0; cut < wire.size(); ++cut) ASSERT_NE(parse_block_key(wire.data(), cut, &back), TW_OK) << cut;
  for (size_t bit = 0; bit < 24 * 8; ++bit) {  // every bit of the head
    std::vector<std::byte> bad = wire;
    bad[bit / 8] ^= std::byte{1} << bit % 8;
    const bool length = bit >= 16 * 8;
    BlockKey other;
    const Status s = parse_block_key(bad.data(), bad.size(), &other);
    if (!length) {
      ASSERT_NE(s, TW_OK) << bit;
    } else if (s == TW_OK) {
      ASSERT_LT(other.space.length, 64u) << "a longer block fits into these ranges?";
    }
  }
}

}  // namespace
}  // namespace thalweg::impl
