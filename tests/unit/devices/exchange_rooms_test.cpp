// SPDX-License-Identifier: Apache-2.0
// Runs of exchanges that follow each other, of two ranks in host memory, driven step by step: what a rank that is ahead may not do to
// one that still reads.
#include <gtest/gtest.h>

#include <memory>
#include <random>

#include "devices/program/one_thread_run.hpp"

namespace thalweg::impl {
namespace {

using device::u64;

constexpr uint32_t kRanks = 2, kWords = 20;
constexpr uint64_t kPiece = 4096;

/// One rank's area, buffers and program.
struct RankOfTest {
  explicit RankOfTest(uint64_t area_bytes) : area(area_bytes), state(state_bytes(0)), input(2 * kWords), output(2 * kWords) {}
  std::vector<std::byte> area, state;
  std::vector<u64> input, output;
};

enum class By { words, one_word, lines };

class ExchangeRooms : public testing::TestWithParam<By> {
 protected:
  using Block = OneThreadBlock<device::DirectMachine>;
  const device::AreaLayout layout_{2, kRanks, kPiece};
  RankOfTest ranks_[kRanks]{RankOfTest(layout_.length()), RankOfTest(layout_.length())};

  device::Exchange exchange(uint32_t rank, bool low_latency) {
    device::Exchange x{};
    x.rank = rank;
    x.size = kRanks;
    x.low_latency = low_latency ? 1 : 0;
    x.one_word = low_latency && GetParam() == By::one_word ? 1 : 0;
    if (low_latency && GetParam() == By::lines) x.lines = layout_.lines(0, 0, 0);
    x.threads = 32;
    x.share = kWords * sizeof(u64);
    x.bytes = 2 * x.share;
    x.input = reinterpret_cast<u64>(ranks_[rank].input.data());
    x.output = reinterpret_cast<u64>(ranks_[rank].output.data());
    x.room_blocks = 2;
    x.unsliced = kRanks;
    x.piece = kPiece;
    x.units = layout_.units(0, 0, 0);
    for (uint32_t i = 0; i < kRanks; ++i) x.areas[i] = reinterpret_cast<u64>(ranks_[i].area.data());
    return x;
  }
  device::Exchange sum_of_all(uint32_t rank) {
    device::Exchange x = exchange(rank, true);
    x.reduces = 1;
    x.type = static_cast<uint32_t>(device::ElementType::int64);
    x.op = static_cast<uint32_t>(device::ReduceOp::sum);
    x.takes = 3;
    x.sends = rank == 0 ? 2 : 1;
    return x;
  }
  /// Of so few bytes that the first block has all of them.
  device::Exchange few_by_simple(uint32_t rank) {
    device::Exchange x = exchange(rank, false);
    x.bytes = x.share = 16;
    x.sends = rank == 0 ? 2 : 1;
    x.takes = 3;
    return x;
  }
  /// The second of two blocks.
  std::unique_ptr<Block> start(const device::Exchange& x) {
    ProgramRun run;
    run.shape.blocks = 2;
    run.state = reinterpret_cast<uint64_t>(ranks_[x.rank].state.data());
    run.guard.limit_ns = uint64_t{60} * 1'000'000'000;
    run.shape.threads = x.threads;
    run.exchange = &x;
    return std::make_unique<Block>(device::DirectMachine(), run, 1);
  }
  static void finish(Block& one) {
    for (int i = 0; i < 1000; ++i) {
      if (one.over()) return;
    }
    FAIL() << "the run does not end";
  }
  void fill() {
    std::random_device seed;
    std::mt19937_64 random(seed());
    for (RankOfTest& rank : ranks_) {
      for (u64& word : rank.input) word = random();
    }
  }
  std::vector<u64> sums() const {
    std::vector<u64> all(2 * kWords, 0);
    for (uint32_t i = kWords; i < 2 * kWords; ++i) all[i] = ranks_[0].input[i] + ranks_[1].input[i];
    return all;
  }
};

/// A block without bytes waits for nobody, and is in the next reduction while the other rank still reads the words of the first.
TEST_P(ExchangeRooms, AreNotStoredIntoWhileAnotherRankReads) {
  fill();
  const std::vector<u64> wanted = sums();
  auto behind = start(sum_of_all(1));
  EXPECT_FALSE(behind->over());  // it has begun, and nothing is there
  finish(*start(sum_of_all(0)));
  EXPECT_EQ(ranks_[0].output, wanted);
  finish(*start(few_by_simple(0)));
  for (u64& word : ranks_[0].input) word += 1000;
  auto ahead = start(sum_of_all(0));
  EXPECT_FALSE(ahead->over());  // it has stored all of its words
  finish(*behind);
  EXPECT_EQ(ranks_[1].output, wanted);
  finish(*start(few_by_simple(1)));
  const std::vector<u64> next = sums();
  finish(*start(sum_of_all(1)));
  finish(*ahead);
  EXPECT_EQ(ranks_[0].output, next);
  EXPECT_EQ(ranks_[1].output, next);
}
std::string name_of(const testing::TestParamInfo<By>& one) {
  constexpr const char* kNames[] = {"SeveralWords", "OneWordEach", "Lines"};
  return kNames[static_cast<size_t>(one.param)];
}
INSTANTIATE_TEST_SUITE_P(LL, ExchangeRooms, testing::Values(By::words, By::one_word, By::lines), name_of);

}  // namespace
}  // namespace thalweg::impl
