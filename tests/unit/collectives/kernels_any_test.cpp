// SPDX-License-Identifier: Apache-2.0
// Collectives by kernels of every type and operation: 8-bit floats, truth values, averages and scaled sums beside all others, with the
// bits that the host's schedules in the order of ranks give.
#include <gmock/gmock.h>

#include "devices/program/elements8.hpp"
#include "own_queue.hpp"
#include "planned_jobs.hpp"

namespace thalweg::test {
namespace {

using ::testing::HasSubstr;

struct Pair {
  uint32_t type, op;
};

std::vector<Pair> all_pairs() {
  std::vector<Pair> all;
  for (uint32_t type = 0; type <= TW_TYPE_BOOL; ++type) {
    for (uint32_t op = 0; op < TW_REDUCE_USER; ++op) {
      const bool bits = op == TW_REDUCE_AND || op == TW_REDUCE_OR || op == TW_REDUCE_XOR;
      if (bits ? is_float(type) : type == TW_TYPE_BOOL) continue;
      if (op == TW_REDUCE_SCALED_SUM && !is_float(type)) continue;
      all.push_back({type, op});
    }
  }
  return all;
}

/// Any bits; of 32 and 64 bits numbers, because a NaN's bits are not promised there.
std::string input_of(uint32_t type, size_t count, std::mt19937_64& random) {
  if (type != TW_TYPE_FLOAT32 && type != TW_TYPE_FLOAT64) {
    std::string bytes(count * size_of(type), '\0');
    for (char& byte : bytes) byte = static_cast<char>(random() % (type == TW_TYPE_BOOL ? 2 : 256));
    return bytes;
  }
  Values values(count);
  for (double& value : values)
    value = std::ldexp(static_cast<double>(random() % 200'003) - 100'001, static_cast<int>(random() % 40) - 20);
  return encode(type, values);
}

enum class Form { allreduce, reduce, reduce_scatter, scan };
constexpr const char* kSchedules[] = {"one_shot", "linear", "linear", "chain"};

/// The host's, or by kernels of a queue. Elements of 8 and 16 bits are rounded by a scan's every step on the host, and once here.
bool same_bits(Form form, Pair what) {
  return form != Form::scan || (what.op != TW_REDUCE_AVERAGE && (!is_float(what.type) || size_of(what.type) >= 4));
}

tw_status run(tw_queue* queue, GroupRank& rank, Form form, Pair what, const void* send, void* recv, size_t count,
              const tw_collective_options& options) {
  tw_group* const group = rank.group;
  const uint32_t root = rank.rank.size - 1;
  void* const at_root = rank.rank.number == root ? recv : nullptr;
  switch (form) {
    case Form::allreduce:
      return queue != nullptr ? tw_allreduce_on(queue, group, send, recv, count, what.type, what.op, &options)
                              : tw_allreduce(group, send, recv, count, what.type, what.op, &options, nullptr);
    case Form::reduce:
      return queue != nullptr ? tw_reduce_to_root_on(queue, group, send, at_root, count, what.type, what.op, root, &options)
                              : tw_reduce(group, send, at_root, count, what.type, what.op, root, &options, nullptr);
    case Form::reduce_scatter:
      return queue != nullptr ? tw_reduce_scatter_on(queue, group, send, recv, count, what.type, what.op, &options)
                              : tw_reduce_scatter(group, send, recv, count, what.type, what.op, &options, nullptr);
    default:
      return queue != nullptr ? tw_scan_on(queue, group, send, recv, count, what.type, what.op, &options)
                              : tw_scan(group, send, recv, count, what.type, what.op, &options, nullptr);
  }
}

class KernelsAny : public testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, KernelsAny, testing::Values(2, 3, 5, 8));

TEST_P(KernelsAny, GivesTheBitsOfTheHost) {
  constexpr size_t kCount = 357;
  const uint64_t seed = fresh_seed();
  run_group(GetParam(), [&](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    OwnQueue queue(rank, place);
    const size_t longest = kCount * 8 * rank.rank.size;
    Room send(rank.rank.context, place.c_str(), longest), recv(rank.rank.context, place.c_str(), longest);
    Room host_send(rank.rank.context, "host", longest), host_recv(rank.rank.context, "host", longest);
    std::mt19937_64 random(seed + rank.rank.number);
    const std::string empty(longest, '\x5a');
    for (const Pair what : all_pairs()) {
      for (const Form form : {Form::allreduce, Form::reduce, Form::reduce_scatter, Form::scan}) {
        if (!same_bits(form, what)) continue;
        const size_t count = kCount - (what.type + what.op) % 5;
        std::string input = input_of(what.type, count * (form == Form::reduce_scatter ? rank.rank.size : 1), random);
        input.resize(longest, '\x11');
        host_send.store(input);
        send.store(input);
        host_recv.store(empty);
        tw_collective_options options = TW_COLLECTIVE_OPTIONS_INIT;
        options.scale = what.op == TW_REDUCE_SCALED_SUM ? 0.37 : 0;
        options.algorithm = kSchedules[static_cast<size_t>(form)];
        ASSERT_EQ(run(nullptr, rank, form, what, host_send.data(), host_recv.data(), count, options), TW_OK) << tw_last_error();
        for (const char* algorithm : {"ll", "simple"}) {
          options.algorithm = algorithm;
          recv.store(empty);
          ASSERT_EQ(run(queue, rank, form, what, send.data(), recv.data(), count, options), TW_OK) << tw_last_error();
          queue.synchronize();
          EXPECT_TRUE(recv.load() == host_recv.load()) << algorithm << " form " << static_cast<int>(form) << " type "
                                                       << what.type << " operation " << what.op << " seed " << seed;
        }
      }
    }
    EXPECT_EQ(tw_queue_check(queue), TW_OK) << tw_last_error();
    rank.rank.barrier();
  });
}

/// Of more than a slot, in place, again and again; another factor is another plan.
TEST(KernelsAnyLong, OfManyPiecesInPlace) {
  constexpr size_t kCount = 300'007;
  const uint64_t seed = fresh_seed();
  run_group(3, [&](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    OwnQueue queue(rank, place);
    const size_t bytes = kCount * sizeof(float);
    Room buffer(rank.rank.context, place.c_str(), bytes), host(rank.rank.context, "host", bytes);
    std::mt19937_64 random(seed + rank.rank.number);
    for (const double factor : {0.25, 1.0 / 3, 3.0}) {
      const std::string input = input_of(TW_TYPE_FLOAT32, kCount, random);
      buffer.store(input);
      host.store(input);
      tw_collective_options options = TW_COLLECTIVE_OPTIONS_INIT;
      options.scale = factor;
      options.algorithm = "one_shot";
      ASSERT_EQ(
          tw_allreduce(rank.group, TW_IN_PLACE, host.data(), kCount, TW_TYPE_FLOAT32, TW_REDUCE_SCALED_SUM, &options, nullptr),
          TW_OK)
          << tw_last_error();
      options.algorithm = "simple";
      ASSERT_EQ(tw_allreduce_on(queue, rank.group, TW_IN_PLACE, buffer.data(), kCount, TW_TYPE_FLOAT32, TW_REDUCE_SCALED_SUM,
                                &options),
                TW_OK)
          << tw_last_error();
      queue.synchronize();
      EXPECT_TRUE(buffer.load() == host.load()) << factor << " seed " << seed;
    }
    rank.rank.barrier();
  });
}

/// By steps nothing of this is combined: refused, with what does it.
TEST(KernelsAnyWithout, KernelsItIsRefused) {
  run_group(2, [](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    OwnQueue queue(rank, place);
    Room room(rank.rank.context, place.c_str(), 64);
    tw_collective_options options = TW_COLLECTIVE_OPTIONS_INIT;
    options.algorithm = "ring";
    const auto allreduce = [&](uint32_t type, uint32_t op) {
      return tw_allreduce_on(queue, rank.group, TW_IN_PLACE, room.data(), 8, type, op, &options);
    };
    EXPECT_EQ(allreduce(TW_TYPE_FLOAT32, TW_REDUCE_AVERAGE), TW_ERR_UNSUPPORTED);
    EXPECT_THAT(tw_last_error(), HasSubstr("kernels scale sums"));
    EXPECT_EQ(allreduce(TW_TYPE_FLOAT8_E4M3, TW_REDUCE_SUM), TW_ERR_UNSUPPORTED);
    EXPECT_THAT(tw_last_error(), HasSubstr("kernels combine elements of float8_e4m3"));
    EXPECT_EQ(allreduce(TW_TYPE_BOOL, TW_REDUCE_OR), TW_ERR_UNSUPPORTED);
    options.algorithm = nullptr;
    EXPECT_EQ(allreduce(TW_TYPE_FLOAT32, TW_REDUCE_USER), TW_ERR_INVALID) << "no function is named";
    EXPECT_EQ(allreduce(TW_TYPE_BOOL, TW_REDUCE_OR), TW_OK) << tw_last_error();
    queue.synchronize();
    rank.rank.barrier();
  });
}

/// Every code means what the format's formula says, and comes back; a NaN has no sign then.
template <class Element>
void check_codes(uint32_t type) {
  for (unsigned code = 0; code < 256; ++code) {
    const double wanted = format_of(type).value_of(code);
    const float value = Element::widen(static_cast<unsigned char>(code));
    if (std::isnan(wanted)) {
      EXPECT_TRUE(std::isnan(value)) << code;
      EXPECT_EQ(Element::narrow(value), 0x7f) << code;
      continue;
    }
    EXPECT_EQ(value, wanted) << code;
    EXPECT_EQ(std::signbit(value), (code & 0x80) != 0) << code;
    EXPECT_EQ(Element::narrow(value), code);
  }
}
TEST(Elements8, EveryCodeIsItsValue) {
  check_codes<thalweg::device::E4M3>(TW_TYPE_FLOAT8_E4M3);
  check_codes<thalweg::device::E5M2>(TW_TYPE_FLOAT8_E5M2);
}

}  // namespace
}  // namespace thalweg::test
