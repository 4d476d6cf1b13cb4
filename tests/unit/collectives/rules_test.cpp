// SPDX-License-Identifier: Apache-2.0
// What collectives refuse; rounding of 8-bit types; averages, factors and functions of the caller's.
#include <sys/mman.h>

#include <bit>
#include <cmath>
#include <random>

#include "collectives/algorithms.hpp"
#include "collectives/elements.hpp"
#include "group_ranks.hpp"
#include "own_queue.hpp"
#include "reference.hpp"

namespace thalweg::test {
namespace {

/// Also where the same buffer was good in the call before.
TEST(CollectiveRules, MemoryThatIsNotMappedAnyMoreIsRefused) {
  run_group(2, [](GroupRank& rank) {
    constexpr size_t kLength = 1u << 20;
    void* const mapped = ::mmap(nullptr, kLength, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(mapped, MAP_FAILED);
    std::vector<int32_t> out(kLength / sizeof(int32_t));
    const auto allreduce = [&] {
      return tw_allreduce(rank.group, mapped, out.data(), out.size(), TW_TYPE_INT32, TW_REDUCE_SUM, nullptr, nullptr);
    };
    EXPECT_EQ(allreduce(), TW_OK) << tw_last_error();
    EXPECT_EQ(tw_barrier(rank.group, nullptr, nullptr), TW_OK);
    ASSERT_EQ(::mprotect(mapped, kLength, PROT_NONE), 0);  // as unmapped, but nothing else comes to its place
    EXPECT_EQ(allreduce(), TW_ERR_UNSUPPORTED);
    EXPECT_EQ(tw_barrier(rank.group, nullptr, nullptr), TW_OK) << "the group goes on";
    ::munmap(mapped, kLength);
  });
}

TEST(CollectiveRules, WhatMakesNoSenseIsRefused) {
  run_group(2, [](GroupRank& rank) {
    tw_group* const group = rank.group;
    alignas(8) char in[64] = {}, out[64] = {};
    tw_collective_options options = TW_COLLECTIVE_OPTIONS_INIT;
    const auto allreduce = [&](const void* send, void* recv, size_t count, uint32_t type, uint32_t op) {
      return tw_allreduce(group, send, recv, count, type, op, &options, nullptr);
    };
    EXPECT_EQ(tw_barrier(nullptr, nullptr, nullptr), TW_ERR_INVALID);
    EXPECT_EQ(allreduce(nullptr, out, 1, TW_TYPE_INT32, TW_REDUCE_SUM), TW_ERR_INVALID);
    EXPECT_EQ(allreduce(in, nullptr, 1, TW_TYPE_INT32, TW_REDUCE_SUM), TW_ERR_INVALID);
    EXPECT_EQ(allreduce(in, TW_IN_PLACE, 1, TW_TYPE_INT32, TW_REDUCE_SUM), TW_ERR_INVALID);
    EXPECT_EQ(allreduce(in + 1, out, 1, TW_TYPE_INT32, TW_REDUCE_SUM), TW_ERR_MISALIGNED);
    EXPECT_EQ(allreduce(in, out, 1, TW_TYPE_BOOL + 1, TW_REDUCE_SUM), TW_ERR_INVALID);
    EXPECT_EQ(allreduce(in, out, 1, TW_TYPE_INT32, TW_REDUCE_USER + 1), TW_ERR_INVALID);
    EXPECT_EQ(allreduce(in, out, 1, TW_TYPE_INT32, TW_REDUCE_USER), TW_ERR_INVALID) << "no function";
    EXPECT_EQ(allreduce(in, out, 1, TW_TYPE_FLOAT32, TW_REDUCE_XOR), TW_ERR_INVALID);
    EXPECT_EQ(allreduce(in, out, 1, TW_TYPE_FLOAT8_E5M2, TW_REDUCE_AND), TW_ERR_INVALID);
    EXPECT_EQ(allreduce(in, out, 1, TW_TYPE_BOOL, TW_REDUCE_SUM), TW_ERR_INVALID);
    EXPECT_EQ(allreduce(in, out, 1, TW_TYPE_INT32, TW_REDUCE_SCALED_SUM), TW_ERR_INVALID);
    EXPECT_EQ(allreduce(in, out, SIZE_MAX / 2, TW_TYPE_INT32, TW_REDUCE_SUM), TW_ERR_INVALID);
    EXPECT_EQ(allreduce(in, in + 8, 4, TW_TYPE_INT32, TW_REDUCE_SUM), TW_ERR_INVALID) << "they overlap";
    EXPECT_EQ(allreduce(in, in, 4, TW_TYPE_INT32, TW_REDUCE_SUM), TW_ERR_INVALID) << "in place is said so";
    EXPECT_EQ(tw_broadcast(group, in, 1, TW_TYPE_INT8, 2, nullptr, nullptr), TW_ERR_INVALID) << "no such root";
    EXPECT_EQ(tw_alltoallv(group, in, nullptr, nullptr, out, nullptr, nullptr, TW_TYPE_INT8, nullptr, nullptr), TW_ERR_INVALID);
    EXPECT_EQ(tw_scan(group, in, out, 1, TW_TYPE_FLOAT32, TW_REDUCE_AVERAGE, nullptr, nullptr), TW_ERR_INVALID);
    options.scale = 2;
    EXPECT_EQ(allreduce(in, out, 1, TW_TYPE_FLOAT32, TW_REDUCE_SUM), TW_ERR_INVALID) << "a factor that is not used";
    options.scale = 0;
    options.flags = 2;
    EXPECT_EQ(allreduce(in, out, 1, TW_TYPE_FLOAT32, TW_REDUCE_SUM), TW_ERR_INVALID);
    options.flags = 0;
    options.algorithm = "of no such name";
    EXPECT_EQ(allreduce(in, out, 1, TW_TYPE_FLOAT32, TW_REDUCE_SUM), TW_ERR_INVALID);
    options.algorithm = nullptr;
    Room near(rank.rank.context, "emulated:0", 64), far(rank.rank.context, "emulated:0", 64);
    EXPECT_EQ(allreduce(near.data(), out, 1, TW_TYPE_FLOAT32, TW_REDUCE_SUM), TW_ERR_UNSUPPORTED) << "in two places";
    EXPECT_EQ(allreduce(near.data(), far.data(), 1, TW_TYPE_FLOAT8_E4M3, TW_REDUCE_SUM), TW_ERR_UNSUPPORTED);
    EXPECT_EQ(tw_barrier(group, nullptr, nullptr), TW_OK) << "nothing of it has begun: " << tw_last_error();
  });
}

/// All codes, and values between them: the nearest, ties to even, saturated.
template <class Narrow>
void check_rounding(uint32_t type, const Narrow& narrow) {
  const Format& format = format_of(type);
  std::mt19937_64 random(std::random_device{}());
  std::vector<float> values = {0.0f, -0.0f, 1e30f, -1e30f, 1e-30f};
  for (unsigned code = 0; code < 256; ++code) {
    const auto value = static_cast<float>(format.value_of(code)), next = static_cast<float>(format.value_of((code + 1) & 255));
    if (!std::isfinite(value) || !std::isfinite(next)) continue;
    values.insert(values.end(), {value, (value + next) / 2, std::nextafter((value + next) / 2, value)});
    values.push_back(value + (next - value) * std::uniform_real_distribution<float>(0, 1)(random));
  }
  for (const float value : values) {
    const double wanted = format.value_of(format.code_of(value)), got = format.value_of(narrow(value));
    EXPECT_EQ(got, wanted) << value << " of type " << type;
  }
  EXPECT_TRUE(std::isnan(format.value_of(narrow(NAN))));
}

/// One element by the library: itself, scaled by a factor that is exactly the value.
unsigned narrowed(uint32_t type, float value) {
  impl::Operation what;
  what.type = type;
  what.op = TW_REDUCE_SCALED_SUM;
  what.scale = value;
  auto code = static_cast<std::byte>(format_of(type).code_of(1));
  impl::scale_host(what, &code, 1, 1);
  return static_cast<unsigned>(code);
}

TEST(CollectiveRules, ShortFloatsRoundToTheNearest) {
  for (const uint32_t type : {TW_TYPE_FLOAT8_E4M3, TW_TYPE_FLOAT8_E5M2})
    check_rounding(type, [&](float value) { return narrowed(type, value); });
}

/// A collective of truth values of one kind, by one algorithm (null: any), blocking or not.
tw_status of_truths(GroupRank& rank, impl::CollectiveKind kind, const std::string& in, std::string* out, uint32_t op,
                    const char* algorithm, bool blocks) {
  tw_collective_options options = TW_COLLECTIVE_OPTIONS_INIT;
  options.algorithm = algorithm;
  tw_request request = TW_REQUEST_NONE, *const posted = blocks ? nullptr : &request;
  const auto each = [&](auto call, size_t count) {
    return call(rank.group, in.data(), out->data(), count, TW_TYPE_BOOL, op, &options, posted);
  };
  tw_status status = TW_OK;
  switch (kind) {
    case impl::CollectiveKind::allreduce:
      status = each(tw_allreduce, in.size());
      break;
    case impl::CollectiveKind::reduce_scatter:
      status = each(tw_reduce_scatter, in.size() / rank.rank.size);
      break;
    case impl::CollectiveKind::scan:
      status = each(tw_scan, in.size());
      break;
    case impl::CollectiveKind::exclusive_scan:
      status = each(tw_exclusive_scan, in.size());
      break;
    default:
      status = tw_reduce(rank.group, in.data(), out->data(), in.size(), TW_TYPE_BOOL, op, 0, &options, posted);
  }
  return status == TW_IN_PROGRESS ? tw_request_finish(request) : status;
}

/// What becomes of them on that rank; where nothing does, `before`.
std::string truths_of(impl::CollectiveKind kind, const std::vector<std::string>& all, uint32_t me, uint32_t op, char before) {
  using Kind = impl::CollectiveKind;
  const uint32_t size = static_cast<uint32_t>(all.size());
  const uint32_t ranks = kind == Kind::scan ? me + 1 : kind == Kind::exclusive_scan ? me : size;
  std::string result(all[0].size(), before);
  if (ranks == 0 || (kind == Kind::reduce && me != 0)) return result;
  const size_t share = result.size() / size, first = kind == Kind::reduce_scatter ? me * share : 0;
  const size_t count = kind == Kind::reduce_scatter ? share : result.size();
  for (size_t i = 0; i < count; ++i) {
    bool value = all[0][first + i] != 0;
    for (uint32_t r = 1; r < ranks; ++r) {
      const bool next = all[r][first + i] != 0;
      value = op == TW_REDUCE_AND ? value && next : op == TW_REDUCE_OR ? value || next : value != next;
    }
    result[i] = value ? 1 : 0;
  }
  return result;
}

/// Of one operand, too: in a group of one, and on the first ranks of a scan.
TEST(CollectiveRules, TruthValuesBecomeZeroOrOneByEveryAlgorithm) {
  using Kind = impl::CollectiveKind;
  constexpr size_t kCount = 420;  // blocks of the same length
  for (const uint32_t size : {1u, 2u, 3u, 5u}) {
    run_group(size, [&](GroupRank& rank) {
      std::string mine = random_bytes(kCount);
      for (char& one : mine) one = static_cast<unsigned char>(one) % 3 == 0 ? '\0' : one;
      std::vector<std::string> all(size, std::string(kCount, '\0'));
      std::string gathered(size * kCount, '\0');
      ASSERT_EQ(Rank::exchange(&rank.rank, mine.data(), kCount, gathered.data()), TW_OK);
      for (uint32_t r = 0; r < size; ++r) all[r] = gathered.substr(r * kCount, kCount);
      for (const Kind kind : {Kind::allreduce, Kind::reduce, Kind::reduce_scatter, Kind::scan, Kind::exclusive_scan}) {
        std::vector<const char*> names{nullptr};
        for (const impl::Algorithm& each : impl::algorithms_of(kind)) {
          if (each.write != nullptr) names.push_back(each.name);
        }
        for (const uint32_t op : {TW_REDUCE_AND, TW_REDUCE_OR, TW_REDUCE_XOR}) {
          for (const char* const name : names) {
            for (const bool blocks : {true, false}) {
              std::string out(kCount, '\x5a');
              const tw_status status = of_truths(rank, kind, mine, &out, op, name, blocks);
              if (status == TW_ERR_UNSUPPORTED) continue;  // not by that one, on all ranks
              ASSERT_EQ(status, TW_OK) << tw_last_error();
              EXPECT_TRUE(out == truths_of(kind, all, rank.rank.number, op, '\x5a'))
                  << impl::kind_name(kind) << " " << (name != nullptr ? name : "any") << " op " << op << " blocks " << blocks
                  << " rank " << rank.rank.number << " of " << size;
            }
          }
        }
      }
    });
  }
}

TEST(CollectiveRules, SumsAreAveragedAndScaled) {
  run_group(3, [](GroupRank& rank) {
    const float in = static_cast<float>(rank.rank.number) + 1;
    float out = 0;
    EXPECT_EQ(tw_allreduce(rank.group, &in, &out, 1, TW_TYPE_FLOAT32, TW_REDUCE_AVERAGE, nullptr, nullptr), TW_OK)
        << tw_last_error();
    EXPECT_EQ(out, 6 * static_cast<float>(1.0 / 3));
    tw_collective_options options = TW_COLLECTIVE_OPTIONS_INIT;
    options.scale = -0.5;
    EXPECT_EQ(tw_allreduce(rank.group, &in, &out, 1, TW_TYPE_FLOAT32, TW_REDUCE_SCALED_SUM, &options, nullptr), TW_OK);
    EXPECT_EQ(out, -3);
    const int32_t whole[3] = {-7 * static_cast<int32_t>(rank.rank.number), 4, -1};
    int32_t shares[3] = {};
    EXPECT_EQ(tw_allreduce(rank.group, whole, shares, 3, TW_TYPE_INT32, TW_REDUCE_AVERAGE, nullptr, nullptr), TW_OK);
    EXPECT_EQ(shares[0], -7);
    EXPECT_EQ(shares[1], 4);
    EXPECT_EQ(shares[2], -1);
    int32_t part = 0;
    EXPECT_EQ(tw_reduce_scatter(rank.group, whole, &part, 1, TW_TYPE_INT32, TW_REDUCE_AVERAGE, nullptr, nullptr), TW_OK);
    EXPECT_EQ(part, rank.rank.number == 0 ? -7 : rank.rank.number == 1 ? 4 : -1);
  });
}

TEST(CollectiveRules, WhatNothingIsBeforeStaysAsItIsAlsoWhereSumsAreScaled) {
  for (const char* const algorithm : {"direct", "chain"}) {
    run_group(3, [&](GroupRank& rank) {
      const float in = 2;
      float out = 40;
      tw_collective_options options = TW_COLLECTIVE_OPTIONS_INIT;
      options.scale = 0.5;
      options.algorithm = algorithm;
      EXPECT_EQ(tw_exclusive_scan(rank.group, &in, &out, 1, TW_TYPE_FLOAT32, TW_REDUCE_SCALED_SUM, &options, nullptr), TW_OK)
          << tw_last_error();
      EXPECT_EQ(out, rank.rank.number == 0 ? 40 : static_cast<float>(rank.rank.number));
    });
  }
}

/// Not commutative: the affine maps x -> a x + b, one after the other, modulo 2^32. As long as an int64.
struct alignas(8) Map {
  uint32_t a, b;
  bool operator==(const Map&) const = default;
};
tw_status compose(const void* from, void* inout, size_t count, void* arg) {
  ++*static_cast<int*>(arg);
  const auto* next = static_cast<const Map*>(from);
  auto* first = static_cast<Map*>(inout);
  for (size_t i = 0; i < count; ++i) first[i] = {next[i].a * first[i].a, next[i].a * first[i].b + next[i].b};
  return TW_OK;
}

/// Of one rank, wherever it combines: by messages and by memory that all map.
TEST(CollectiveRules, AFunctionThatFailsFailsTheGroup) {
  const tw_reduce_function refuses = [](const void*, void*, size_t, void*) { return tw_status{TW_ERR_CANCELED}; };
  const tw_reduce_function strange = [](const void*, void*, size_t, void*) { return tw_status{17}; };
  for (const char* const algorithm : {"direct", "ring", "recursive_doubling", "one_shot"}) {
    for (const bool odd : {false, true}) {
      SCOPED_TRACE(std::string(algorithm) + (odd ? ", no status" : ""));
      run_group(
          4,
          [&](GroupRank& rank) {
            const std::vector<Map> in(300'000, Map{1, 1});
            std::vector<Map> out(in.size());
            int calls = 0;
            tw_collective_options options = TW_COLLECTIVE_OPTIONS_INIT;
            options.reduce = rank.rank.number != 1 ? compose : odd ? strange : refuses;
            options.reduce_arg = &calls;
            options.algorithm = algorithm;
            options.commutative = 1;
            const tw_status expected = odd ? TW_ERR_INVALID : TW_ERR_CANCELED;
            const tw_status status =
                tw_allreduce(rank.group, in.data(), out.data(), in.size(), TW_TYPE_INT64, TW_REDUCE_USER, &options, nullptr);
            if (status == TW_OK) {  // nothing that rank 1 was to combine is in it
              EXPECT_NE(rank.rank.number, 1u);
              EXPECT_TRUE(out == std::vector<Map>(in.size(), Map{1, 4}));
            } else {
              EXPECT_EQ(status, expected);
              EXPECT_NE(std::string(tw_last_error()).find("rank 1"), std::string::npos) << tw_last_error();
            }
            EXPECT_EQ(tw_barrier(rank.group, nullptr, nullptr), expected) << "the group has failed";
          },
          {}, true);
    }
  }
}

TEST(CollectiveRules, AFunctionIsAppliedInTheOrderOfRanks) {
  for (const uint32_t size : {2u, 3u, 5u, 8u}) {
    run_group(size, [&](GroupRank& rank) {
      const auto map = [](uint32_t r) { return Map{r * 2 + 3, r * 5 + 1}; };
      constexpr size_t kCount = 21;
      Map total = map(0), until = total;
      int calls = 0;
      for (uint32_t r = 1; r < size; ++r) {
        const Map next = map(r);
        (void)compose(&next, &total, 1, &calls);
        if (r == rank.rank.number) until = total;
      }
      const std::vector<Map> in(kCount, map(rank.rank.number)), wanted(kCount, total);
      std::vector<Map> out(kCount);
      tw_collective_options options = TW_COLLECTIVE_OPTIONS_INIT;
      options.reduce = compose;
      options.reduce_arg = &calls;
      options.commutative = 0;
      calls = 0;
      EXPECT_EQ(tw_allreduce(rank.group, in.data(), out.data(), kCount, TW_TYPE_INT64, TW_REDUCE_USER, &options, nullptr),
                TW_OK)
          << tw_last_error();
      EXPECT_TRUE(out == wanted);
      EXPECT_EQ(tw_scan(rank.group, in.data(), out.data(), kCount, TW_TYPE_INT64, TW_REDUCE_USER, &options, nullptr), TW_OK);
      EXPECT_TRUE(out == std::vector<Map>(kCount, until));
      const bool root = rank.rank.number == size - 1;
      out = in;
      EXPECT_EQ(tw_reduce(rank.group, root ? TW_IN_PLACE : in.data(), out.data(), kCount, TW_TYPE_INT64, TW_REDUCE_USER,
                          size - 1, &options, nullptr),
                TW_OK);
      EXPECT_TRUE(!root || (out == wanted && calls > 0));
    });
  }
}

/// Else the longer of the two would be copied out of a buffer that holds the shorter.
TEST(CollectiveRules, WhatARankSendsToItselfIsWhatItReceives) {
  run_group(3, [](GroupRank& rank) {
    const uint32_t me = rank.rank.number;
    std::vector<int32_t> in(9, 1), out(12, 2);
    const size_t sent[] = {3, 3, 3};
    size_t received[] = {3, 3, 3};
    ++received[me];
    const auto call = [&](const char* algorithm, tw_request* request) {
      tw_collective_options options = TW_COLLECTIVE_OPTIONS_INIT;
      options.algorithm = algorithm;
      return tw_alltoallv(rank.group, in.data(), sent, nullptr, out.data(), received, nullptr, TW_TYPE_INT32, &options,
                          request);
    };
    for (const char* algorithm : {static_cast<const char*>(nullptr), "direct", "linear", "pairwise"}) {
      EXPECT_EQ(call(algorithm, nullptr), TW_ERR_INVALID) << (algorithm != nullptr ? algorithm : "any");
      EXPECT_NE(std::string(tw_last_error()).find("sends 3 elements to itself, and receives 4"), std::string::npos)
          << tw_last_error();
    }
    tw_request request = TW_REQUEST_NONE;
    EXPECT_EQ(call(nullptr, &request), TW_ERR_INVALID);
    OwnPlan plan(rank, "host");
    Target target = plan.target();
    EXPECT_EQ(tw_plan_alltoallv(plan, rank.group, in.data(), sent, nullptr, out.data(), received, nullptr, TW_TYPE_INT32,
                                &target.options, nullptr),
              TW_ERR_INVALID);
    EXPECT_EQ(out, std::vector<int32_t>(12, 2));
    --received[me];
    EXPECT_EQ(call(nullptr, nullptr), TW_OK) << "nothing of it has begun: " << tw_last_error();
  });
}

}  // namespace
}  // namespace thalweg::test
