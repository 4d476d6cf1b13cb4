// SPDX-License-Identifier: Apache-2.0
// Programs of more steps than a warp polls at once, or than a launch brings along, run again and again with fresh payload.
#include "tests/gpu/programs.hpp"

namespace thalweg::impl::contract {
namespace {

class LongPrograms : public Programs {};

/// A chain of pieces of rows behind a wait, one signal behind all; every third piece has a signal of its own.
TEST_P(LongPrograms, ChainsOfCopies) {
  Site site(GetParam(), device, ordinary), target(GetParam(), other, ordinary);
  constexpr size_t kPiece = 1536, kRow = 24;
  for (const uint32_t count : {2u, 7u, 12u, 64u, 200u}) {
    const uint64_t from = site.allocate(2 * count * kPiece), to = target.allocate(count * kPiece);
    const uint64_t words = target.allocate(8 * (count + 1)), gate = site.allocate(8);
    site.admit(to, count * kPiece);
    site.admit(words, 8 * (count + 1));
    Written chain(site, count == 7 ? 1 : 0);
    chain.wait(gate, 1, 1);
    for (uint32_t i = 0; i < count; ++i) {
      const Signal own{pointer<device::u64>(words + 8 * i), 1, 1, 0};
      const Side rows{from + 2 * i * kPiece, kRow, {0, 0}, {2 * kRow, 0, 0}, nullptr, 0};
      chain.copy(at(to + i * kPiece), rows, kPiece - i, i % 3 == 0 ? own : Signal{}, {0});
    }
    chain.add(StepKind::signal).signal = {pointer<device::u64>(words + 8 * count), 1, 1, 0};
    chain.steps.back().after_count = count;
    for (uint32_t i = 0; i < count; ++i) chain.numbers.push_back(i + 1);
    chain.prepare();
    for (uint64_t run = 1; run <= 20; ++run) {
      const Bytes payload = site.fill(from, 2 * count * kPiece);
      Bytes wanted = target.fill(to, count * kPiece);
      for (size_t i = 0; i < count; ++i) {
        for (size_t k = 0; k < kPiece - i; ++k)
          wanted[i * kPiece + k] = payload[2 * i * kPiece + k / kRow * 2 * kRow + k % kRow];
      }
      if (run % 2 == 0) site.put_word(gate, run);
      chain.trigger();
      if (run % 2 != 0) site.put_word(gate, run);
      chain.finish();
      chain.expect_good();
      ASSERT_EQ(target.read(to, count * kPiece), wanted) << count << " copies, run " << run;
      for (uint32_t i = 0; i <= count; ++i)
        ASSERT_EQ(target.word(words + 8 * i), i == count || i % 3 == 0 ? run : 0) << i << " of " << count;
    }
  }
}

/// Pieces that are copied on: each block waits for its own share of the first copy only, whose pieces follow each other.
TEST_P(LongPrograms, BlocksCopyOnWhatTheyHaveCopied) {
  Site site(GetParam(), device, ordinary), target(GetParam(), other, ordinary);
  constexpr size_t kPiece = 30000, kLast = 12345;
  for (const uint32_t count : {2u, 5u, 20u}) {
    const size_t length = (count - 1) * kPiece + kLast;
    const uint64_t from = site.allocate(length), between = site.allocate(length), to = target.allocate(length);
    const uint64_t word = target.allocate(8);
    site.admit(to, length);
    site.admit(word, 8);
    Written chain(site, count == 5 ? 4 : 0);
    for (uint32_t i = 0; i < count; ++i) {
      const size_t begin = i * kPiece, bytes = i + 1 == count ? kLast : kPiece;
      chain.copy(at(between + begin), at(from + begin), bytes);
      if (i != 0) {
        chain.steps.back().after_count = 1;
        chain.numbers.push_back(2 * (i - 1) | device::kOwnShare);
      }
      chain.copy(at(to + begin), at(between + begin), bytes, {}, {2 * i | device::kOwnShare});
      chain.steps.back().recv_buffer = 2 * i + 1;
    }
    chain.add(StepKind::signal).signal = {pointer<device::u64>(word), 1, 1, 0};
    chain.steps.back().after_count = count;
    for (uint32_t i = 0; i < count; ++i) chain.numbers.push_back(2 * i + 1);
    chain.prepare();
    for (uint64_t run = 1; run <= 20; ++run) {
      const Bytes payload = site.fill(from, length);
      site.fill(between, length);
      target.fill(to, length);
      chain.trigger();
      chain.finish();
      chain.expect_good();
      ASSERT_EQ(target.read(to, length), payload) << count << " pieces, run " << run;
      ASSERT_EQ(target.word(word), run);
    }
  }
}

/// Neighbours in many directions: a send, a credit and a receive for each, so that most steps are beyond the first 32. Messages are long
/// enough for several warps, each of which must count a channel's messages once; some are empty. Of more than 32 neighbours a
/// ProgramExecutor runs the program.
TEST_P(LongPrograms, ExchangesWithManyNeighbours) {
  Site a(GetParam(), device, ordinary), b(GetParam(), other, ordinary);
  constexpr size_t kLength = 6000, kMost = 33;
  const auto length = [](size_t i) { return i % 5 == 4 ? 0 : kLength - i; };
  const uint64_t out_a = a.allocate(kMost * kLength), in_a = a.allocate(kMost * kLength);
  const uint64_t out_b = b.allocate(kMost * kLength), in_b = b.allocate(kMost * kLength);
  a.admit(in_b, kMost * kLength);
  b.admit(in_a, kMost * kLength);
  for (const auto [neighbours, blocks] : {std::pair{2u, 1u}, {26u, 1u}, {26u, 4u}, {26u, 0u}, {32u, 0u}, {kMost, 0u}}) {
    SCOPED_TRACE(std::to_string(neighbours) + " neighbours, blocks: " + std::to_string(blocks));
    std::deque<Channel> there, back;
    Written one(a, blocks), two(b, blocks);
    for (size_t i = 0; i < neighbours; ++i) {
      there.emplace_back(a, b, std::initializer_list<device::RecvBuffer>{{at(in_b + i * kLength), kLength}});
      back.emplace_back(b, a, std::initializer_list<device::RecvBuffer>{{at(in_a + i * kLength), kLength}});
      one.post(back.back().recv, 0);
      two.post(there.back().recv, 0);
    }
    for (size_t i = 0; i < neighbours; ++i) {
      one.send(there[i].send, at(out_a + i * kLength), length(i));
      two.send(back[i].send, at(out_b + i * kLength), length(i));
      one.take(back[i].recv);
      two.take(there[i].recv);
    }
    one.prepare();
    two.prepare();
    EXPECT_EQ(one.run.shape.specialised.move == device::Move::independent, neighbours <= device::kMostIndependent);
    for (unsigned run = 0; run < 12; ++run) {
      const Bytes to_b = a.fill(out_a, kMost * kLength), to_a = b.fill(out_b, kMost * kLength);
      Bytes wanted_b = b.fill(in_b, kMost * kLength), wanted_a = a.fill(in_a, kMost * kLength);
      for (size_t i = 0; i < neighbours; ++i) {
        const auto begin = static_cast<ptrdiff_t>(i * kLength), end = begin + static_cast<ptrdiff_t>(length(i));
        std::copy(to_b.begin() + begin, to_b.begin() + end, wanted_b.begin() + begin);
        std::copy(to_a.begin() + begin, to_a.begin() + end, wanted_a.begin() + begin);
      }
      one.trigger();
      two.trigger();
      while (one.advance() == TW_IN_PROGRESS) two.advance();
      two.finish();
      one.finish();
      one.expect_good();
      two.expect_good();
      ASSERT_EQ(b.read(in_b, kMost * kLength), wanted_b) << run;
      ASSERT_EQ(a.read(in_a, kMost * kLength), wanted_a) << run;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Triggers, LongPrograms, kTriggers, trigger_name);

}  // namespace
}  // namespace thalweg::impl::contract
