// SPDX-License-Identifier: Apache-2.0
// Blocking collectives that are like the one before them: in all that may differ, the result is that call's own.
#include "collectives/repeated_call.hpp"

#include <cstdint>
#include <random>
#include <vector>

#include "collectives/collectives.hpp"
#include "group_ranks.hpp"

namespace thalweg::test {

using impl::CollectiveKind;
namespace {

bool remembered(const GroupRank& rank, CollectiveKind kind) { return rank.group->collectives->repeated(kind) != nullptr; }

/// Buffers with a word before and behind, that no call touches.
struct Guarded {
  explicit Guarded(size_t count, int64_t value = 0) : words(count + 2, value) { words.front() = words.back() = kGuard; }
  int64_t* data() { return words.data() + 1; }
  bool sound() const { return words.front() == kGuard && words.back() == kGuard; }
  static constexpr int64_t kGuard = 0x6775617264;
  std::vector<int64_t> words;
};

struct Turn {
  size_t count;
  uint32_t op, root;
  bool in_place;
};

int64_t reduced(uint32_t op, uint32_t ranks, int64_t base) {
  int64_t sum = 0, most = INT64_MIN;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    sum += base + rank;
    most = std::max(most, base + rank);
  }
  return op == TW_REDUCE_SUM ? sum : most;
}

void run_turn(GroupRank& rank, const Turn& turn, int64_t base) {
  const uint32_t size = rank.rank.size, me = rank.rank.number;
  Guarded from(turn.count, base + me), to(turn.count, turn.in_place ? base + me : -1);
  ASSERT_EQ(tw_allreduce(rank.group, turn.in_place ? TW_IN_PLACE : from.data(), to.data(), turn.count, TW_TYPE_INT64, turn.op,
                         nullptr, nullptr),
            TW_OK)
      << tw_last_error();
  for (size_t i = 0; i < turn.count; ++i) ASSERT_EQ(to.data()[i], reduced(turn.op, size, base)) << i;
  Guarded told(turn.count, me == turn.root ? base : -1);
  ASSERT_EQ(tw_broadcast(rank.group, told.data(), turn.count, TW_TYPE_INT64, turn.root, nullptr, nullptr), TW_OK);
  for (size_t i = 0; i < turn.count; ++i) ASSERT_EQ(told.data()[i], base) << i;
  Guarded sent(size * turn.count), received(size * turn.count, -1);
  for (uint32_t to_rank = 0; to_rank < size; ++to_rank)
    std::fill_n(sent.data() + to_rank * turn.count, turn.count, base + 100 * me + to_rank);
  if (turn.in_place) received.words = sent.words;
  ASSERT_EQ(tw_alltoall(rank.group, turn.in_place ? TW_IN_PLACE : sent.data(), received.data(), turn.count, TW_TYPE_INT64,
                        nullptr, nullptr),
            TW_OK);
  for (size_t i = 0; i < size * turn.count; ++i)
    ASSERT_EQ(received.data()[i], base + 100 * static_cast<int64_t>(i / turn.count) + me) << i;
  ASSERT_TRUE(from.sound() && to.sound() && told.sound() && sent.sound() && received.sound());
}

TEST(RepeatedCalls, AreEachTheirOwn) {
  for (const uint32_t ranks : {2u, 3u, 5u}) {
    run_group(ranks, [&](GroupRank& rank) {
      std::mt19937_64 random(ranks);  // the same on all ranks
      Turn turn{1, TW_REDUCE_SUM, 0, false};
      for (int i = 0; i < 400; ++i) {
        const size_t sizes[] = {1, 2, 13, 14, 15, 511, 512, 513, 20'000};  // around a line's and a small buffer's bytes
        if (random() % 2 == 0) {
          turn = {sizes[random() % (i % 16 == 0 ? 9 : 8)], random() % 2 != 0 ? TW_REDUCE_SUM : TW_REDUCE_MAX,
                  static_cast<uint32_t>(random() % ranks), random() % 2 != 0};
        }
        run_turn(rank, turn, static_cast<int64_t>(random() >> 8));
        if (::testing::Test::HasFatalFailure()) return;
        ASSERT_EQ(tw_barrier(rank.group, nullptr, nullptr), TW_OK);
      }
      EXPECT_TRUE(remembered(rank, CollectiveKind::barrier) && remembered(rank, CollectiveKind::broadcast));
      EXPECT_TRUE(remembered(rank, CollectiveKind::allreduce));
    });
  }
}

/// What is wrong with the buffers of such a call is refused on that rank alone, before anything moves.
TEST(RepeatedCalls, AreRefusedAsTheFirst) {
  run_group(2, [](GroupRank& rank) {
    std::vector<int64_t> from(8, 1), to(8, 0);
    const auto sum = [&](const void* send, void* recv, const tw_collective_options* options = nullptr) {
      return tw_allreduce(rank.group, send, recv, 4, TW_TYPE_INT64, TW_REDUCE_SUM, options, nullptr);
    };
    for (int i = 0; i < 3; ++i) {
      ASSERT_EQ(sum(from.data(), to.data()), TW_OK) << tw_last_error();
      ASSERT_EQ(to[3], 2);
      if (rank.rank.number != 0) continue;
      EXPECT_EQ(sum(nullptr, to.data()), TW_ERR_INVALID);
      EXPECT_EQ(sum(from.data(), nullptr), TW_ERR_INVALID);
      EXPECT_EQ(sum(from.data(), TW_IN_PLACE), TW_ERR_INVALID);
      EXPECT_EQ(sum(from.data(), from.data() + 3), TW_ERR_INVALID) << "they overlap";
      EXPECT_EQ(sum(reinterpret_cast<const char*>(from.data()) + 1, to.data()), TW_ERR_MISALIGNED);
      tw_collective_options options = TW_COLLECTIVE_OPTIONS_INIT;
      options.scale = 2;
      EXPECT_EQ(sum(from.data(), to.data(), &options), TW_ERR_INVALID) << "a scale, and no scaled sum";
    }
    ASSERT_EQ(sum(from.data(), to.data()), TW_OK) << tw_last_error();
  });
}

/// A rank that calls another collective where the others repeat theirs is found out.
TEST(RepeatedCalls, AreComparedWithTheOtherRanks) {
  run_ranks(2, [](Rank& one) {
    GroupRank rank(one);
    std::vector<int64_t> values(4, 1);
    tw_collective_options options = TW_COLLECTIVE_OPTIONS_INIT;
    options.timeout_ns = 5 * kSecond;
    const auto sum = [&](size_t count) {
      return tw_allreduce(rank.group, TW_IN_PLACE, values.data(), count, TW_TYPE_INT64, TW_REDUCE_SUM, &options, nullptr);
    };
    for (int i = 0; i < 3; ++i) ASSERT_EQ(sum(4), TW_OK) << tw_last_error();
    EXPECT_NE(sum(one.number == 0 ? 4 : 3), TW_OK);
    EXPECT_NE(sum(4), TW_OK) << "the group has failed";
    EXPECT_NE(std::string(tw_last_error()).find("the group has failed"), std::string::npos) << tw_last_error();
    one.barrier();
  });
}

}  // namespace
}  // namespace thalweg::test
