// SPDX-License-Identifier: Apache-2.0
// Which programs have a specialised kernel, and which need a ProgramExecutor.
#include "devices/program/specialised_of.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "devices/program.hpp"
#include "thalweg/device/side.hpp"

namespace thalweg::impl {
namespace {

using device::Move;
using device::Poll;
using device::Specialised;
using device::Step;
using device::StepKind;

struct Steps {
  std::vector<Step> steps;
  std::vector<uint32_t> after;
  Step& add(StepKind kind, std::vector<uint32_t> earlier = {}) {
    Step& step = steps.emplace_back();
    step.kind = kind;
    step.first_after = static_cast<uint32_t>(after.size());
    step.after_count = static_cast<uint32_t>(earlier.size());
    step.signal.word = kind == StepKind::signal || kind == StepKind::wait ? &word : nullptr;
    step.word = &word;
    step.end = kind == StepKind::send ? ends : ends + 1;
    after.insert(after.end(), earlier.begin(), earlier.end());
    return step;
  }
  void copy(uint64_t to, uint64_t from, uint64_t bytes, std::vector<uint32_t> earlier = {}) {
    Step& step = add(StepKind::copy, std::move(earlier));
    step.to = device::contiguous_at(to);
    step.from = device::contiguous_at(from);
    step.bytes = bytes;
  }
  Specialised specialised() const { return specialised_of(steps, after); }
  static inline device::u64 word = 0;
  static inline char ends[2];
};

void expect(const Steps& steps, Poll poll, Move move, uint32_t behind = 0) {
  const Specialised specialised = steps.specialised();
  EXPECT_EQ(specialised.poll, poll);
  EXPECT_EQ(specialised.move, move);
  EXPECT_EQ(specialised.behind, behind);
}
void expect_none(const Steps& steps) { EXPECT_FALSE(steps.specialised().known()); }

TEST(Specialised, OneStep) {
  Steps wait, take, signal, send, ring;
  wait.add(StepKind::wait);
  expect(wait, Poll::wait, Move::none);
  take.add(StepKind::take);
  expect(take, Poll::take, Move::none);
  signal.add(StepKind::signal);
  expect(signal, Poll::none, Move::aligned);
  send.add(StepKind::send);
  expect(send, Poll::none, Move::send);
  for (const StepKind kind : {StepKind::post, StepKind::atomic, StepKind::ring, StepKind::await}) {
    Steps other;
    other.add(kind);
    expect_none(other);
  }
}

TEST(Specialised, OneCopyByItsLayout) {
  for (const auto& [to, from, bytes, move] :
       {std::tuple{4096u, 8192u, 160u, Move::aligned}, std::tuple{4096u, 8192u, 8u, Move::aligned},
        std::tuple{4104u, 8192u, 8u, Move::aligned}, std::tuple{4104u, 8192u, 160u, Move::sides},
        std::tuple{4096u, 8192u, 161u, Move::sides}, std::tuple{4097u, 8192u, 8u, Move::sides}}) {
    Steps one;
    one.copy(to, from, bytes);
    expect(one, Poll::none, move);
  }
  for (const auto& [block, pitch, move] : {std::tuple{8u, 64, Move::rows8}, std::tuple{4u, 60, Move::rows4},
                                           std::tuple{3u, 60, Move::sides}, std::tuple{32u, 64, Move::rows16}}) {
    Steps one;
    one.copy(4096, 8192, 96);
    one.steps[0].from.block = block;
    one.steps[0].from.stride[0] = pitch;
    ProgramShape shape;
    ASSERT_EQ(arrange(one.steps, one.after, 0, kMostBlocks, &shape), TW_OK);
    EXPECT_EQ(shape.specialised.move, move) << block;
  }
}

TEST(Specialised, ALookBeforeAllOfTheMoveOrNone) {
  Steps behind;
  behind.add(StepKind::wait);
  behind.copy(4096, 8192, 160, {0});
  expect(behind, Poll::wait, Move::aligned, 1);
  Steps beside;
  beside.copy(4096, 8192, 160);
  beside.add(StepKind::wait);
  expect(beside, Poll::wait, Move::aligned, 0);
  Steps before;  // the poll is the one that waits
  before.copy(4096, 8192, 160);
  before.add(StepKind::wait, {0});
  expect(before, Poll::wait, Move::aligned, 0);
  Steps half;
  half.add(StepKind::wait);
  half.copy(4096, 8192, 160, {0});
  half.copy(5096, 9192, 160);
  expect_none(half);
  Steps early;  // its signal tells the peer to go on, so it may not come behind the copy, which waits
  early.add(StepKind::wait);
  early.add(StepKind::signal);
  early.copy(4096, 8192, 160, {0});
  expect_none(early);
  Steps late;  // a signal behind the poll, the copy beside it
  late.add(StepKind::wait);
  late.copy(4096, 8192, 160);
  late.add(StepKind::signal, {0, 1});
  expect_none(late);
}

TEST(Specialised, Lists) {
  Steps chain;
  chain.add(StepKind::wait);
  for (uint32_t i = 0; i < 40; ++i) chain.copy(4096 + 128 * i, 65536 + 256 * i, 100, {0});
  chain.add(StepKind::signal, {1, 7, 40});
  expect(chain, Poll::wait, Move::list, 1);
  ProgramShape shape;
  ASSERT_EQ(arrange(chain.steps, chain.after, 0, kMostBlocks, &shape), TW_OK);
  EXPECT_EQ(shape.specialised.items, 40u);
  Steps ordered;
  ordered.copy(4096, 8192, 100);
  ordered.copy(5096, 9192, 100, {0});
  expect_none(ordered);
  Steps told;  // a copy behind a signal
  told.copy(4096, 8192, 100);
  told.add(StepKind::signal, {0});
  told.copy(5096, 9192, 100, {1});
  expect_none(told);
}

TEST(Specialised, Channels) {
  Steps exchange;
  exchange.add(StepKind::send);
  exchange.add(StepKind::post);
  exchange.add(StepKind::take, {1});
  expect(exchange, Poll::take, Move::send, 0);
  Steps answer;
  answer.add(StepKind::post);
  answer.add(StepKind::take, {0});
  answer.add(StepKind::send, {1});
  expect(answer, Poll::take, Move::send, 1);
  Steps again;  // the credit may be given only when the message is gone
  again.add(StepKind::send);
  again.add(StepKind::post, {0});
  again.add(StepKind::take);
  expect_none(again);
  Steps both = exchange;
  both.copy(4096, 8192, 100);
  expect_none(both);
  Steps alone;
  alone.add(StepKind::wait);
  alone.add(StepKind::post);
  expect_none(alone);
}

}  // namespace
}  // namespace thalweg::impl
