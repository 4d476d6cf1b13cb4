// SPDX-License-Identifier: Apache-2.0
// The C++ view of collectives, and every algorithm by its name through the engine.
#include <numeric>

#include "collectives/algorithms.hpp"
#include "group_ranks.hpp"

namespace thalweg::test {
namespace {

using Numbers = std::vector<int64_t>;

Numbers from(int64_t first, size_t count) {
  Numbers numbers(count);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

TEST(CollectivesView, SpansCarryTheirTypes) {
  run_group(3, [](GroupRank& rank) {
    tw_group* const group = rank.group;
    const int64_t me = rank.rank.number;
    EXPECT_EQ(barrier(group), TW_OK);
    Numbers buffer = from(me, 5), out(5), whole(15);
    EXPECT_EQ(allreduce(group, buffer), TW_OK);
    EXPECT_EQ(buffer, (Numbers{3, 6, 9, 12, 15}));
    EXPECT_EQ(allreduce(group, from(me, 5), out, TW_REDUCE_MAX), TW_OK);
    EXPECT_EQ(out, from(2, 5));
    EXPECT_EQ(allgather(group, from(me * 5, 5), whole), TW_OK);
    EXPECT_EQ(whole, from(0, 15));
    EXPECT_EQ(alltoall(group, from(me * 15, 15), whole), TW_OK);
    EXPECT_EQ(whole[6], 15 + me * 5 + 1);
    EXPECT_EQ(reduce_scatter(group, from(0, 15), out), TW_OK);
    EXPECT_EQ(out[1], 3 * (me * 5 + 1));
    EXPECT_EQ(scatter(group, from(0, 15), out, 1), TW_OK);
    EXPECT_EQ(out, from(me * 5, 5));
    EXPECT_EQ(gather(group, out, whole, 2), TW_OK);
    EXPECT_EQ(reduce(group, from(1, 5), out, 0), TW_OK);
    EXPECT_EQ(scan(group, from(1, 5), out), TW_OK);
    EXPECT_EQ(out[0], me + 1);
    EXPECT_EQ(exclusive_scan(group, from(1, 5), out), TW_OK);
    EXPECT_EQ(broadcast(group, out, 2), TW_OK);
    EXPECT_EQ(out[0], 2);
    EXPECT_EQ(allreduce(group, from(1, 4), out), TW_ERR_INVALID) << "of other lengths";
  });
}

TEST(CollectivesView, CountsFitTheirBuffers) {
  run_group(3, [](GroupRank& rank) {
    tw_group* const group = rank.group;
    const auto me = static_cast<size_t>(rank.rank.number);
    const std::vector<size_t> counts{1, 2, 3}, begins{0, 1, 3}, short_of{1, 2};
    const Numbers mine = from(static_cast<int64_t>(begins[me]), counts[me]);
    Numbers whole(6), own(counts[me]);
    EXPECT_EQ(allgatherv(group, mine, whole, counts), TW_OK);
    EXPECT_EQ(whole, from(0, 6));
    Numbers apart(7, -1);
    EXPECT_EQ(allgatherv(group, mine, apart, counts, std::vector<size_t>{6, 0, 2}), TW_OK);
    EXPECT_EQ(apart, (Numbers{1, 2, 3, 4, 5, -1, 0}));
    EXPECT_EQ(reduce_scatterv(group, whole, own, counts), TW_OK);
    EXPECT_EQ(own[0], 3 * static_cast<int64_t>(begins[me]));
    EXPECT_EQ(gatherv(group, mine, apart, counts, 1), TW_OK);
    EXPECT_EQ(scatterv(group, whole, own, counts, 2), TW_OK);
    EXPECT_EQ(own, mine);
    Numbers got(3 * counts[me]);
    const std::vector<size_t> same(3, counts[me]);
    EXPECT_EQ(alltoallv(group, whole, counts, got, same), TW_OK);
    EXPECT_EQ(got[2 * counts[me]], static_cast<int64_t>(begins[me]));
    EXPECT_EQ(allgatherv(group, mine, whole, short_of), TW_ERR_INVALID);
    EXPECT_EQ(allgatherv(group, mine, whole, counts, std::vector<size_t>{6, 0, 2}), TW_ERR_INVALID) << "beyond the end";
    EXPECT_EQ(alltoallv(group, own, counts, got, same), TW_ERR_INVALID);
    const std::string text = explain(group, "allgather", 5, TW_TYPE_INT64);
    EXPECT_NE(text.find("allgather: 5 elements of 8 bytes, 3 ranks"), std::string::npos) << text;
    EXPECT_NE(text.find("\nchosen: "), std::string::npos) << text;
    EXPECT_THROW((void)explain(group, "allgathers", 5), Error);
  });
}

/// What rank `me` gets of an allreduce, reduce, ... of numbers, by one algorithm; empty: it is refused.
Numbers run_by(tw_group* group, impl::CollectiveKind kind, const char* algorithm, size_t count) {
  using impl::CollectiveKind;
  const uint32_t me = tw_group_rank(group), size = tw_group_size(group), root = size - 1;
  CollectiveOptions options;
  options.algorithm = algorithm;
  const Numbers send = from(me * 100, count * size);
  Numbers recv(count * size, -1);
  tw_status status = TW_OK;
  switch (kind) {
    case CollectiveKind::barrier:
      status = barrier(group, &options);
      break;
    case CollectiveKind::broadcast:
      if (me == root) recv = from(7, count * size);
      status = broadcast(group, recv, root, &options);
      break;
    case CollectiveKind::reduce:
      status = reduce(group, send, recv, root, TW_REDUCE_SUM, &options);
      if (me != root) recv.clear();
      break;
    case CollectiveKind::allreduce:
      status = allreduce(group, send, recv, TW_REDUCE_SUM, &options);
      break;
    case CollectiveKind::reduce_scatter:
      recv.resize(count);
      status = reduce_scatter(group, send, recv, TW_REDUCE_SUM, &options);
      break;
    case CollectiveKind::allgather:
      status = allgather(group, std::span(send).first(count), recv, &options);
      break;
    case CollectiveKind::gather:
      status = gather(group, std::span(send).first(count), recv, root, &options);
      if (me != root) recv.clear();
      break;
    case CollectiveKind::scatter:
      recv.resize(count);
      status = scatter(group, send, recv, root, &options);
      break;
    case CollectiveKind::alltoall:
      status = alltoall(group, send, recv, &options);
      break;
    case CollectiveKind::scan:
      status = scan(group, send, recv, TW_REDUCE_SUM, &options);
      break;
    default:
      status = exclusive_scan(group, send, recv, TW_REDUCE_SUM, &options);
  }
  EXPECT_TRUE(status == TW_OK || status == TW_ERR_INVALID || status == TW_ERR_UNSUPPORTED) << algorithm << tw_last_error();
  return status == TW_OK ? recv : Numbers{-7};
}

/// All algorithms of a kind give the same.
class Algorithms : public testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Algorithms, testing::Values(1u, 2u, 3u, 4u, 6u, 8u));

TEST_P(Algorithms, AllGiveTheSame) {
  run_group(GetParam(), [](GroupRank& rank) {
    for (uint8_t k = 0; k < static_cast<uint8_t>(impl::CollectiveKind::count_); ++k) {
      const auto kind = static_cast<impl::CollectiveKind>(k);
      for (const size_t count : {size_t{3}, size_t{20'003}}) {
        const Numbers wanted = run_by(rank.group, kind, nullptr, count);
        for (const impl::Algorithm& algorithm : impl::algorithms_of(kind)) {
          const Numbers got = run_by(rank.group, kind, algorithm.name, count);
          EXPECT_TRUE(got == wanted || got == Numbers{-7}) << impl::kind_name(kind) << " " << algorithm.name << " of " << count;
        }
      }
    }
  });
}

}  // namespace
}  // namespace thalweg::test
