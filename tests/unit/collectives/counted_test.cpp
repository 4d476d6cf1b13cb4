// SPDX-License-Identifier: Apache-2.0
// An alltoallv whose counts lie in device memory: what goes where, by counts that change between launches; and counts that do not fit.
#include <thalweg/collectives.hpp>

#include "collectives/collectives.hpp"
#include "own_queue.hpp"

namespace thalweg::test {
namespace {

using Counts = std::vector<uint64_t>;
constexpr uint64_t kUntouched = 0x5a5a5a5a5a5a5a5a;

/// All ranks' counts in rows, row by row: who sends what to whom.
using Matrix = std::vector<Counts>;

Matrix random_matrix(uint64_t seed, uint32_t size, uint64_t most) {
  std::mt19937_64 random(seed);
  Matrix all(size, Counts(size));
  for (Counts& row : all) {
    for (uint64_t& count : row) count = random() % 3 == 0 ? 0 : random() % (most + 1);
  }
  return all;
}
/// All rows to one rank, whose own go to another one.
Matrix skewed_matrix(uint32_t size, uint32_t to, uint64_t rows) {
  Matrix all(size, Counts(size));
  for (uint32_t r = 0; r < size; ++r) all[r][r != to ? to : (to + 1) % size] = rows + r;
  return all;
}
Matrix turned(const Matrix& all) {
  Matrix other(all.size(), Counts(all.size()));
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t k = 0; k < all.size(); ++k) other[k][i] = all[i][k];
  }
  return other;
}
uint64_t sum(const Counts& counts) {
  uint64_t all = 0;
  for (const uint64_t one : counts) all += one;
  return all;
}
std::string bytes_of(const Counts& counts) { return {reinterpret_cast<const char*>(counts.data()), counts.size() * 8}; }

/// Where blocks begin: one behind the other, or in the opposite order with gaps.
Counts packed(const Counts& counts) {
  Counts offsets(counts.size());
  for (size_t i = 1; i < counts.size(); ++i) offsets[i] = offsets[i - 1] + counts[i - 1];
  return offsets;
}
Counts spread(const Counts& counts) {
  Counts offsets(counts.size());
  uint64_t at = 1;
  for (size_t i = counts.size(); i-- > 0;) {
    offsets[i] = at;
    at += counts[i] + 2;
  }
  return offsets;
}

struct CountedCase {
  size_t row_bytes = 16;
  uint64_t capacity = 0;  // rows of each buffer
  bool spread = false;    // offsets are given
  size_t shift = 0;       // bytes, of both buffers
  bool host_counts = false;
};

/// One rank's buffers, counts and offsets of a call.
class Counted {
 public:
  Counted(GroupRank& rank, const std::string& place, const CountedCase& c)
      : rank_(rank),
        c_(c),
        me_(rank.rank.number),
        size_(rank.rank.size),
        send_(rank.rank.context, place.c_str(), c.capacity * c.row_bytes + c.shift),
        recv_(rank.rank.context, place.c_str(), c.capacity * c.row_bytes + c.shift),
        send_counts_(rank.rank.context, c.host_counts ? "host" : place.c_str(), size_ * 8),
        send_offsets_(rank.rank.context, place.c_str(), size_ * 8),
        recv_counts_(rank.rank.context, c.host_counts ? "host" : place.c_str(), size_ * 8),
        recv_offsets_(rank.rank.context, place.c_str(), size_ * 8),
        next_counts_(rank.rank.context, place.c_str(), size_ * 8) {}
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

  tw_status dispatch(tw_queue* queue) {
    return tw_alltoallv_counted_on(queue, rank_.group, at(send_), counts(send_counts_),
                                   c_.spread ? counts(send_offsets_) : nullptr, c_.capacity, at(recv_), counts(recv_counts_),
                                   c_.spread ? counts(recv_offsets_) : nullptr, c_.capacity, c_.row_bytes, nullptr);
  }
  /// The way back: into `send`, by the counts that were received.
  tw_status combine(tw_queue* queue) {
    return tw_alltoallv_counted_on(queue, rank_.group, at(recv_), counts(recv_counts_),
                                   c_.spread ? counts(recv_offsets_) : nullptr, c_.capacity, at(send_), counts(send_counts_),
                                   c_.spread ? counts(send_offsets_) : nullptr, c_.capacity, c_.row_bytes, nullptr);
  }
  void fill(const Matrix& all, uint64_t seed) {
    set_counts(all);
    send_.store(std::string(c_.shift, '\x11') + sent(all, seed));
    recv_.store(std::string(c_.capacity * c_.row_bytes + c_.shift, '\x33'));
    recv_counts_.store(std::string(size_ * 8, '\x5a'));
  }
  /// Those alone, as a kernel before it would.
  void set_counts(const Matrix& all) {
    send_counts_.store(bytes_of(all[me_]));
    send_offsets_.store(bytes_of(spread(all[me_])));
    recv_offsets_.store(bytes_of(spread(turned(all)[me_])));
  }
  /// The same, for bring_counts().
  void set_next_counts(const Matrix& all) {
    next_counts_.store(bytes_of(all[me_]));
    send_counts_.store(std::string(size_ * 8, '\x5a'));
  }
  /// By the queue's device, before dispatch().
  tw_status bring_counts(tw_queue* queue) {
    return tw_copy_on(queue, send_counts_.data(), next_counts_.data(), size_ * 8, nullptr);
  }
  void check(const Matrix& all, uint64_t seed) const {
    const Counts from = turned(all)[me_], offsets = places(from);
    EXPECT_TRUE(recv_counts_.load() == bytes_of(from)) << "rank " << me_;
    std::string wanted(c_.capacity * c_.row_bytes, '\x33');
    for (uint32_t r = 0; r < size_; ++r) {
      const std::string block = rows(seed, r, me_, from[r]);
      wanted.replace(offsets[r] * c_.row_bytes, block.size(), block);
    }
    EXPECT_TRUE(recv_.load().substr(c_.shift) == wanted) << "rank " << me_ << " of " << size_ << ", seed " << seed;
  }
  /// After combine().
  void check_back(const Matrix& all, uint64_t seed) const {
    EXPECT_TRUE(send_counts_.load() == bytes_of(all[me_])) << "rank " << me_;
    EXPECT_TRUE(send_.load().substr(c_.shift) == sent(all, seed)) << "rank " << me_ << " of " << size_ << ", seed " << seed;
  }
  void forget_sent(const Matrix& all) {
    send_counts_.store(std::string(size_ * 8, '\x5a'));
    std::string bytes = sent(all, 0);
    const Counts offsets = places(all[me_]);
    for (uint32_t r = 0; r < size_; ++r)
      bytes.replace(offsets[r] * c_.row_bytes, all[me_][r] * c_.row_bytes, all[me_][r] * c_.row_bytes, '\x77');
    send_.store(std::string(c_.shift, '\x11') + bytes);
  }
  bool untouched() const { return recv_.load() == std::string(c_.capacity * c_.row_bytes + c_.shift, '\x33'); }
  Counts received() const {
    const std::string bytes = recv_counts_.load();
    Counts counts(size_);
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(counts.data()));
    return counts;
  }

 private:
  char* at(const Room& room) const { return room.data() + c_.shift; }
  static uint64_t* counts(const Room& room) { return reinterpret_cast<uint64_t*>(room.data()); }
  Counts places(const Counts& counts) const { return c_.spread ? spread(counts) : packed(counts); }
  std::string rows(uint64_t seed, uint32_t from, uint32_t to, uint64_t count) const {
    std::mt19937_64 random(seed * 10'000 + from * 100 + to);
    std::string bytes(count * c_.row_bytes, '\0');
    for (char& one : bytes) one = static_cast<char>(random());
    return bytes;
  }
  std::string sent(const Matrix& all, uint64_t seed) const {
    const Counts offsets = places(all[me_]);
    std::string bytes(c_.capacity * c_.row_bytes, '\x22');
    for (uint32_t r = 0; r < size_; ++r) {
      const std::string block = rows(seed, me_, r, all[me_][r]);
      bytes.replace(offsets[r] * c_.row_bytes, block.size(), block);
    }
    return bytes;
  }

  GroupRank& rank_;
  const CountedCase c_;
  const uint32_t me_, size_;
  Room send_, recv_, send_counts_, send_offsets_, recv_counts_, recv_offsets_, next_counts_;
};

void run_well(tw_status status, OwnQueue& queue) {
  ASSERT_EQ(status, TW_OK) << tw_last_error();
  queue.synchronize();
  ASSERT_EQ(tw_queue_check(queue), TW_OK) << tw_last_error();
}

class CountedRanks : public testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, CountedRanks, testing::Values(2, 3, 5, 8));

/// Both ways, of one case: each round has other counts.
void there_and_back(uint32_t ranks, const CountedCase& c, const std::vector<Matrix>& rounds, uint64_t seed) {
  run_group(ranks, [&](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    OwnQueue queue(rank, place);
    Counted call(rank, place, c);
    for (size_t round = 0; round < rounds.size(); ++round) {
      SCOPED_TRACE("row bytes " + std::to_string(c.row_bytes) + ", shift " + std::to_string(c.shift) + ", round " +
                   std::to_string(round));
      call.fill(rounds[round], seed + round);
      run_well(call.dispatch(queue), queue);
      call.check(rounds[round], seed + round);
      call.forget_sent(rounds[round]);
      run_well(call.combine(queue), queue);
      call.check_back(rounds[round], seed + round);
    }
    rank.rank.barrier();
  });
}

TEST_P(CountedRanks, DispatchAndCombine) {
  const uint64_t seed = fresh_seed();
  for (const CountedCase& c : {CountedCase{16, 0, false, 0}, CountedCase{16, 0, true, 0, true}, CountedCase{48, 0, true, 16},
                               CountedCase{7, 0, false, 3}, CountedCase{4, 0, true, 1}, CountedCase{1, 0, false, 0}}) {
    CountedCase one = c;
    std::vector<Matrix> rounds;
    for (uint64_t round = 0; round < 3; ++round) rounds.push_back(random_matrix(seed + round, GetParam(), 40));
    rounds.push_back(Matrix(GetParam(), Counts(GetParam())));  // nobody has anything
    rounds.push_back(skewed_matrix(GetParam(), static_cast<uint32_t>(seed % GetParam()), 37));
    one.capacity = 60 * GetParam() + 20;
    there_and_back(GetParam(), one, rounds, seed);
  }
}

/// More pieces than slots, in each block of threads, and pairs of very different lengths.
TEST(CountedLong, OfManyPieces) {
  const uint64_t seed = fresh_seed();
  for (const uint32_t ranks : {2u, 3u, 5u}) {
    CountedCase c;
    c.row_bytes = 1'024;
    c.spread = ranks == 3;
    c.shift = ranks == 5 ? 5 : 0;
    const uint64_t rows =
        ranks == 2 ? 8'000 : 4'000;  // at least twice what fits into a pair's slots: 8 blocks x 4 pieces of 128, 64, 32 KiB
    std::vector<Matrix> rounds{skewed_matrix(ranks, ranks - 1, rows)};
    rounds.push_back(random_matrix(seed, ranks, rows / ranks));
    c.capacity = rows * ranks + 100;
    there_and_back(ranks, c, rounds, seed);
  }
}

/// One graph, launched with counts that the device brings, and that nothing tells the library of.
TEST_P(CountedRanks, CapturedWithOtherCounts) {
  const uint64_t seed = fresh_seed();
  run_group(GetParam(), [&](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    CountedCase c;
    c.capacity = 60 * GetParam();
    c.row_bytes = 20;
    OwnQueue queue(rank, place);
    Counted call(rank, place, c);
    Matrix all = random_matrix(seed, GetParam(), 40);
    call.fill(all, seed);
    call.set_next_counts(all);
    run_well(call.bring_counts(queue), queue);
    run_well(call.dispatch(queue), queue);
    run_well(call.combine(queue), queue);
    OwnGraph graph(queue, [&] {
      ASSERT_EQ(call.bring_counts(queue), TW_OK) << tw_last_error();
      ASSERT_EQ(call.dispatch(queue), TW_OK) << tw_last_error();
    });
    OwnGraph back(queue, [&] { ASSERT_EQ(call.combine(queue), TW_OK) << tw_last_error(); });
    for (uint64_t round = 1; round < 8; ++round) {
      all = random_matrix(seed + round, GetParam(), 40);
      call.fill(all, seed + round);
      call.set_next_counts(all);
      ASSERT_EQ(tw_graph_launch(graph, queue), TW_OK) << tw_last_error();
      queue.synchronize();
      call.check(all, seed + round);
      call.forget_sent(all);
      ASSERT_EQ(tw_graph_launch(back, queue), TW_OK) << tw_last_error();
      queue.synchronize();
      call.check_back(all, seed + round);
    }
    ASSERT_EQ(tw_queue_check(queue), TW_OK) << tw_last_error();
    rank.rank.barrier();
  });
}

/// The slots, flags and numbers of runs are shared with the other kernels of the group.
TEST_P(CountedRanks, BetweenOtherCollectives) {
  const uint64_t seed = fresh_seed();
  run_group(GetParam(), [&](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    JobCase j;
    j.count = 8'001;  // 32 KiB: LL's room where four ranks share an emulated device
    j.place = place.c_str();
    Jobs jobs(rank, j);
    jobs.add_allreduce();
    CountedCase c;
    c.capacity = 60 * GetParam();
    c.row_bytes = 1'000;
    OwnQueue queue(rank, place);
    Counted call(rank, place, c);
    Target ll = queue.target(), simple = queue.target();
    ll.options.algorithm = "ll";
    simple.options.algorithm = "simple";
    for (uint64_t round = 0; round < 6; ++round) {
      const Matrix all = random_matrix(seed + round, GetParam(), 40);
      call.fill(all, seed + round);
      jobs.fill(seed + round);
      const Target& target = round % 2 == 0 ? simple : ll;
      jobs.call(target);
      ASSERT_EQ(call.dispatch(queue), TW_OK) << tw_last_error();
      jobs.call(simple);
      if (round % 3 == 0) jobs.call(target);
      run_well(call.combine(queue), queue);
      jobs.call(ll);
      queue.synchronize();
      jobs.check(seed + round);
      call.check(all, seed + round);
      call.check_back(all, seed + round);
    }
    rank.rank.barrier();
  });
}

/// Rank 1 has more to send than it has room for: it says so, and so do the others; nothing is stored anywhere.
TEST(CountedErrors, WhatCannotBeSentFailsAllRanks) {
  run_group(3, [&](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    CountedCase c;
    c.capacity = 30;
    OwnQueue queue(rank, place);
    Counted call(rank, place, c);
    Matrix all(3, Counts(3, 5));
    call.fill(all, 1);
    run_well(call.dispatch(queue), queue);
    call.fill(all, 2);
    all[1][2] = 21;
    call.set_counts(all);
    ASSERT_EQ(call.dispatch(queue), TW_OK) << tw_last_error();
    EXPECT_EQ(tw_queue_synchronize(queue), TW_ERR_TRUNCATED);
    const std::string text = tw_last_error();
    const char* const wanted = rank.rank.number == 1 ? "21 rows to rank 2 end behind send_capacity, 30 rows" : "rank 1 gave up";
    EXPECT_NE(text.find(wanted), std::string::npos) << text;
    EXPECT_TRUE(call.untouched());
    EXPECT_NE(call.dispatch(queue), TW_OK);
    rank.rank.barrier();
  });
}

/// Rank 1 is sent more than it has room for: it stores no row, and the ranks that still wait for it end, too.
TEST(CountedErrors, WhatHasNoRoomFailsItsRankAndThoseThatWait) {
  run_group(3, [&](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    CountedCase c;
    c.row_bytes = 64 << 10;
    c.capacity = 600;
    OwnQueue queue(rank, place);
    Counted call(rank, place, c);
    Matrix all(3, Counts(3, 5));
    call.fill(all, 1);
    run_well(call.dispatch(queue), queue);
    call.fill(all, 2);
    all[0][1] = all[2][1] = 301;
    all[1][0] = all[1][2] = 1;
    call.set_counts(all);
    ASSERT_EQ(call.dispatch(queue), TW_OK) << tw_last_error();
    EXPECT_EQ(tw_queue_synchronize(queue), TW_ERR_TRUNCATED);
    const std::string text = tw_last_error();
    if (rank.rank.number == 1) {
      EXPECT_NE(text.find("301 rows from rank 2 end behind recv_capacity, 600 rows"), std::string::npos) << text;
      EXPECT_TRUE(call.untouched());
    } else {
      EXPECT_NE(text.find("gave up"), std::string::npos) << text;
    }
    rank.rank.barrier();
  });
}

/// One that the queue keeps is refused as a first one is.
TEST(CountedErrors, OfAGroupThatHasFailedAreRefused) {
  run_ranks(2, [](Rank& one) {
    GroupRank rank(one);
    const std::string place = place_of(rank, true);
    CountedCase c;
    c.capacity = 30;
    OwnQueue queue(rank, place);
    Counted call(rank, place, c);
    const Matrix matrix(2, Counts(2, 5));
    call.fill(matrix, 1);
    run_well(call.dispatch(queue), queue);
    call.check(matrix, 1);
    call.fill(matrix, 2);
    one.barrier();
    impl::Collectives& all = *rank.group->collectives;
    if (one.number == 1) {
      const impl::Engine::Guard guard(all.engine());
      all.fail(TW_ERR_DEVICE, 1, "a device of rank 1 is broken");
    }
    EXPECT_EQ(rank.group->worker.wait_until([&] { return all.failed() && all.settled(); }, kLong), TW_OK);
    EXPECT_EQ(call.dispatch(queue), TW_ERR_DEVICE);
    const std::string text = tw_last_error();
    EXPECT_NE(text.find("a device of rank 1 is broken"), std::string::npos) << text;
    queue.synchronize();
    EXPECT_TRUE(call.untouched());
    one.barrier();
  });
}

/// The C++ form takes spans: what they hold are the capacities.
TEST(CountedView, TakesSpansOfDeviceMemory) {
  run_group(2, [&](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    OwnQueue queue(rank, place);
    const uint32_t me = rank.rank.number;
    Room rows(rank.rank.context, place.c_str(), 20 * 4), words(rank.rank.context, place.c_str(), 4 * 8);
    rows.store(std::string(20 * 4, static_cast<char>(me + 1)));
    words.store(bytes_of({me == 0 ? 1u : 3u, me == 0 ? 2u : 0u, 0, 0}));
    const std::span<uint32_t> all(reinterpret_cast<uint32_t*>(rows.data()), 20);
    const std::span<uint64_t> counts(reinterpret_cast<uint64_t*>(words.data()), 4);
    const auto call = [&](size_t row) {
      return thalweg::alltoallv_counted_on(queue, rank.group, all.first(10), counts.first(2), all.last(10), counts.last(2),
                                           row);
    };
    EXPECT_EQ(call(0), TW_ERR_INVALID);
    run_well(call(2), queue);
    const size_t own = me == 0 ? 1 : 0, other = me == 0 ? 3 : 2;
    EXPECT_TRUE(words.load().substr(16) == bytes_of(me == 0 ? Counts{1, 3} : Counts{2, 0}));
    const std::string first(8 * (me == 0 ? own : other), '\1'), second(8 * (me == 0 ? other : own), '\2');
    EXPECT_TRUE(rows.load().substr(40) ==
                first + second + std::string(40 - first.size() - second.size(), static_cast<char>(me + 1)));
    rank.rank.barrier();
  });
}

TEST(CountedErrors, AreRefusedBeforeAnythingMoves) {
  run_group(2, [&](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    OwnQueue queue(rank, place);
    Room rows(rank.rank.context, place.c_str(), 640), words(rank.rank.context, place.c_str(), 64);
    auto* const counts = reinterpret_cast<uint64_t*>(words.data());
    auto* const odd = reinterpret_cast<uint64_t*>(words.data() + 4);
    const auto call = [&](const void* send, const uint64_t* sends, uint64_t* receives, size_t capacity, size_t row) {
      return tw_alltoallv_counted_on(queue, rank.group, send, sends, nullptr, capacity, rows.data() + 320, receives, nullptr,
                                     20, row, nullptr);
    };
    EXPECT_EQ(call(rows.data(), nullptr, counts, 20, 16), TW_ERR_INVALID);
    EXPECT_EQ(call(rows.data(), counts, nullptr, 20, 16), TW_ERR_INVALID);
    EXPECT_EQ(call(rows.data(), counts, counts, 20, 16), TW_ERR_INVALID);
    EXPECT_EQ(call(rows.data(), odd, counts, 20, 16), TW_ERR_MISALIGNED);
    EXPECT_EQ(call(rows.data(), counts, counts + 2, 20, 0), TW_ERR_INVALID);
    EXPECT_EQ(call(rows.data(), counts, counts + 2, SIZE_MAX / 2, 16), TW_ERR_INVALID);
    EXPECT_EQ(call(nullptr, counts, counts + 2, 20, 16), TW_ERR_INVALID);
    EXPECT_EQ(call(TW_IN_PLACE, counts, counts + 2, 20, 16), TW_ERR_INVALID);
    tw_collective_options named = TW_COLLECTIVE_OPTIONS_INIT;
    named.algorithm = "simple";
    EXPECT_EQ(tw_alltoallv_counted_on(queue, rank.group, rows.data(), counts, nullptr, 20, rows.data() + 320, counts + 2,
                                      nullptr, 20, 16, &named),
              TW_ERR_INVALID);
    ASSERT_EQ(tw_barrier_on(queue, rank.group, nullptr), TW_OK) << tw_last_error();
    queue.synchronize();
    std::vector<uint64_t> ordinary(2, kUntouched);
    EXPECT_EQ(call(rows.data(), counts, ordinary.data(), 20, 16), TW_ERR_UNSUPPORTED);
    EXPECT_NE(std::string(tw_last_error()).find("recv_counts: "), std::string::npos) << tw_last_error();
    EXPECT_NE(std::string(tw_last_error()).find("tw_alltoallv_on"), std::string::npos) << tw_last_error();
  });
}

TEST(CountedErrors, AQueueOfTheHostNamesTheRemedy) {
  run_group(2, [&](GroupRank& rank) {
    const std::string place = place_of(rank, rank.rank.number == 0);
    OwnQueue queue(rank, place);
    Counted call(rank, place, CountedCase{16, 10});
    EXPECT_EQ(call.dispatch(queue), TW_ERR_UNSUPPORTED);
    EXPECT_NE(std::string(tw_last_error()).find("bring the counts to the host, and use tw_alltoallv_on"), std::string::npos)
        << tw_last_error();
    rank.rank.barrier();
  });
}

}  // namespace
}  // namespace thalweg::test
