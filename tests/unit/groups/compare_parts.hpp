// SPDX-License-Identifier: Apache-2.0
// Who is in a group, as its ranks tell each other, and the parts of any group.
#pragma once
#include <gtest/gtest.h>
#include <thalweg/thalweg.hpp>

#include <algorithm>
#include <chrono>
#include <vector>

namespace thalweg::test {

/// Ranks' numbers in `group`, told by each over the group's endpoints.
inline std::vector<uint32_t> names_in(const Group& group, uint32_t mine) {
  tw_worker* worker = tw_group_worker(group.get());
  std::vector<uint32_t> names(group.size());
  std::vector<Request> requests(2 * names.size());
  for (uint32_t i = 0; i < group.size(); ++i) {
    tw_op_options options = TW_OP_OPTIONS_INIT;
    options.source = group.endpoint(i);
    check(tw_recv(worker, &names[i], sizeof mine, 3, UINT64_MAX, &options, requests[2 * i].out()));
    check(tw_send(options.source, &mine, sizeof mine, 3, nullptr, requests[2 * i + 1].out()));
  }
  for (Request& request : requests) check(request.wait(std::chrono::seconds(20)));
  return names;
}

inline void split_and_compare(const Group& group) {
  const uint32_t rank = group.rank(), size = group.size();
  const Group part = group.split(rank % 2, size - rank);  // backwards
  std::vector<uint32_t> expected;
  for (uint32_t i = size; i-- > 0;) {
    if (i % 2 == rank % 2) expected.push_back(i);
  }
  ASSERT_EQ(part.size(), expected.size());
  EXPECT_EQ(expected[part.rank()], rank);
  part.barrier();
  EXPECT_EQ(names_in(part, rank), expected);
  const Group again = part.split(7, part.rank() == 0 ? 1 : 0);  // of a part: its first becomes the last
  ASSERT_EQ(again.size(), part.size());
  std::rotate(expected.begin(), expected.begin() + 1, expected.end());
  EXPECT_EQ(names_in(again, rank), expected);
  group.barrier();
}

}  // namespace thalweg::test
