// SPDX-License-Identifier: Apache-2.0
// Groups of endpoints that were given.
#include "../plans/window_ranks.hpp"

#include "compare_parts.hpp"

namespace thalweg::test {
namespace {

TEST(Given, SplitsOfGivenEndpoints) {
  run_ranks(4, [](Rank& rank) {
    {
      const Group group(*rank.worker, rank.handles, rank.number, Rank::exchange, &rank);
      ASSERT_EQ(group.rank(), rank.number);
      split_and_compare(group);
    }
    rank.barrier();
  });
}

TEST(Given, ALostRankIsNamedAndLeftBehind) {
  run_ranks(4, [](Rank& rank) {
    {
      const Group group(*rank.worker, rank.handles, rank.number, Rank::exchange, &rank);
      group.barrier();
      if (rank.number == 3) {
        for (Endpoint& endpoint : rank.endpoints) endpoint = Endpoint();  // by force
      } else {
        try {
          group.barrier();
          ADD_FAILURE() << "a barrier without rank 3";
        } catch (const Error& error) {
          EXPECT_EQ(error.status(), TW_ERR_PEER_LOST);
          EXPECT_NE(std::string(error.what()).find("rank 3:"), std::string::npos) << error.what();
        }
        const Group left = group.shrink();
        EXPECT_EQ(left.size(), 3u);
        left.barrier();
      }
    }
    rank.barrier();
  });
}

TEST(Given, RanksThatDifferAreRefused) {
  run_ranks(3, [](Rank& rank) {
    tw_group* group = nullptr;
    std::vector<tw_endpoint*> handles = rank.handles;
    if (rank.number == 2) handles[0] = nullptr;
    EXPECT_EQ(tw_group_create(rank.worker->get(), handles.data(), 3, rank.number, Rank::exchange, &rank, nullptr, &group),
              TW_ERR_INVALID);
    EXPECT_EQ(group, nullptr);
    rank.barrier();
  });
}

}  // namespace
}  // namespace thalweg::test
