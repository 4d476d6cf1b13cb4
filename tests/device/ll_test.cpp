// SPDX-License-Identifier: Apache-2.0
// Messages of the low-latency (LL) protocol by every thread group, in rooms that are never cleared, with stores that become
// visible newest first.
#include "tests/device/thread_groups.hpp"

namespace thalweg::device::twins {
namespace {

constexpr int kRounds = 40;
constexpr u64 kRooms[2] = {256, 8192};  // used in turn: each message answers the last one

struct Units {
  static constexpr size_t grain = 1;  // bytes
  static constexpr u64 data = kUnitData;
  template <class ThreadGroup, class M>
  static bool put(ThreadGroup group, const Window& w, u32 to, u64 room, const std::byte* from, u64 bytes, u32 generation, M m) {
    return put_ll(group, w, to, room, from, bytes, generation, m);
  }
  template <class ThreadGroup, class M>
  static bool take(ThreadGroup group, const Window& w, u64 room, std::byte* to, u64 bytes, u32 generation, M m) {
    return take_ll(group, w, room, to, bytes, generation, 0, m);
  }
};
/// That lines are seen as a whole is what the machine must do: here they are stored in order.
struct Lines {
  static constexpr size_t grain = 8;
  static constexpr u64 data = kLineData;
  template <class ThreadGroup, class M>
  static bool put(ThreadGroup group, const Window& w, u32 to, u64 room, const std::byte* from, u64 bytes, u32 generation, M) {
    if constexpr (ThreadGroup::whole_warps)
      return put_ll128(group, w, to, room, reinterpret_cast<const u64*>(from), bytes / 8, generation);
    return false;
  }
  template <class ThreadGroup, class M>
  static bool take(ThreadGroup group, const Window& w, u64 room, std::byte* to, u64 bytes, u32 generation, M) {
    if constexpr (ThreadGroup::whole_warps)
      return take_ll128(group, w, room, reinterpret_cast<u64*>(to), bytes / 8, generation);
    return false;
  }
};

/// Rank 0 sends on even rounds, rank 1 on odd ones; who receives sends next. Data of round i: sources[i] to targets[i].
template <class Form>
void ping_pong(const char* name, u32 first_generation) {
  Ranks ranks;
  for (auto& part : ranks.part) std::memset(part.data(), 0, Ranks::kLength);  // as fresh memory is
  std::vector<Area> sources, targets;
  std::vector<size_t> sizes;
  for (int i = 0; i < kRounds; ++i) {
    sizes.push_back((i % 5 == 0 ? Form::data * static_cast<size_t>(i) : random_source()() % 5000) / Form::grain * Form::grain);
    const size_t offset = random_source()() % 5 * Form::grain;
    sources.emplace_back(sizes.back(), offset);
    targets.emplace_back(sizes.back() + 32, random_source()() % 5 * Form::grain);
    targets.back().expect(0, sources.back().data(), sizes.back());
  }
  const auto rank = [&](u32 mine, auto group, auto m) {
    for (int i = 0; i < kRounds; ++i) {
      const auto k = static_cast<size_t>(i);
      const u32 generation = first_generation + static_cast<u32>(i);
      const bool sends = i % 2 == static_cast<int>(mine);
      const Window& window = ranks.window[mine];
      const bool ok = sends ? Form::put(group, window, 1 - mine, kRooms[i / 2 % 2], sources[k].data(), sizes[k], generation, m)
                            : Form::take(group, window, kRooms[i / 2 % 2], targets[k].data(), sizes[k], generation, m);
      if (!ok) return;
      group.sync();
    }
  };
  std::thread other([&] { by_thread_group(name, [&](auto group, auto m) { rank(1, group, m); }); });
  by_thread_group(name, [&](auto group, auto m) { rank(0, group, m); });
  other.join();
  EXPECT_EQ(ranks.watched[0].code(), 0);
  EXPECT_EQ(ranks.watched[1].code(), 0);
  for (size_t i = 0; i < targets.size(); ++i) EXPECT_TRUE(targets[i].check() && sources[i].check()) << "round " << i;
}

class LlAtGroup : public ::testing::TestWithParam<const char*> {};

TEST_P(LlAtGroup, Units) { ping_pong<Units>(GetParam(), 1); }
TEST_P(LlAtGroup, UnitsBeyondTheWrapOfGenerations) { ping_pong<Units>(GetParam(), ~u32{0} - 30); }
INSTANTIATE_TEST_SUITE_P(DeviceLl, LlAtGroup, ::testing::Values("thread", "warp", "block", "team"),
                         [](const auto& info) { return info.param; });

class LinesAtLevel : public ::testing::TestWithParam<const char*> {};

TEST_P(LinesAtLevel, PingPong) { ping_pong<Lines>(GetParam(), 1); }
INSTANTIATE_TEST_SUITE_P(DeviceLl, LinesAtLevel, ::testing::Values("warp", "block", "team"),
                         [](const auto& info) { return info.param; });

TEST(DeviceLl, ElementsAreReadInPlace) {
  Ranks ranks;
  constexpr u64 kCount = 101;
  float values[kCount];
  for (float& v : values) v = static_cast<float>(random_source()());
  ASSERT_TRUE(put_ll(Block(), ranks.window[0], 1, kRooms[0], values, kCount, 77));
  ASSERT_TRUE(await_ll<float>(Warp(), ranks.window[1], kRooms[0], kCount, 77));
  for (u64 i = 0; i < kCount; ++i) EXPECT_EQ(ll_at<float>(ranks.window[1], kRooms[0], i), values[i]);
}

TEST(DeviceLl, ValuesTravelWithoutMemory) {
  Ranks ranks;
  struct Three {
    float x, y, z;
  } three{};
  double number = 0;
  Word16* const there = pointer<Word16>(ranks.window[0], 1, kRooms[0], 1);
  const Word16* const here = pointer<Word16>(ranks.window[1], 1, kRooms[0], 1);
  put_ll_value(there, 2.75, 5);
  ASSERT_TRUE(take_ll_value(ranks.window[1].guard, here, &number, 5));
  EXPECT_EQ(number, 2.75);
  put_ll_value(there, Three{1, 2, 3}, 6);
  ASSERT_TRUE(take_ll_value(ranks.window[1].guard, here, &three, 6));
  EXPECT_TRUE(three.x == 1 && three.y == 2 && three.z == 3);
  ASSERT_TRUE(put_value(ranks.window[0], 1, 40, 7.5));
  std::memcpy(&number, ranks.part[1].data() + 40, 8);
  EXPECT_EQ(number, 7.5);
  EXPECT_EQ(pointer<Word16>(ranks.window[0], 1, kRooms[0] + 8, 1), nullptr) << "misaligned";
}

TEST(DeviceLl, BlocksShareAMessage) {
  Ranks ranks;
  Area source(4001, 1), target(4001, 2);
  target.expect(0, source.data(), source.size());
  for (u32 b = 0; b < 3; ++b) {
    ASSERT_TRUE(put_ll(Blocks(nullptr, b, 3), ranks.window[0], 1, kRooms[0], source.data(), source.size(), 9));
  }
  for (u32 b = 0; b < 2; ++b) {
    ASSERT_TRUE(take_ll(Blocks(nullptr, b, 2), ranks.window[1], kRooms[0], target.data(), target.size(), 9));
  }
  EXPECT_TRUE(target.check());
}

TEST(DeviceLl, AMissingUnitExpires) {
  Ranks ranks;
  std::memset(ranks.part[1].data(), 0, Ranks::kLength);
  ranks.window[1].guard.limit_ns = 1'000'000;
  u32 values[40] = {};
  ASSERT_TRUE(put_ll(Block(), ranks.window[0], 1, kRooms[0], values, 39, 5));  // of 40: one unit stays away
  EXPECT_FALSE(take_ll(Block(), ranks.window[1], kRooms[0], values, 40, 5, 12));
  EXPECT_EQ(ranks.watched[1].code(), kTimedOut);
  EXPECT_EQ(ranks.watched[1].failure.what, 12u);
  EXPECT_EQ(ranks.watched[1].failure.expected, 5u);
}

TEST(DeviceLl, RoomsAndLinesMustBeAligned) {
  double values[4] = {};
  for (const int which : {0, 1, 2}) {
    Ranks ranks;
    const Window& w = ranks.window[0];
    if (which == 0) {
      EXPECT_FALSE(put_ll(Block(), w, 1, 264, values, 4, 1));
    }
    if (which == 1) {
      EXPECT_FALSE(put_ll128(Block(), w, 1, 272, values, 4, 1));
    }
    if (which == 2) {
      EXPECT_FALSE(put_ll128(Block(), w, 1, 256, reinterpret_cast<char*>(values) + 4, 8, 1));
    }
    EXPECT_EQ(ranks.watched[0].code(), kMisaligned) << which;
    EXPECT_TRUE(ranks.part[1].check());
  }
}

}  // namespace
}  // namespace thalweg::device::twins
