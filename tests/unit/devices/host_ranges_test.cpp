// SPDX-License-Identifier: Apache-2.0
// Memory of which no driver is asked.
#include "devices/host_ranges.hpp"

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <set>
#include <thread>
#include <vector>

namespace thalweg::impl {
namespace {

char in_static_data[100] = {1};

struct HostRangesTest : ::testing::Test {
  HostRangesTest() { ranges.find(); }
  HostRanges ranges;
};

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // their malloc does not use the heap
TEST_F(HostRangesTest, ContainTheHeapThoughItGrows) {
  std::vector<std::unique_ptr<char[]>> small;
  for (int i = 0; i < 10000; ++i) small.push_back(std::make_unique<char[]>(1000));
  for (const auto& one : small) ASSERT_TRUE(ranges.contain(one.get()));
  EXPECT_TRUE(ranges.contain(small[5000].get() + 999));
  EXPECT_FALSE(ranges.contain(sbrk(0)));
}

/// This thread's malloc uses the heap, and moves its end while another one reads where it is.
TEST_F(HostRangesTest, FindTheHeapThoughItsEndMoves) {
  const auto kept = std::make_unique<char[]>(100);
  ASSERT_TRUE(ranges.contain(kept.get()));
  std::atomic<bool> done{false};
  int unknown = 0;
  std::thread finder([&] {
    for (int i = 0; i < 300; ++i) {
      HostRanges own;
      own.find();
      unknown += !own.contain(kept.get());
    }
    done = true;
  });
  std::set<void*> ends;
  while (!done) {
    std::vector<std::unique_ptr<char[]>> large(64);
    for (auto& one : large) one.reset(new char[100'000]);
    ends.insert(sbrk(0));
    large.clear();
    malloc_trim(0);
    ends.insert(sbrk(0));
  }
  finder.join();
  EXPECT_EQ(unknown, 0);
  EXPECT_GT(ends.size(), 1u) << "the end did not move";
}
#endif

/// Nor where no heap is known.
TEST_F(HostRangesTest, ContainNothingBeforeTheyAreFound) {
  const HostRanges none;
  EXPECT_FALSE(none.contain(reinterpret_cast<void*>(~uintptr_t{0})));
  EXPECT_FALSE(none.contain(in_static_data));
}

TEST_F(HostRangesTest, ContainStaticDataAndTheStackThatIsInUse) {
  char here[100];
  EXPECT_TRUE(ranges.contain(in_static_data));
  EXPECT_TRUE(ranges.contain(in_static_data + 99));
  EXPECT_TRUE(ranges.contain(here));
  EXPECT_TRUE(ranges.contain(here + 99));
  EXPECT_FALSE(ranges.contain(here - (1 << 20)));  // below the frames: nobody's
}

TEST_F(HostRangesTest, ContainNothingElse) {
  constexpr size_t kLength = 1 << 20;
  auto* const mapped = static_cast<char*>(mmap(nullptr, kLength, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(mapped, MAP_FAILED);
  EXPECT_FALSE(ranges.contain(mapped));
  EXPECT_FALSE(ranges.contain(mapped + kLength - 1));
  munmap(mapped, kLength);
  EXPECT_FALSE(ranges.contain(nullptr));
  EXPECT_FALSE(ranges.contain(reinterpret_cast<void*>(uintptr_t(1) << 33)));
  EXPECT_FALSE(ranges.contain(reinterpret_cast<void*>(~uintptr_t(0))));
}

TEST_F(HostRangesTest, ContainNoStackOfAnotherThread) {
  char mine[16];
  bool own = true, of_main = true;
  std::thread([&] {
    char here[100];
    own = ranges.contain(here);
    of_main = ranges.contain(mine);
  }).join();
  EXPECT_FALSE(own);
  EXPECT_FALSE(of_main);  // asked, as all else: this thread cannot know how much of it is in use
}

TEST_F(HostRangesTest, ContainSegmentsUntilTheyAreRemoved) {
  char* const at = reinterpret_cast<char*>(uintptr_t{0x7f1234567000});
  ranges.add(at, 3 * 4096 + 1);
  EXPECT_TRUE(ranges.contain(at));
  EXPECT_TRUE(ranges.contain(at + 3 * 4096));
  EXPECT_TRUE(ranges.contain(at + 4 * 4096 - 1));  // the rest of its last page
  EXPECT_FALSE(ranges.contain(at + 4 * 4096));
  EXPECT_FALSE(ranges.contain(at - 1));
  ranges.remove(at, 3 * 4096 + 1);
  EXPECT_FALSE(ranges.contain(at));
}

TEST_F(HostRangesTest, HaveRoomForSomeSegmentsAndForgetTheRest) {
  const auto at = [](unsigned i) { return reinterpret_cast<char*>((uintptr_t{0x7f0000000000}) + i * (uintptr_t{1} << 30)); };
  for (unsigned i = 0; i < 20; ++i) ranges.add(at(i), 4096);
  EXPECT_TRUE(ranges.contain(at(0)));
  EXPECT_TRUE(ranges.contain(at(7)));
  EXPECT_FALSE(ranges.contain(at(8)));
  for (unsigned i = 0; i < 20; ++i) ranges.remove(at(i), 4096);
  for (unsigned i = 0; i < 20; ++i) EXPECT_FALSE(ranges.contain(at(i)));
  ranges.add(at(19), 4096);
  EXPECT_TRUE(ranges.contain(at(19)));
}

TEST_F(HostRangesTest, TakeNoSegmentThatAWordCannotHold) {
  ranges.add(reinterpret_cast<void*>(uintptr_t{1} << 55), 4096);
  EXPECT_FALSE(ranges.contain(reinterpret_cast<void*>(uintptr_t{1} << 55)));
  EXPECT_FALSE(ranges.contain(nullptr));
  ranges.add(reinterpret_cast<void*>(uintptr_t{0x7f1234567000}), size_t{1} << 45);
  EXPECT_FALSE(ranges.contain(reinterpret_cast<void*>(uintptr_t{0x7f1234567000})));
}

}  // namespace
}  // namespace thalweg::impl
