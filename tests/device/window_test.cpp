// SPDX-License-Identifier: Apache-2.0
// Windows: Every function by every thread group, with stores that become visible as late and as badly ordered as is allowed.
#include <thalweg/thalweg.h>

#include "tests/device/thread_groups.hpp"

namespace thalweg::device::twins {
namespace {

constexpr u64 kFlag = 0, kAnswer = 8, kData = 128;
constexpr int kRounds = 25;

/// Rank 0 calls send(group, machine, round, source) by every thread group; rank 1 checks each round's data, made anew, and
/// answers.
template <class Send>
void exchange(const char* name, size_t most, u64 step, Send send, const std::function<void(Ranks&, int, Area&)>& expect) {
  Ranks ranks;
  ranks.set_word(1, kFlag, 0);
  ranks.set_word(0, kAnswer, 0);
  std::vector<Area> sources;
  for (int i = 0; i < kRounds; ++i) sources.emplace_back(most, random_source()() % 3 * 8);
  std::thread receiver([&] {
    for (int i = 0; i < kRounds; ++i) {
      const u64 value = (static_cast<u64>(i) + 1) * step;
      ASSERT_TRUE(wait(Thread(), ranks.window[1], kFlag, Compare::greater_equal, value));
      ranks.part[1].expect(kFlag, &value, 8);
      expect(ranks, i, sources[static_cast<size_t>(i)]);
      ASSERT_TRUE(ranks.part[1].check()) << name << ", round " << i;
      ASSERT_TRUE(signal(Thread(), ranks.window[1], 0, kAnswer, static_cast<u64>(i) + 1));
    }
  });
  by_thread_group(name, [&](auto group, LateMachine m) {
    for (int i = 0; i < kRounds; ++i) {
      send(group, m, ranks.window[0], i, sources[static_cast<size_t>(i)].data());
      const u64 value = static_cast<u64>(i) + 1;
      if (!wait(group, ranks.window[0], kAnswer, Compare::greater_equal, value, 0, m)) return;
    }
  });
  receiver.join();
  EXPECT_EQ(ranks.watched[0].code(), 0);
  EXPECT_EQ(ranks.watched[1].code(), 0);
  for (Area& source : sources) EXPECT_TRUE(source.check()) << "the source was changed";
}

/// Odd sizes and offsets of a round, the same on both sides.
size_t size_of(int round) { return round == 0 ? 0 : static_cast<size_t>(round) * 97 + static_cast<size_t>(round) % 3; }
size_t offset_of(int round) { return kData + static_cast<size_t>(round) * 5; }
void expect_put(Ranks& ranks, int round, Area& source) {
  ranks.part[1].expect(offset_of(round), source.data(), size_of(round));
}

TEST_P(ByThreadGroup, PutSignalSets) {
  const auto send = [](auto group, auto m, const Window& window, int i, const std::byte* from) {
    put_signal(group, window, 1, offset_of(i), from, size_of(i), kFlag, static_cast<u64>(i) + 1, SignalOp::set, m);
  };
  exchange(GetParam(), size_of(kRounds), 1, send, expect_put);
}

TEST_P(ByThreadGroup, PutThenSignalAdds) {
  const auto send = [](auto group, auto m, const Window& window, int i, const std::byte* from) {
    put(group, window, 1, offset_of(i), from, size_of(i), m);
    signal(group, window, 1, kFlag, 7, SignalOp::add, m);
  };
  exchange(GetParam(), size_of(kRounds), 7, send, expect_put);
}

TEST_P(ByThreadGroup, PutThenQuietThenAtomic) {
  const u64 blocks = std::string(GetParam()) == "blocks" ? kSharers : 1;
  const auto send = [](auto group, auto m, const Window& window, int i, const std::byte* from) {
    put(group, window, 1, offset_of(i), from, size_of(i), m);
    quiet(group, m);  // of Blocks: each block's own
    if (group.rank() == 0) fetch_add(window, 1, kFlag, u64{1}, m);
  };
  exchange(GetParam(), size_of(kRounds), blocks, send, expect_put);
}

TEST_P(ByThreadGroup, StridedPut) {
  constexpr u64 kWidth = 3, kFromPitch = 5, kToPitch = 4;  // elements of four bytes
  const auto send = [](auto group, auto m, const Window& window, int i, const std::byte* from) {
    const auto rows = static_cast<u64>(i);
    strided_put(group, window, 1, kData, kToPitch, reinterpret_cast<const float*>(from), kFromPitch, kWidth, rows, m);
    signal(group, window, 1, kFlag, rows + 1, SignalOp::set, m);
  };
  exchange(GetParam(), kFromPitch * 4 * kRounds, 1, send, [](Ranks& ranks, int i, Area& source) {
    for (u64 row = 0; row < static_cast<u64>(i); ++row) {
      ranks.part[1].expect(kData + row * kToPitch * 4, source.data() + row * kFromPitch * 4, kWidth * 4);
    }
  });
}

TEST_P(ByThreadGroup, GetReadsWhatAPeerHas) {
  Ranks ranks;
  for (int i = 1; i < kRounds; ++i) {
    Area target(size_of(i) + 16, 3);
    target.expect(0, ranks.part[1].data() + offset_of(i), size_of(i));
    by_thread_group(GetParam(), [&](auto group, LateMachine m) {
      EXPECT_TRUE(get(group, ranks.window[0], 1, offset_of(i), target.data(), size_of(i), m));
    });
    ASSERT_TRUE(target.check()) << i;
  }
  EXPECT_TRUE(ranks.part[1].check());
}

INSTANTIATE_TEST_SUITE_P(DeviceWindow, ByThreadGroup, ::testing::ValuesIn(kThreadGroups),
                         [](const auto& info) { return info.param; });

TEST(DeviceWindow, FetchAddLosesNothing) {
  Ranks ranks;
  ranks.set_word(1, 24, 1000);
  std::vector<std::thread> threads;
  std::atomic<u64> seen{0};
  for (u32 t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 2000; ++i) seen += fetch_add(ranks.window[t % 2], 1, 24, 1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  u64 sum = 0;
  for (u64 i = 0; i < 6000; ++i) sum += 1000 + i;
  EXPECT_EQ(seen, sum);
  EXPECT_TRUE(test(ranks.window[1], 24, Compare::equal, 7000));
  EXPECT_FALSE(test(ranks.window[1], 24, Compare::greater_equal, 7001));
  EXPECT_EQ(fetch_add(ranks.window[0], 1, 24, -7000LL), 7000) << "signed, 8 bytes";
}

TEST(DeviceWindow, CompareSwapMakesALock) {
  Ranks ranks;
  ranks.set_word(0, 16, 0);
  u64 plain = 0;
  std::vector<std::thread> threads;
  for (u32 t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        while (compare_swap(ranks.window[t], 0, 16, 0, 1) != 0) sched_yield();
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        ++plain;
        quiet(Thread());
        ASSERT_EQ(compare_swap(ranks.window[t], 0, 16, 1, 0), 1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(plain, 1000u);
}

TEST(DeviceWindow, RefusesWhatIsOutsideUnreachableOrMisaligned) {
  const auto refused = [](i64 code, auto call) {
    Ranks ranks;
    EXPECT_FALSE(call(ranks.window[0], ranks));
    EXPECT_EQ(ranks.watched[0].code(), code);
    EXPECT_NE(ranks.watched[0].poison, 0u);
    EXPECT_TRUE(ranks.part[0].check() && ranks.part[1].check());
  };
  double data[4] = {1, 2, 3, 4};
  const u64 last = Ranks::kLength - 16;
  refused(TW_ERR_OUT_OF_BOUNDS, [&](Window& w, Ranks&) { return put(Block(), w, 1, last, data, 3); });
  refused(TW_ERR_OUT_OF_BOUNDS, [&](Window& w, Ranks&) { return get(Block(), w, 1, ~u64{0} - 8, data, 2); });
  refused(TW_ERR_OUT_OF_BOUNDS, [&](Window& w, Ranks&) { return put(Block(), w, 2, 0, data, 1); });
  refused(TW_ERR_OUT_OF_BOUNDS, [&](Window& w, Ranks&) { return strided_put(Block(), w, 1, last - 8, 2, data, 1, 1, 3); });
  refused(TW_ERR_OUT_OF_BOUNDS, [&](Window& w, Ranks&) { return wait(Block(), w, last + 16, Compare::equal, 0); });
  refused(TW_ERR_MISALIGNED, [&](Window& w, Ranks&) { return signal(Block(), w, 1, 4, 1); });
  refused(TW_ERR_MISALIGNED, [&](Window& w, Ranks&) { return fetch_add(w, 1, 2, 1); });
  refused(TW_ERR_UNREACHABLE, [&](Window& w, Ranks& ranks) {
    ranks.bases[1] = nullptr;
    return put_signal(Block(), w, 1, 64, data, 2, 0, 1);
  });
}

}  // namespace
}  // namespace thalweg::device::twins
