// SPDX-License-Identifier: Apache-2.0
// Layouts against a naive reference that lists every byte's offset in the packed order.
#include "memory/layout.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <set>

namespace thalweg::impl {
namespace {

struct Release {
  void operator()(Layout* layout) const { release(layout); }
};
using Held = std::unique_ptr<Layout, Release>;
using Offsets = std::vector<int64_t>;

uint64_t fresh_seed() {
  const uint64_t seed = std::random_device{}();
  ::testing::Test::RecordProperty("seed", std::to_string(seed));
  return seed;
}

Offsets reference_strided(uint64_t block, const std::vector<Dimension>& dims) {
  Offsets starts{0};
  for (const Dimension& dim : dims) {  // dimension 0 fastest: later dimensions repeat what is there
    Offsets grown;
    for (uint64_t i = 0; i < dim.count; ++i) {
      for (int64_t s : starts) grown.push_back(s + static_cast<int64_t>(i) * dim.stride);
    }
    starts = grown;
  }
  Offsets all;
  for (int64_t s : starts) {
    for (uint64_t b = 0; b < block; ++b) all.push_back(s + static_cast<int64_t>(b));
  }
  return all;
}

struct Case {
  Held layout;
  Offsets offsets;
};

Case random_strided(std::mt19937_64& rng) {
  static constexpr uint64_t kBlocks[] = {1, 2, 3, 4, 7, 8, 12, 16, 32, 33};
  const uint64_t block = kBlocks[rng() % std::size(kBlocks)];
  const unsigned dimensions = rng() % 4;
  std::vector<Dimension> dims;
  std::vector<uint64_t> counts;
  std::vector<int64_t> strides;
  uint64_t extent = block;
  for (unsigned d = 0; d < dimensions; ++d) {
    const uint64_t count = 1 + rng() % 5;
    const int64_t gap = rng() % 2 ? 0 : static_cast<int64_t>(rng() % 9);
    int64_t stride = static_cast<int64_t>(extent) + gap;
    extent += static_cast<uint64_t>(stride) * (count - 1);
    if (rng() % 4 == 0) stride = -stride;
    dims.push_back({count, stride});
    counts.push_back(count);
    strides.push_back(stride);
  }
  Layout* layout = nullptr;
  EXPECT_EQ(make_strided(dimensions, block, counts.data(), strides.data(), &layout), TW_OK);
  return {Held(layout), reference_strided(block, dims)};
}

Case random_list(std::mt19937_64& rng) {
  std::vector<tw_piece> pieces;
  Offsets offsets;
  uint64_t at = rng() % 20;
  for (size_t i = 0, n = rng() % 12; i < n; ++i) {
    const uint64_t length = rng() % 40;
    pieces.push_back({at, length});
    at += length + (rng() % 2 ? 0 : rng() % 10);
  }
  if (rng() % 2) std::shuffle(pieces.begin(), pieces.end(), rng);
  for (const tw_piece& piece : pieces) {
    for (uint64_t b = 0; b < piece.length; ++b) offsets.push_back(static_cast<int64_t>(piece.offset + b));
  }
  Layout* layout = nullptr;
  EXPECT_EQ(make_list(pieces.data(), pieces.size(), &layout), TW_OK);
  return {Held(layout), offsets};
}

Case random_case(std::mt19937_64& rng) { return rng() % 3 ? random_strided(rng) : random_list(rng); }

// The largest random layout spans 33 bytes times almost 5 in each of three dimensions, upwards or downwards.
constexpr int64_t kOrigin = 8192;
constexpr size_t kArena = 2 * kOrigin;
std::vector<std::byte> random_bytes_vector(std::mt19937_64& rng, size_t n) {
  std::vector<std::byte> bytes(n);
  for (std::byte& b : bytes) b = static_cast<std::byte>(rng());
  return bytes;
}

TEST(Layout, ExtentAndBytesMatchTheReference) {
  std::mt19937_64 rng(fresh_seed());
  for (int i = 0; i < 3000; ++i) {
    const Case c = random_case(rng);
    ASSERT_EQ(c.layout->bytes, c.offsets.size());
    if (c.offsets.empty()) continue;
    ASSERT_EQ(c.layout->first, *std::min_element(c.offsets.begin(), c.offsets.end()));
    ASSERT_EQ(c.layout->last, *std::max_element(c.offsets.begin(), c.offsets.end()) + 1);
    ASSERT_FALSE(c.layout->overlaps);
  }
}

TEST(Layout, PackAndUnpackInRandomPartsWithSeek) {
  std::mt19937_64 rng(fresh_seed());
  for (int i = 0; i < 3000; ++i) {
    const Case c = random_case(rng);
    std::vector<std::byte> memory = random_bytes_vector(rng, kArena), packed(c.offsets.size());
    LayoutCursor cursor(memory.data() + kOrigin, c.layout.get(), c.layout->bytes);
    size_t done = 0;
    while (done < packed.size()) {
      const size_t n = 1 + rng() % (packed.size() - done);
      if (rng() % 2) cursor.seek(done);
      pack(cursor, packed.data() + done, n);
      done += n;
      ASSERT_EQ(cursor.remaining(), packed.size() - done);
    }
    for (size_t k = 0; k < packed.size(); ++k) ASSERT_EQ(packed[k], memory[kOrigin + c.offsets[k]]);

    std::vector<std::byte> expected = random_bytes_vector(rng, kArena), to = expected;
    const std::vector<std::byte> source = random_bytes_vector(rng, packed.size());
    for (size_t k = 0; k < source.size(); ++k) expected[kOrigin + c.offsets[k]] = source[k];
    LayoutCursor back(to.data() + kOrigin, c.layout.get(), c.layout->bytes);
    for (size_t at = 0; at < source.size();) {
      const size_t n = 1 + rng() % (source.size() - at);
      if (rng() % 2) back.seek(at);
      unpack(back, source.data() + at, n);
      at += n;
    }
    ASSERT_TRUE(to == expected);  // guard bytes included: nothing else was touched
  }
}

TEST(Layout, TransferBetweenDifferentLayouts) {
  std::mt19937_64 rng(fresh_seed());
  for (int i = 0; i < 3000; ++i) {
    const Case a = random_case(rng), b = random_case(rng);
    const size_t n = std::min(a.offsets.size(), b.offsets.size());
    const std::vector<std::byte> source = random_bytes_vector(rng, kArena);
    std::vector<std::byte> expected = random_bytes_vector(rng, kArena), to = expected;
    for (size_t k = 0; k < n; ++k) expected[kOrigin + b.offsets[k]] = source[kOrigin + a.offsets[k]];
    LayoutCursor from(const_cast<std::byte*>(source.data()) + kOrigin, a.layout.get(), n);
    LayoutCursor target(to.data() + kOrigin, b.layout.get(), n);
    const size_t first = n == 0 ? 0 : rng() % n;
    transfer(target, from, first);
    transfer(target, from, n);
    ASSERT_TRUE(to == expected);
    ASSERT_EQ(from.remaining(), 0u);
  }
}

TEST(Layout, WireFormRoundTripsAndKeepsTheOrder) {
  std::mt19937_64 rng(fresh_seed());
  for (int i = 0; i < 2000; ++i) {
    const Case c = random_case(rng);
    std::byte wire[4096];
    const size_t n = encode(*c.layout, wire, sizeof wire);
    ASSERT_GT(n, 0u);
    Layout* copy = nullptr;
    PeerBytes whole(wire, sizeof wire);
    ASSERT_EQ(decode(whole, &copy), TW_OK);
    const Held held(copy);
    ASSERT_EQ(sizeof wire - whole.left(), n);
    ASSERT_EQ(held->bytes, c.layout->bytes);
    std::vector<std::byte> memory = random_bytes_vector(rng, kArena), packed(c.offsets.size());
    LayoutCursor cursor(memory.data() + kOrigin, held.get(), held->bytes);
    pack(cursor, packed.data(), packed.size());
    for (size_t k = 0; k < packed.size(); ++k) ASSERT_EQ(packed[k], memory[kOrigin + c.offsets[k]]);
    PeerBytes cut(wire, rng() % n);
    ASSERT_NE(decode(cut, &copy), TW_OK);
  }
}

TEST(Layout, SubarrayInBothOrders) {
  std::mt19937_64 rng(fresh_seed());
  for (int i = 0; i < 500; ++i) {
    const unsigned n = 1 + rng() % 4;
    const size_t element = 1 + rng() % 9;
    const int order = rng() % 2 ? TW_ORDER_C : TW_ORDER_FORTRAN;
    uint64_t shape[8], extent[8], start[8], index[8] = {};
    for (unsigned d = 0; d < n; ++d) {
      shape[d] = 1 + rng() % 5;
      extent[d] = 1 + rng() % shape[d];
      start[d] = rng() % (shape[d] - extent[d] + 1);
    }
    Layout* raw = nullptr;
    ASSERT_EQ(make_subarray(n, shape, extent, start, element, order, &raw), TW_OK);
    const Held layout(raw);
    Offsets expected;
    for (bool more = true; more;) {
      uint64_t at = 0;
      for (unsigned k = 0; k < n; ++k) {
        const unsigned axis = order == TW_ORDER_C ? k : n - 1 - k;
        at = at * shape[axis] + start[axis] + index[axis];
      }
      for (size_t b = 0; b < element; ++b) expected.push_back(static_cast<int64_t>(at * element + b));
      more = false;
      for (unsigned k = 0; k < n && !more; ++k) {
        const unsigned axis = order == TW_ORDER_C ? n - 1 - k : k;
        more = ++index[axis] < extent[axis];
        if (!more) index[axis] = 0;
      }
    }
    ASSERT_EQ(layout->bytes, expected.size());
    std::vector<std::byte> memory(static_cast<size_t>(expected.back()) + 1);
    LayoutCursor cursor(memory.data(), layout.get(), layout->bytes);
    for (size_t k = 0; k < expected.size(); ++k) {
      ASSERT_EQ(static_cast<const std::byte*>(cursor.next(1).address) - memory.data(), expected[k]);
    }
  }
}

TEST(Layout, NormalisesToTheContiguousForm) {
  const uint64_t count[] = {4, 1, 3};
  const int64_t stride[] = {8, 999, 32};
  Layout* raw = nullptr;
  ASSERT_EQ(make_strided(3, 8, count, stride, &raw), TW_OK);
  const Held layout(raw);
  EXPECT_TRUE(layout->contiguous());
  EXPECT_EQ(layout->block, 96u);
  const tw_piece pieces[] = {{16, 8}, {24, 0}, {24, 4}};
  ASSERT_EQ(make_list(pieces, 3, &raw), TW_OK);
  const Held list(raw);
  EXPECT_TRUE(list->contiguous());
  EXPECT_EQ(list->start, 16);
  EXPECT_EQ(list->bytes, 12u);
}

TEST(Layout, OverflowsAreRefused) {
  Layout* raw = nullptr;
  const uint64_t huge[] = {uint64_t{1} << 40, uint64_t{1} << 40};
  const int64_t stride[] = {64, int64_t{1} << 50};
  EXPECT_EQ(make_strided(2, 8, huge, stride, &raw), TW_ERR_INVALID);
  const uint64_t two[] = {3};
  const int64_t far[] = {INT64_MIN};
  EXPECT_EQ(make_strided(1, 8, two, far, &raw), TW_ERR_INVALID);
  const tw_piece wrap[] = {{UINT64_MAX - 3, 8}};
  EXPECT_EQ(make_list(wrap, 1, &raw), TW_ERR_INVALID);
  const uint64_t shape[] = {UINT64_MAX, UINT64_MAX}, one[] = {1, 1}, start[] = {5, 5};
  EXPECT_EQ(make_subarray(2, shape, one, start, 8, TW_ORDER_C, &raw), TW_ERR_INVALID);
  const uint64_t small[] = {4, 4}, outside[] = {3, 3}, at[] = {2, 0};
  EXPECT_EQ(make_subarray(2, small, outside, at, 8, TW_ORDER_C, &raw), TW_ERR_INVALID);
}

TEST(Layout, CertainOverlapIsRefusedForReceivesOnly) {
  std::mt19937_64 rng(fresh_seed());
  int overlapping = 0;
  for (int i = 0; i < 4000; ++i) {
    const unsigned n = 1 + rng() % 2;
    const uint64_t block = 1 + rng() % 4;
    std::vector<Dimension> dims;
    uint64_t count[2];
    int64_t stride[2];
    for (unsigned d = 0; d < n; ++d) {
      count[d] = 1 + rng() % 5;
      stride[d] = static_cast<int64_t>(rng() % 31) - 15;
      dims.push_back({count[d], stride[d]});
    }
    Layout* raw = nullptr;
    ASSERT_EQ(make_strided(n, block, count, stride, &raw), TW_OK);
    const Held layout(raw);
    const Offsets all = reference_strided(block, dims);
    const bool really = std::set<int64_t>(all.begin(), all.end()).size() != all.size();
    if (layout->overlaps) {
      ASSERT_TRUE(really);
      ASSERT_EQ(check_receive(layout.get()), TW_ERR_INVALID);
      ++overlapping;
    }
    if (layout->dimensions <= 1) {
      ASSERT_EQ(layout->overlaps, really);
    }
  }
  EXPECT_GT(overlapping, 100);
}

TEST(Layout, HostileWireFormsAreRefused) {
  std::mt19937_64 rng(fresh_seed());
  for (int i = 0; i < 20000; ++i) {
    std::byte wire[200];
    for (std::byte& b : wire) b = static_cast<std::byte>(rng());
    wire[0] = std::byte{1};
    wire[1] = static_cast<std::byte>(rng() % 2);
    wire[2] = static_cast<std::byte>(rng() % 10);
    wire[3] = std::byte{0};
    Layout* raw = nullptr;
    PeerBytes some(wire, rng() % sizeof wire);
    if (decode(some, &raw) == TW_OK) {
      const Held layout(raw);
      ASSERT_LE(layout->first, layout->last);
      ASSERT_LE(layout->bytes, uint64_t{1} << 62);
    }
  }
}

// Behind the last block of a row the position is a step outside of the layout: here outside of the address space, or farther than
// a signed number says. The sanitizers of `make check` tell.
TEST(Layout, StepsMayLeaveTheAddressSpaceBetweenBlocks) {
  constexpr int64_t kFar = int64_t{1} << 62;
  struct {
    int64_t start;
    Dimension dimension[2];
    Offsets offsets;
  } const cases[] = {
      {0, {{2, -kFar}, {2, 1}}, {0, -kFar, 1, 1 - kFar}},
      {-kFar, {{2, INT64_MAX - 1}, {2, 1}}, {-kFar, kFar - 2, 1 - kFar, kFar - 1}},
  };
  constexpr uintptr_t kBase = (uintptr_t{1} << 62) + 4096;
  for (const auto& one : cases) {
    Layout layout;
    ASSERT_EQ(fill_strided(layout, 2, one.start, 1, one.dimension), TW_OK);
    LayoutCursor walking(reinterpret_cast<std::byte*>(kBase), &layout, layout.bytes), jumping = walking, skipping = walking;
    for (size_t i = 0; i < one.offsets.size(); ++i) {
      std::byte* const expected = reinterpret_cast<std::byte*>(kBase + static_cast<uintptr_t>(one.offsets[i]));
      jumping.seek(i);
      EXPECT_EQ(jumping.next(1).address, expected);
      EXPECT_EQ(skipping.rows().address, expected);
      skipping.skip_rows(1);
      EXPECT_EQ(walking.next(1).address, expected);
    }
    EXPECT_EQ(walking.remaining(), 0u);
  }
}

}  // namespace
}  // namespace thalweg::impl
