// SPDX-License-Identifier: Apache-2.0
// Collectives by the C interface: every kind, type and operation, in place and not, in host memory and an emulated device's, against an
// independent reference. Values are small integers, so that no order of operands rounds.
#include <random>
#include <span>

#include "group_ranks.hpp"
#include "reference.hpp"

namespace thalweg::test {
namespace {

constexpr uint32_t kTypes = TW_TYPE_BOOL + 1;
constexpr uint32_t kSizes[] = {1, 2, 3, 5, 8};

struct Case {
  uint32_t type = TW_TYPE_FLOAT32, op = TW_REDUCE_SUM, root = 0;
  size_t count = 0;
  bool in_place = false;
  const char* place = "host";
  uint64_t seed = 0;
};

/// Rank's `elements` values of a case: every rank knows all of them.
Values values_of(const Case& c, uint32_t rank, size_t elements) {
  std::mt19937_64 random(c.seed * 1000 + rank);
  Values values(elements);
  for (double& value : values) {
    const auto next = static_cast<int>(random() % 1000);
    if (c.type == TW_TYPE_BOOL) {
      value = next % 2;
    } else if (c.op == TW_REDUCE_PRODUCT) {
      value = is_float(c.type) && next % 2 == 0 ? -1 : 1;
    } else if (c.type == TW_TYPE_UINT8) {
      value = next % 31;
    } else if (size_of(c.type) == 1) {
      value = next % 3 - 1;
    } else {
      value = next % 15 - 7;
    }
  }
  return values;
}

std::vector<Values> all_values(const Case& c, uint32_t size, size_t elements) {
  std::vector<Values> all;
  for (uint32_t r = 0; r < size; ++r) all.push_back(values_of(c, r, elements));
  return all;
}

bool takes(uint32_t type, uint32_t op) {
  const bool bits = op == TW_REDUCE_AND || op == TW_REDUCE_OR || op == TW_REDUCE_XOR;
  if (type == TW_TYPE_BOOL) return bits;
  return !bits || !is_float(type);
}

/// One rank's end of a case.
struct End {
  End(GroupRank& one, const Case& what) : rank(one), c(what), me(one.rank.number), size(one.rank.size) {}
  Room room(size_t elements) { return Room(rank.rank.context, c.place, elements * size_of(c.type)); }
  void expect(const Room& got, const Values& values, const char* what) {
    const std::string wanted = encode(c.type, values), found = got.load().substr(0, wanted.size());
    EXPECT_TRUE(found == wanted) << what << " at rank " << me << " of " << size << ": type " << c.type << " operation " << c.op
                                 << " count " << c.count << " root " << c.root << (c.in_place ? " in place " : " ") << c.place;
  }
  void ok(tw_status status, const char* what) { EXPECT_EQ(status, TW_OK) << what << ": " << tw_last_error(); }
  GroupRank& rank;
  const Case c;
  const uint32_t me, size;
};

void check_allreduce(End end) {
  const Case& c = end.c;
  const auto all = all_values(c, end.size, c.count);
  Room send = end.room(c.count), recv = end.room(c.count);
  (c.in_place ? recv : send).store(encode(c.type, all[end.me]));
  end.ok(tw_allreduce(end.rank.group, c.in_place ? TW_IN_PLACE : send.data(), recv.data(), c.count, c.type, c.op, nullptr,
                      nullptr),
         "allreduce");
  end.expect(recv, reduced(c.op, all, 0, end.size, 0, c.count), "allreduce");
}

void check_reduce(End end) {
  const Case& c = end.c;
  const auto all = all_values(c, end.size, c.count);
  const bool root = end.me == c.root, placed = c.in_place && root;
  Room send = end.room(c.count), recv = end.room(c.count);
  (placed ? recv : send).store(encode(c.type, all[end.me]));
  end.ok(tw_reduce(end.rank.group, placed ? TW_IN_PLACE : send.data(), root ? recv.data() : nullptr, c.count, c.type, c.op,
                   c.root, nullptr, nullptr),
         "reduce");
  if (root) end.expect(recv, reduced(c.op, all, 0, end.size, 0, c.count), "reduce");
}

void check_reduce_scatter(End end) {
  const Case& c = end.c;
  const auto all = all_values(c, end.size, c.count * end.size);
  Room send = end.room(c.count * end.size), recv = end.room(c.in_place ? c.count * end.size : c.count);
  (c.in_place ? recv : send).store(encode(c.type, all[end.me]));
  end.ok(tw_reduce_scatter(end.rank.group, c.in_place ? TW_IN_PLACE : send.data(), recv.data(), c.count, c.type, c.op, nullptr,
                           nullptr),
         "reduce_scatter");
  end.expect(recv, reduced(c.op, all, 0, end.size, end.me * c.count, c.count), "reduce_scatter");
}

void check_reduce_scatterv(End end) {
  const Case& c = end.c;
  std::vector<size_t> counts;
  size_t total = 0, before = 0;
  for (uint32_t r = 0; r < end.size; ++r) {
    counts.push_back(r % 3 == 1 ? 0 : c.count + r);
    if (r < end.me) before += counts[r];
    total += counts[r];
  }
  const auto all = all_values(c, end.size, total);
  Room send = end.room(total), recv = end.room(counts[end.me]);
  send.store(encode(c.type, all[end.me]));
  end.ok(tw_reduce_scatterv(end.rank.group, send.data(), recv.data(), counts.data(), c.type, c.op, nullptr, nullptr),
         "reduce_scatterv");
  end.expect(recv, reduced(c.op, all, 0, end.size, before, counts[end.me]), "reduce_scatterv");
}

void check_scan(End end, bool exclusive) {
  const Case& c = end.c;
  const auto all = all_values(c, end.size, c.count);
  Room send = end.room(c.count), recv = end.room(c.count);
  (c.in_place ? recv : send).store(encode(c.type, all[end.me]));
  const std::string before = recv.load();
  const auto call = exclusive ? tw_exclusive_scan : tw_scan;
  end.ok(call(end.rank.group, c.in_place ? TW_IN_PLACE : send.data(), recv.data(), c.count, c.type, c.op, nullptr, nullptr),
         "scan");
  const uint32_t last = exclusive ? end.me : end.me + 1;
  if (last == 0) {
    EXPECT_TRUE(recv.load() == before) << "rank 0's buffer is left as it is";
  } else {
    end.expect(recv, reduced(c.op, all, 0, last, 0, c.count), exclusive ? "exclusive_scan" : "scan");
  }
}

Values joined(const std::vector<Values>& all) {
  Values whole;
  for (const Values& one : all) whole.insert(whole.end(), one.begin(), one.end());
  return whole;
}

void check_broadcast(End end) {
  const Case& c = end.c;
  const Values values = values_of(c, c.root, c.count);
  Room buffer = end.room(c.count);
  if (end.me == c.root) buffer.store(encode(c.type, values));
  end.ok(tw_broadcast(end.rank.group, buffer.data(), c.count, c.type, c.root, nullptr, nullptr), "broadcast");
  end.expect(buffer, values, "broadcast");
}

/// allgather, and gather.
void check_gather(End end, bool rooted) {
  const Case& c = end.c;
  const auto all = all_values(c, end.size, c.count);
  const bool here = !rooted || end.me == c.root, placed = c.in_place && here;
  Room send = end.room(c.count), recv = end.room(c.count * end.size);
  const std::string own = encode(c.type, all[end.me]);
  if (placed) {
    std::string whole(c.count * end.size * size_of(c.type), '\x11');
    whole.replace(end.me * own.size(), own.size(), own);
    recv.store(whole);
  } else {
    send.store(own);
  }
  const void* const from = placed ? TW_IN_PLACE : send.data();
  if (rooted) {
    end.ok(tw_gather(end.rank.group, from, here ? recv.data() : nullptr, c.count, c.type, c.root, nullptr, nullptr), "gather");
  } else {
    end.ok(tw_allgather(end.rank.group, from, recv.data(), c.count, c.type, nullptr, nullptr), "allgather");
  }
  if (here) end.expect(recv, joined(all), rooted ? "gather" : "allgather");
}

struct Shares {
  std::vector<size_t> counts, offsets;
  size_t extent = 0;
};
/// Odd blocks with gaps between them, in the opposite order.
Shares shares(const Case& c, uint32_t size) {
  Shares made;
  for (uint32_t r = 0; r < size; ++r) made.counts.push_back(r % 4 == 2 ? 0 : c.count + 3 * r);
  made.offsets.resize(size);
  for (uint32_t r = size; r-- > 0;) {
    made.offsets[r] = made.extent + 1;
    made.extent += made.counts[r] + 2;
  }
  return made;
}

std::string placed_blocks(const Case& c, const Shares& where, const std::vector<Values>& blocks, char fill) {
  std::string whole(where.extent * size_of(c.type), fill);
  for (size_t r = 0; r < blocks.size(); ++r) {
    const std::string block = encode(c.type, blocks[r]);
    whole.replace(where.offsets[r] * size_of(c.type), block.size(), block);
  }
  return whole;
}

void check_gatherv(End end, bool rooted) {
  const Case& c = end.c;
  const Shares where = shares(c, end.size);
  std::vector<Values> blocks;
  for (uint32_t r = 0; r < end.size; ++r) blocks.push_back(values_of(c, r, where.counts[r]));
  const bool here = !rooted || end.me == c.root;
  Room send = end.room(where.counts[end.me]), recv = end.room(where.extent);
  send.store(encode(c.type, blocks[end.me]));
  if (rooted) {
    end.ok(tw_gatherv(end.rank.group, send.data(), where.counts[end.me], here ? recv.data() : nullptr,
                      here ? where.counts.data() : nullptr, here ? where.offsets.data() : nullptr, c.type, c.root, nullptr,
                      nullptr),
           "gatherv");
  } else {
    end.ok(tw_allgatherv(end.rank.group, send.data(), recv.data(), where.counts.data(), where.offsets.data(), c.type, nullptr,
                         nullptr),
           "allgatherv");
  }
  const bool right = !here || recv.load() == placed_blocks(c, where, blocks, '\x5a');
  EXPECT_TRUE(right) << (rooted ? "gatherv" : "allgatherv");
}

void check_scatter(End end) {
  const Case& c = end.c;
  const Values whole = values_of(c, c.root, c.count * end.size);
  const bool here = end.me == c.root, placed = c.in_place && here;
  Room send = end.room(c.count * end.size), recv = end.room(c.count);
  if (here) send.store(encode(c.type, whole));
  end.ok(tw_scatter(end.rank.group, here ? send.data() : nullptr, placed ? TW_IN_PLACE : recv.data(), c.count, c.type, c.root,
                    nullptr, nullptr),
         "scatter");
  const auto first = whole.begin() + static_cast<long>(end.me * c.count);
  if (!placed) end.expect(recv, Values(first, first + static_cast<long>(c.count)), "scatter");
  if (here) end.expect(send, whole, "the root's input of a scatter");
}

void check_scatterv(End end) {
  const Case& c = end.c;
  const Shares where = shares(c, end.size);
  std::vector<Values> blocks;
  for (uint32_t r = 0; r < end.size; ++r) blocks.push_back(values_of(c, r, where.counts[r]));
  const bool here = end.me == c.root;
  Room send = end.room(where.extent), recv = end.room(where.counts[end.me]);
  if (here) send.store(placed_blocks(c, where, blocks, '\x33'));
  end.ok(
      tw_scatterv(end.rank.group, here ? send.data() : nullptr, here ? where.counts.data() : nullptr,
                  here ? where.offsets.data() : nullptr, recv.data(), where.counts[end.me], c.type, c.root, nullptr, nullptr),
      "scatterv");
  end.expect(recv, blocks[end.me], "scatterv");
}

void check_alltoall(End end) {
  const Case& c = end.c;
  const auto all = all_values(c, end.size, c.count * end.size);
  Room send = end.room(c.count * end.size), recv = end.room(c.count * end.size);
  (c.in_place ? recv : send).store(encode(c.type, all[end.me]));
  end.ok(tw_alltoall(end.rank.group, c.in_place ? TW_IN_PLACE : send.data(), recv.data(), c.count, c.type, nullptr, nullptr),
         "alltoall");
  Values wanted;
  for (uint32_t r = 0; r < end.size; ++r) {
    const auto first = all[r].begin() + static_cast<long>(end.me * c.count);
    wanted.insert(wanted.end(), first, first + static_cast<long>(c.count));
  }
  end.expect(recv, wanted, "alltoall");
}

void check_alltoallv(End end) {
  const Case& c = end.c;
  const auto count = [&](uint32_t from, uint32_t to) { return (from * 5 + to * 3) % 4 == 1 ? 0 : c.count + from + 2 * to; };
  const auto block = [&](uint32_t from, uint32_t to) {
    Case one = c;
    one.seed += to * 77;
    return values_of(one, from, count(from, to));
  };
  std::vector<size_t> sends, receives;
  Values out, wanted;
  for (uint32_t r = 0; r < end.size; ++r) {
    sends.push_back(count(end.me, r));
    receives.push_back(count(r, end.me));
    const Values to = block(end.me, r), from = block(r, end.me);
    out.insert(out.end(), to.begin(), to.end());
    wanted.insert(wanted.end(), from.begin(), from.end());
  }
  Room send = end.room(out.size()), recv = end.room(wanted.size());
  send.store(encode(c.type, out));
  end.ok(tw_alltoallv(end.rank.group, send.data(), sends.data(), nullptr, recv.data(), receives.data(), nullptr, c.type,
                      nullptr, nullptr),
         "alltoallv");
  end.expect(recv, wanted, "alltoallv");
}

void check_reductions(GroupRank& rank, const Case& c) {
  check_allreduce({rank, c});
  check_reduce({rank, c});
  check_reduce_scatter({rank, c});
  check_reduce_scatterv({rank, c});
  check_scan({rank, c}, false);
  check_scan({rank, c}, true);
}
void check_exchanges(GroupRank& rank, const Case& c) {
  check_broadcast({rank, c});
  check_gather({rank, c}, false);
  check_gather({rank, c}, true);
  check_gatherv({rank, c}, false);
  check_gatherv({rank, c}, true);
  check_scatter({rank, c});
  check_scatterv({rank, c});
  check_alltoall({rank, c});
  check_alltoallv({rank, c});
  EXPECT_EQ(tw_barrier(rank.group, nullptr, nullptr), TW_OK) << tw_last_error();
}

class Collectives : public testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Collectives, testing::ValuesIn(kSizes));

uint64_t fresh_seed() { return std::random_device{}(); }

TEST_P(Collectives, ReduceEveryTypeByEveryOperation) {
  const uint64_t seed = fresh_seed();
  run_group(GetParam(), [&](GroupRank& rank) {
    Case c;
    c.seed = seed;
    for (c.type = 0; c.type < kTypes; ++c.type) {
      for (c.op = TW_REDUCE_SUM; c.op <= TW_REDUCE_XOR; ++c.op) {
        if (!takes(c.type, c.op)) continue;
        ++c.seed;
        c.count = 1 + c.seed % 37;
        c.root = static_cast<uint32_t>(c.seed % rank.rank.size);
        for (const bool placed : {false, true}) {
          c.in_place = placed;
          check_reductions(rank, c);
        }
      }
    }
  });
}

TEST_P(Collectives, ExchangeEveryType) {
  const uint64_t seed = fresh_seed();
  run_group(GetParam(), [&](GroupRank& rank) {
    Case c;
    c.seed = seed;
    for (c.type = 0; c.type < kTypes; ++c.type) {
      for (const bool placed : {false, true}) {
        ++c.seed;
        c.count = 1 + c.seed % 53;
        c.root = static_cast<uint32_t>(c.seed % rank.rank.size);
        c.in_place = placed;
        check_exchanges(rank, c);
      }
    }
  });
}

void check_counts(GroupRank& rank, uint64_t seed, std::span<const size_t> counts) {
  Case c;
  c.seed = seed;
  for (const size_t count : counts) {
    ++c.seed;
    c.count = count;
    c.root = static_cast<uint32_t>(c.seed % rank.rank.size);
    c.in_place = c.seed % 2 == 0;
    check_reductions(rank, c);
    check_exchanges(rank, c);
  }
}

TEST_P(Collectives, TakeCountsOfAllSizes) {
  const uint64_t seed = fresh_seed();
  constexpr size_t kCounts[] = {0, 1, 1003, 16'411, 150'001};
  run_group(GetParam(), [&](GroupRank& rank) { check_counts(rank, seed, kCounts); });
}

/// Over shared memory: a flag's line holds 28 elements, a piece of a reduction 16 Ki, a part 64 Ki, and a part of all blocks less.
TEST_P(Collectives, TakeCountsAroundThoseOfParts) {
  const uint64_t seed = fresh_seed();
  constexpr size_t kCounts[] = {2, 3, 7, 8, 9, 14, 27, 28, 29, 1024, 8192, 16'383, 16'384, 16'385, 65'535, 65'536, 65'537};
  run_group(GetParam(), [&](GroupRank& rank) { check_counts(rank, seed, kCounts); });
}

/// Ranks that share no memory.
TEST_P(Collectives, GoByMessages) {
  const uint64_t seed = fresh_seed();
  constexpr size_t kCounts[] = {0, 1, 1003, 16'411};
  RankOptions options;
  options.transport = "tcp";
  run_group(GetParam(), [&](GroupRank& rank) { check_counts(rank, seed, kCounts); }, options);
}

TEST_P(Collectives, WorkInADevicesMemory) {
  const uint64_t seed = fresh_seed();
  run_group(GetParam(), [&](GroupRank& rank) {
    Case c;
    c.seed = seed;
    c.place = rank.rank.number % 2 == 0 ? "emulated:0" : "emulated:1";
    for (c.type = 0; c.type <= TW_TYPE_UINT8; c.type += 2) {
      ++c.seed;
      c.count = c.type == 0 ? 20'011 : 1 + c.seed % 71;
      c.op = c.type % 4 == 0 ? TW_REDUCE_MAX : TW_REDUCE_SUM;
      c.root = static_cast<uint32_t>(c.seed % rank.rank.size);
      c.in_place = c.seed % 2 == 0;
      check_reductions(rank, c);
      check_exchanges(rank, c);
    }
  });
}

/// Each rank's buffers are where they are.
TEST_P(Collectives, TakeOtherMemoryOnOtherRanks) {
  const uint64_t seed = fresh_seed();
  run_group(GetParam(), [&](GroupRank& rank) {
    Case c;
    c.seed = seed;
    c.count = 5'003;
    c.place = rank.rank.number % 2 == 0 ? "emulated:0" : "host";
    check_broadcast({rank, c});
    check_allreduce({rank, c});
    check_gather({rank, c}, false);
    check_alltoall({rank, c});
  });
}

}  // namespace
}  // namespace thalweg::test
