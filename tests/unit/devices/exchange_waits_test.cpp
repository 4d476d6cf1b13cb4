// SPDX-License-Identifier: Apache-2.0
// How long runs of exchanges and specialised kernels wait, by a clock that the test turns: the limit is of each wait, not of a run.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "devices/program/one_thread_run.hpp"
#include "thalweg/device/side.hpp"

namespace thalweg::impl {
namespace {

using device::u32;
using device::u64;

constexpr u64 kLimit = 1'000;            // ns
constexpr u64 kDelay = kLimit * 6 / 10;  // of a peer, before each of its steps

/// Memory of the host, and the test's time.
struct ClockedMachine : device::DirectMachine {
  explicit ClockedMachine(const u64* clock) : now(clock) {}
  u64 nanoseconds() const { return *now; }
  const u64* now;
};
using Block = OneThreadBlock<ClockedMachine>;

std::vector<std::byte> random_bytes(size_t length) {
  static std::mt19937 random(std::random_device{}());
  std::vector<std::byte> bytes(length);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}
template <class T>
u64 at(std::vector<T>& of) {
  return reinterpret_cast<u64>(of.data());
}

struct RankOfTest {
  std::vector<std::byte> area, input, output;
  std::vector<u64> state = std::vector<u64>(state_bytes(8) / sizeof(u64));
  device::Failure failure{};
};

class WaitsOfRuns : public testing::Test {
 protected:
  static constexpr u32 kMost = 3;
  u64 clock_ = 1;
  RankOfTest ranks_[kMost];

  /// Of one rank with one block.
  ProgramRun run_of(u32 rank) {
    ProgramRun run;
    run.state = at(ranks_[rank].state);
    run.guard = {abort_flag_of(run.state), &ranks_[rank].failure, nullptr, kLimit};
    run.shape.threads = 32;
    return run;
  }
  /// Rank 0 polls often while time passes; then the others do what can be done. Returns the time that all of it took; 0: it does not end.
  u64 take_turns(std::vector<std::unique_ptr<Block>>& blocks) {
    const u64 begin = clock_;
    std::vector<bool> over(blocks.size(), false);
    for (u32 round = 0; round < 1'000; ++round) {
      for (u32 poll = 0; poll < 4 * device::kPollsPerClock && !over[0]; ++poll) {
        if (poll % device::kPollsPerClock == 0) clock_ += kDelay / 4;
        over[0] = blocks[0]->over();
      }
      for (size_t i = 1; i < blocks.size(); ++i) over[i] = over[i] || blocks[i]->over();
      if (std::find(over.begin(), over.end(), false) == over.end()) return clock_ - begin;
    }
    return 0;
  }
  /// Alone: until its run is over.
  void poll_until_over(Block& one) {
    for (u32 poll = 0; poll < 1'000 * device::kPollsPerClock; ++poll) {
      if (poll % device::kPollsPerClock == 0) clock_ += kDelay / 4;
      if (one.over()) return;
    }
    FAIL() << "the run does not end";
  }
};

class WaitsOfExchanges : public WaitsOfRuns {
 protected:
  static constexpr u64 kPiece = 4096, kBytes = 20 * kPiece + 8;

  /// Of `ranks`; what all exchanges of the test have.
  device::Exchange exchange(u32 rank, u32 ranks, u64 room) {
    const device::AreaLayout layout{1, ranks, kPiece};
    for (u32 i = 0; i < ranks; ++i) {
      ranks_[i].area.resize(layout.length());
      if (ranks_[i].input.empty()) ranks_[i].input = random_bytes(room);
      ranks_[i].output.resize(room);
    }
    device::Exchange x{};
    x.rank = rank;
    x.size = ranks;
    x.threads = 32;
    x.bytes = x.share = kBytes;
    x.input = at(ranks_[rank].input);
    x.output = at(ranks_[rank].output);
    x.room_blocks = 1;
    x.unsliced = ranks;
    x.piece = kPiece;
    for (u32 i = 0; i < ranks; ++i) x.areas[i] = at(ranks_[i].area);
    return x;
  }
  /// Every rank's block to every other one, by slots.
  device::Exchange all_to_all(u32 rank, u32 ranks) {
    device::Exchange x = exchange(rank, ranks, ranks * kBytes);
    x.takes = ~u64{0} >> (64 - ranks);
    x.sends = x.takes & ~(u64{1} << rank);
    x.input_stride = x.output_stride = kBytes;
    return x;
  }
  /// Rank 1's input to all, in two phases, by windows.
  device::Exchange broadcast(u32 rank) {
    device::Exchange x = exchange(rank, kMost, kBytes);
    x.symmetric = 1;
    x.unsliced = 1;
    x.slice = (kBytes / 2 + 15) / 16 * 16;
    x.share = x.slice;
    x.cut = kPiece;
    x.takes = rank == 1 ? 0 : u64{1} << 1;
    x.sends = rank == 1 ? 5 : 0;
    for (u32 i = 0; i < kMost; ++i) {
      inputs_[i] = at(ranks_[i].input);
      outputs_[i] = at(ranks_[i].output);
    }
    x.inputs = inputs_;
    x.outputs = outputs_;
    x.place_align = 1;
    return x;
  }
  std::unique_ptr<Block> start(const device::Exchange& x, const device::ExchangeCounts* counts = nullptr) {
    ProgramRun run = run_of(x.rank);
    run.exchange = &x;
    run.counts = counts;
    return std::make_unique<Block>(ClockedMachine(&clock_), run, 0);
  }
  /// The words of rank 0's block.
  device::ExchangeWords& words() { return *reinterpret_cast<device::ExchangeWords*>(ranks_[0].area.data()); }

  u64 inputs_[kMost] = {}, outputs_[kMost] = {};
};

TEST_F(WaitsOfExchanges, ByPieces) {
  std::vector<std::unique_ptr<Block>> blocks;
  for (u32 i = 0; i < 2; ++i) blocks.push_back(start(all_to_all(i, 2)));
  EXPECT_GT(take_turns(blocks), 3 * kLimit);
  for (u32 i = 0; i < 2; ++i) {
    EXPECT_EQ(ranks_[i].failure.code, 0) << i;
    for (u32 of = 0; of < 2; ++of) {
      EXPECT_TRUE(std::equal(ranks_[i].output.begin() + of * kBytes, ranks_[i].output.begin() + (of + 1) * kBytes,
                             ranks_[of].input.begin() + i * kBytes))
          << i << " of " << of;
    }
  }
}

TEST_F(WaitsOfExchanges, ByWindows) {
  std::vector<std::unique_ptr<Block>> blocks;
  for (u32 i = 0; i < kMost; ++i) blocks.push_back(start(broadcast(i)));
  EXPECT_GT(take_turns(blocks), kLimit);
  for (const RankOfTest& rank : ranks_) EXPECT_EQ(rank.failure.code, 0);
  EXPECT_EQ(ranks_[0].output, ranks_[1].input);
  EXPECT_EQ(ranks_[2].output, ranks_[1].input);
}

TEST_F(WaitsOfExchanges, ByCountsInMemory) {
  const u64 counts[2] = {kBytes, kBytes};
  device::ExchangeCounts what{};
  what.send_counts = counts;
  what.row_bytes = 1;
  what.send_capacity = what.recv_capacity = 2 * kBytes;
  std::vector<std::unique_ptr<Block>> blocks;
  for (u32 i = 0; i < 2; ++i) blocks.push_back(start(all_to_all(i, 2), &what));
  EXPECT_GT(take_turns(blocks), 2 * kLimit);
  for (u32 i = 0; i < 2; ++i) {
    EXPECT_EQ(ranks_[i].failure.code, 0) << i;
    EXPECT_TRUE(std::equal(ranks_[i].output.begin() + (1 - i) * kBytes, ranks_[i].output.begin() + (2 - i) * kBytes,
                           ranks_[1 - i].input.begin() + i * kBytes));
  }
}

/// One that comes to a piece, and no further; the group's next run hears why, of whichever protocol it is.
TEST_F(WaitsOfExchanges, EndAtTheLimitAndTellLaterRuns) {
  const device::Exchange x = all_to_all(0, 2), other = all_to_all(1, 2);
  auto one = start(x), peer = start(other);
  EXPECT_FALSE(one->over());
  EXPECT_FALSE(peer->over());
  const u64 begin = clock_;
  poll_until_over(*one);
  EXPECT_GE(clock_ - begin, kLimit);
  EXPECT_LT(clock_ - begin, 3 * kLimit);
  EXPECT_EQ(ranks_[0].failure.code, device::kTimedOut);
  EXPECT_EQ(ranks_[0].failure.found, 1u);
  EXPECT_EQ(ranks_[0].failure.expected, 1u);

  for (const bool windows : {false, true}) {
    RankOfTest later;
    const device::Exchange next = windows ? broadcast(0) : all_to_all(0, 2);
    ProgramRun run = run_of(0);
    run.state = at(later.state);
    run.guard = {abort_flag_of(run.state), &later.failure, nullptr, kLimit};
    run.exchange = &next;
    EXPECT_TRUE(Block(ClockedMachine(&clock_), run, 0).over());
    EXPECT_EQ(later.failure.code, device::kTimedOut);
    EXPECT_EQ(later.failure.found, 1u | device::kEarlierRun);
    EXPECT_EQ(later.failure.expected, 1u);
  }
}

/// A run that is under way has not failed; what a peer may have stored in place of a status is none.
TEST_F(WaitsOfExchanges, OnesUnderWayAreBusy) {
  const device::Exchange x = all_to_all(0, 2);
  auto one = start(x);
  EXPECT_FALSE(one->over());
  for (const int64_t stored : {int64_t{0}, int64_t{1}, int64_t{-1'000'000}}) {
    words().failed = stored;
    RankOfTest later;
    ProgramRun run = run_of(0);
    run.state = at(later.state);
    run.guard = {abort_flag_of(run.state), &later.failure, nullptr, kLimit};
    run.exchange = &x;
    EXPECT_TRUE(Block(ClockedMachine(&clock_), run, 0).over());
    EXPECT_EQ(later.failure.code, device::kBusy);
    EXPECT_EQ(later.failure.found, 0u);
  }
}

/// A message goes when its credit has come, and the run ends when another one has: two waits, each shorter than the limit.
TEST_F(WaitsOfRuns, OfSpecialisedKernels) {
  constexpr u64 kBytes = 1'001;
  RankOfTest& mine = ranks_[0];
  mine.input = random_bytes(kBytes);
  mine.output.resize(kBytes);
  std::vector<u64> credits(device::kSlots), sent(device::kSlots), posted(device::kSlots), flags(device::kSlots);
  std::vector<device::RecvBuffer> buffers(device::kRecvBuffers);
  device::SendEnd send{};
  send.credits = credits.data();
  send.flags = sent.data();
  send.recv_buffers = buffers.data();
  device::RecvEnd recv{};
  recv.credits = posted.data();
  recv.flags = flags.data();
  std::vector<device::Step> steps(3);
  steps[0].kind = device::StepKind::send;
  steps[0].end = &send;
  steps[0].bytes = kBytes;
  steps[0].from = device::contiguous_at(at(mine.input));
  steps[1].kind = device::StepKind::post;
  steps[2].kind = device::StepKind::take;
  steps[1].end = steps[2].end = &recv;
  steps[2].after_count = 1;
  const std::vector<u32> after{1};
  ProgramRun run = run_of(0);
  ASSERT_EQ(arrange(steps, after, 1, 1, &run.shape), TW_OK);
  ASSERT_TRUE(run.shape.specialised.known());
  run.steps = steps;
  run.after = after;
  for (const bool late : {false, true}) {
    SCOPED_TRACE(late);
    mine.state.assign(mine.state.size(), 0);
    mine.failure = {};
    Block block(ClockedMachine(&clock_), run, 0);
    const u64 n = send.count, begin = clock_;
    const auto wait = [&](u64 until) {
      bool over = false;
      while (clock_ < begin + until && !over) {
        for (u32 poll = 0; poll < device::kPollsPerClock && !over; ++poll) over = block.over();
        clock_ += kDelay / 4;
      }
      return over;
    };
    EXPECT_FALSE(wait(kDelay));
    buffers[0].to = device::contiguous_at(at(mine.output));
    buffers[0].capacity = kBytes;
    credits[n % device::kSlots] = device::slot_word(n, 0);
    EXPECT_EQ(wait(late ? 3 * kLimit : 2 * kDelay), late);
    EXPECT_EQ(mine.output, mine.input);
    if (late) break;
    flags[n % device::kSlots] = device::slot_word(n, 0);
    EXPECT_TRUE(block.over());
    EXPECT_EQ(mine.failure.code, 0);
    EXPECT_GT(clock_ - begin, kLimit);
  }
  EXPECT_EQ(mine.failure.code, device::kTimedOut);
  EXPECT_EQ(mine.failure.what, 2u);
}

}  // namespace
}  // namespace thalweg::impl
