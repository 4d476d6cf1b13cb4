// SPDX-License-Identifier: Apache-2.0
// Several collectives at once, beside users' messages; and how they end when a rank does not take part.
#include <atomic>
#include <numeric>
#include <random>

#include "group_ranks.hpp"

namespace thalweg::test {
namespace {

constexpr uint32_t kRanks = 3;

std::vector<int64_t> numbers(size_t count, uint32_t rank, int64_t first) {
  std::vector<int64_t> values(count);
  std::iota(values.begin(), values.end(), first + 1000 * rank);
  return values;
}
/// Of numbers() over all ranks.
std::vector<int64_t> sums(size_t count, uint32_t size, int64_t first) {
  std::vector<int64_t> total(count, 0);
  for (uint32_t r = 0; r < size; ++r) {
    const auto one = numbers(count, r, first);
    for (size_t i = 0; i < count; ++i) total[i] += one[i];
  }
  return total;
}

TEST(CollectivesUnderWay, SeveralOfTwoGroupsEndInAnyOrder) {
  run_group(kRanks, [](GroupRank& rank) {
    tw_group* other = nullptr;
    rank.make(&other);
    constexpr size_t kCalls = 24;
    std::vector<std::vector<int64_t>> in, out;
    std::vector<tw_request> requests(kCalls);
    for (size_t i = 0; i < kCalls; ++i) {
      const size_t count = i % 3 == 0 ? 70'001 : i * 7 + 1;
      in.push_back(numbers(count, rank.rank.number, static_cast<int64_t>(i)));
      out.emplace_back(count, -1);
    }
    for (size_t i = 0; i < kCalls; ++i) {
      tw_group* const group = i % 2 == 0 ? rank.group : other;
      ASSERT_EQ(
          tw_allreduce(group, in[i].data(), out[i].data(), in[i].size(), TW_TYPE_INT64, TW_REDUCE_SUM, nullptr, &requests[i]),
          TW_IN_PROGRESS)
          << tw_last_error();
    }
    EXPECT_EQ(tw_group_destroy(other), TW_ERR_BUSY) << "some are under way";
    for (size_t i = kCalls; i-- > 0;) EXPECT_EQ(tw_request_finish(requests[i]), TW_OK) << tw_last_error();
    for (size_t i = 0; i < kCalls; ++i) EXPECT_TRUE(out[i] == sums(in[i].size(), kRanks, static_cast<int64_t>(i))) << i;
    EXPECT_EQ(tw_barrier(rank.group, nullptr, nullptr), TW_OK);
    EXPECT_EQ(tw_group_destroy(other), TW_OK) << tw_last_error();
  });
}

TEST(CollectivesUnderWay, UsersReceivesNeverTakeTheirMessages) {
  run_group(kRanks, [](GroupRank& rank) {
    tw_worker* const worker = rank.rank.worker->get();
    const uint32_t next = (rank.rank.number + 1) % kRanks;
    constexpr size_t kTurns = 20;
    std::vector<std::string> got(kTurns, std::string(9, '-'));
    std::vector<tw_request> receives(kTurns);
    for (size_t i = 0; i < kTurns; ++i)
      ASSERT_EQ(tw_recv(worker, got[i].data(), got[i].size(), 0, 0, nullptr, &receives[i]), TW_IN_PROGRESS);
    for (size_t i = 0; i < kTurns; ++i) {
      const auto in = numbers(i % 5 == 0 ? 40'000 : 3, rank.rank.number, 5);
      std::vector<int64_t> out(in.size());
      ASSERT_EQ(tw_allreduce(rank.group, in.data(), out.data(), in.size(), TW_TYPE_INT64, TW_REDUCE_SUM, nullptr, nullptr),
                TW_OK)
          << tw_last_error();
      EXPECT_TRUE(out == sums(in.size(), kRanks, 5));
      tw_message* unexpected = nullptr;
      EXPECT_EQ(tw_probe(worker, 0, 0, nullptr, nullptr, &unexpected), TW_ERR_NO_MATCH);
      ASSERT_EQ(tw_send_blocking(rank.rank.handles[next], "a message", 9, i), TW_OK);
    }
    for (size_t i = 0; i < kTurns; ++i) {
      EXPECT_EQ(tw_request_finish(receives[i]), TW_OK) << tw_last_error();
      EXPECT_EQ(got[i], "a message");
    }
  });
}

TEST(CollectivesUnderWay, ACallbackIsCalledOnceAndMayBeginAnother) {
  run_group(kRanks, [](GroupRank& rank) {
    struct Chain {
      tw_group* group;
      int64_t value = 1, sum = 0;
      int calls = 0;
      tw_collective_options options = TW_COLLECTIVE_OPTIONS_INIT;
    } chain{rank.group};
    chain.options.callback = [](void* arg, tw_request, tw_status status, const tw_recv_info*) {
      auto& self = *static_cast<Chain*>(arg);
      EXPECT_EQ(status, TW_OK);
      EXPECT_EQ(tw_barrier(self.group, nullptr, nullptr), TW_ERR_BUSY) << "a blocking call inside progress";
      self.value = self.sum;
      if (++self.calls < 4)
        EXPECT_EQ(tw_allreduce(self.group, &self.value, &self.sum, 1, TW_TYPE_INT64, TW_REDUCE_SUM, &self.options, nullptr),
                  TW_IN_PROGRESS);
    };
    chain.options.arg = &chain;
    ASSERT_EQ(tw_allreduce(chain.group, &chain.value, &chain.sum, 1, TW_TYPE_INT64, TW_REDUCE_SUM, &chain.options, nullptr),
              TW_IN_PROGRESS);
    while (chain.calls < 4) tw_worker_progress(rank.rank.worker->get());
    EXPECT_EQ(chain.value, 81);
  });
}

/// Runs all ranks of a group, of which some fail: no barrier at the end.
void run_failing(const std::function<void(GroupRank&)>& body) {
  run_ranks(kRanks, [&](Rank& rank) {
    GroupRank one(rank);
    body(one);
    rank.barrier();
  });
}

uint64_t now_ns() {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count());
}

/// Rank 1 ends its worker; rank 0 waits for it, and rank 2 for rank 0: both end, with its name.
TEST(CollectivesUnderWay, ALostRankIsNamedToAll) {
  run_failing([](GroupRank& rank) {
    std::vector<int64_t> in(200'000, 1), out(200'000);
    EXPECT_EQ(tw_barrier(rank.group, nullptr, nullptr), TW_OK) << tw_last_error();  // all are connected
    rank.rank.barrier();
    if (rank.rank.number == 1) {
      EXPECT_EQ(tw_group_destroy(std::exchange(rank.group, nullptr)), TW_OK) << tw_last_error();
      rank.rank.endpoints.clear();
      rank.rank.worker.reset();
      return;
    }
    const uint64_t begin = now_ns();
    tw_status status = TW_OK;
    for (int i = 0; i < 3 && status == TW_OK; ++i)
      status = tw_allreduce(rank.group, in.data(), out.data(), in.size(), TW_TYPE_INT64, TW_REDUCE_SUM, nullptr, nullptr);
    EXPECT_TRUE(status == TW_ERR_PEER_LOST || status == TW_ERR_CLOSED) << status << tw_last_error();
    EXPECT_NE(std::string(tw_last_error()).find("rank 1"), std::string::npos) << tw_last_error();
    EXPECT_LT(now_ns() - begin, 5 * kSecond);
    EXPECT_EQ(tw_barrier(rank.group, nullptr, nullptr), status) << "later ones fail at once";
    EXPECT_NE(std::string(tw_last_error()).find("rank 1"), std::string::npos) << tw_last_error();
  });
}

TEST(CollectivesUnderWay, AMissingRankIsNamedAtTheTimeout) {
  run_failing([](GroupRank& rank) {
    std::vector<int64_t> in(100'000, 1), out(100'000);
    tw_collective_options options = TW_COLLECTIVE_OPTIONS_INIT;
    options.timeout_ns = kSecond / 2;
    if (rank.rank.number != 2) {
      const tw_status status =
          tw_reduce(rank.group, in.data(), out.data(), in.size(), TW_TYPE_INT64, TW_REDUCE_SUM, 0, &options, nullptr);
      if (rank.rank.number == 0) {
        EXPECT_EQ(status, TW_ERR_TIMED_OUT);
        EXPECT_NE(std::string(tw_last_error()).find("rank 2"), std::string::npos) << tw_last_error();
      }
      const tw_status later = tw_barrier(rank.group, &options, nullptr);
      EXPECT_TRUE(later == TW_ERR_TIMED_OUT) << later << tw_last_error();
    }
    rank.rank.barrier();
    if (rank.rank.number == 2) {  // it comes late, and learns of it
      EXPECT_EQ(tw_barrier(rank.group, &options, nullptr), TW_ERR_TIMED_OUT) << tw_last_error();
    }
  });
}

TEST(CollectivesUnderWay, RanksThatCallDifferentThingsAreToldSo) {
  run_failing([](GroupRank& rank) {
    int64_t in = 1, out[4] = {};
    tw_status status = TW_OK;
    tw_collective_options options = TW_COLLECTIVE_OPTIONS_INIT;
    options.timeout_ns = 5 * kSecond;
    if (rank.rank.number == 0) {
      status = tw_allgather(rank.group, &in, out, 1, TW_TYPE_INT64, &options, nullptr);
    } else {
      status = tw_allreduce(rank.group, &in, out, 1, TW_TYPE_INT64, TW_REDUCE_SUM, &options, nullptr);
    }
    if (status == TW_OK) status = tw_barrier(rank.group, &options, nullptr);
    EXPECT_EQ(status, TW_ERR_INVALID) << tw_last_error();
    EXPECT_NE(std::string(tw_last_error()).find("rank "), std::string::npos) << tw_last_error();
  });
}

/// Counts that all ranks give for all: a rank of which they differ has called something else, over shared memory, too, where no
/// message has a length. The second time, so that what the blocks were before is there.
void check_other_counts(const char* algorithm, bool reduces) {
  run_failing([&](GroupRank& rank) {
    tw_collective_options options = TW_COLLECTIVE_OPTIONS_INIT;
    options.timeout_ns = 5 * kSecond;
    options.algorithm = algorithm;
    std::vector<int64_t> in(24, 1), out(24);
    const auto call = [&](const std::vector<size_t>& counts) {
      return reduces
                 ? tw_reduce_scatterv(rank.group, in.data(), out.data(), counts.data(), TW_TYPE_INT64, TW_REDUCE_SUM, &options,
                                      nullptr)
                 : tw_allgatherv(rank.group, in.data(), out.data(), counts.data(), nullptr, TW_TYPE_INT64, &options, nullptr);
    };
    EXPECT_EQ(call({8, 8, 8}), TW_OK) << tw_last_error();
    rank.rank.barrier();
    tw_status status = call(rank.rank.number == 2 ? std::vector<size_t>{5, 8, 3} : std::vector<size_t>{5, 6, 5});
    if (status == TW_OK) status = tw_barrier(rank.group, &options, nullptr);
    EXPECT_EQ(status, TW_ERR_INVALID) << algorithm << ": " << tw_last_error();
    EXPECT_NE(std::string(tw_last_error()).find("with other counts by rank"), std::string::npos) << tw_last_error();
  });
}

TEST(CollectivesUnderWay, RanksThatGiveOtherCountsByRankAreToldSo) {
  for (const char* algorithm : {"direct", "linear", "ring"}) {
    check_other_counts(algorithm, false);
    check_other_counts(algorithm, true);
  }
}

TEST(CollectivesUnderWay, WorkersOfAProgressThreadRunThem) {
  RankOptions options;
  options.progress = TW_PROGRESS_THREAD;
  run_group(
      kRanks,
      [](GroupRank& rank) {
        const auto in = numbers(30'001, rank.rank.number, 3);
        std::vector<int64_t> out(in.size());
        for (int i = 0; i < 10; ++i) {
          ASSERT_EQ(tw_allreduce(rank.group, in.data(), out.data(), in.size(), TW_TYPE_INT64, TW_REDUCE_SUM, nullptr, nullptr),
                    TW_OK)
              << tw_last_error();
          EXPECT_TRUE(out == sums(in.size(), kRanks, 3));
        }
      },
      options);
}

}  // namespace
}  // namespace thalweg::test
