// SPDX-License-Identifier: Apache-2.0
// Groups whose ranks say that they are of several hosts: which algorithms they choose, and that these give the same.
#include <numeric>

#include "core/worker.hpp"
#include "group_ranks.hpp"
#include "groups/group.hpp"

namespace thalweg::test {
namespace {

/// Ranks of a group that was made when each was of the host of that number.
void run_on_hosts(const std::vector<uint64_t>& hosts, const std::function<void(GroupRank&)>& body) {
  run_group(static_cast<uint32_t>(hosts.size()), [&](GroupRank& rank) {
    EXPECT_EQ(rank.group->ranks_per_host(), hosts.size()) << "all of this machine";
    EXPECT_EQ(tw_group_destroy(std::exchange(rank.group, nullptr)), TW_OK);
    rank.rank.worker->get()->address.host = 7000 + hosts[rank.rank.number];
    rank.make(&rank.group);
    body(rank);
  });
}

std::string chosen(tw_group* group, size_t count) {
  const std::string text = explain(group, "allreduce", count);
  const size_t at = text.find("chosen: ") + 8;
  return text.substr(at, text.find_first_of(",;\n", at) - at);
}

TEST(Hosts, TakeTheAlgorithmsOfHostsWhereThatIsCheaper) {
  run_on_hosts({0, 0, 0, 1, 1, 1}, [](GroupRank& rank) {
    EXPECT_EQ(rank.group->ranks_per_host(), 3u);
    EXPECT_EQ(rank.group->costs.host, 7000u) << "rank 0's costs are all ranks'";
    EXPECT_GT(rank.group->costs.host_message_ns, rank.group->costs.message_ns);
    rank.group->costs.host_byte_ns = 1;  // a network of 1 GB/s
    EXPECT_EQ(chosen(rank.group, 1), "leaders");
    EXPECT_EQ(chosen(rank.group, 1 << 20).rfind("hierarchical_", 0), 0u) << explain(rank.group, "allreduce", 1 << 20);
    for (const size_t count : {size_t{1}, size_t{1} << 20}) {
      const std::string algorithm = chosen(rank.group, count);  // blocking calls may go by memory that all map
      CollectiveOptions options;
      options.algorithm = algorithm.c_str();
      std::vector<int64_t> numbers(count, rank.rank.number + 1);
      ASSERT_EQ(allreduce(rank.group, numbers, TW_REDUCE_SUM, &options), TW_OK) << tw_last_error();
      EXPECT_EQ(numbers, std::vector<int64_t>(count, 21));
    }
  });
}

TEST(Hosts, PartsKnowTheirOwn) {
  run_on_hosts({0, 0, 1, 1}, [](GroupRank& rank) {
    const uint32_t me = static_cast<uint32_t>(rank.rank.number);
    Group pairs, mixed, both;
    tw_group* made = nullptr;
    ASSERT_EQ(tw_group_split(rank.group, me / 2, me, &made), TW_OK) << tw_last_error();
    pairs = Group(made);
    EXPECT_EQ(pairs.get()->ranks_per_host(), 2u);
    ASSERT_EQ(tw_group_split(rank.group, me % 2, me, &made), TW_OK);
    mixed = Group(made);
    EXPECT_EQ(mixed.get()->ranks_per_host(), 1u);
    ASSERT_EQ(tw_group_split(rank.group, 0, me % 2, &made), TW_OK);  // 0 2 1 3
    both = Group(made);
    EXPECT_EQ(both.get()->ranks_per_host(), 0u) << "a host comes twice";
    EXPECT_EQ(both.get()->costs.message_ns, rank.group->costs.message_ns);
    EXPECT_EQ(tw_barrier(both.get(), nullptr, nullptr), TW_OK);
  });
}

TEST(Hosts, OfSeveralSizesAreAllFar) {
  run_on_hosts({0, 0, 0, 1}, [](GroupRank& rank) {
    EXPECT_EQ(rank.group->ranks_per_host(), 0u);
    const std::string text = explain(rank.group, "allreduce", 1);
    EXPECT_NE(text.find("ranks are not spread over hosts evenly, host by host"), std::string::npos) << text;
    // Two messages of recursive doubling, each as between hosts.
    const size_t at = text.find("recursive_doubling");
    ASSERT_NE(at, std::string::npos) << text;
    EXPECT_GE(std::strtod(text.c_str() + at + 18, nullptr) * 1000, 2 * rank.group->costs.host_message_ns) << text;
  });
}

}  // namespace
}  // namespace thalweg::test
