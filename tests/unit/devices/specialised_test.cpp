// SPDX-License-Identifier: Apache-2.0
// Which programs have a specialised kernel, and which need a ProgramExecutor.
#include "devices/program/specialised_of.hpp"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

#include "devices/program.hpp"
#include "devices/program/item_share.hpp"
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
    step.word = kind == StepKind::atomic || kind == StepKind::ring || kind == StepKind::await ? &word : nullptr;
    const bool in_channel = kind == StepKind::send || kind == StepKind::post || kind == StepKind::take;
    step.end = !in_channel ? nullptr : kind == StepKind::send ? ends : ends + 1;
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
  expect(both, Poll::none, Move::independent);
  Steps alone;
  alone.add(StepKind::wait);
  alone.add(StepKind::post);
  expect_none(alone);
}

/// Sends to and receives from so many neighbours.
Steps neighbours(uint32_t count, std::vector<char>* ends) {
  ends->resize(2 * count);
  Steps halo;
  for (uint32_t i = 0; i < count; ++i) {
    halo.add(StepKind::post).end = &(*ends)[i];
    halo.add(StepKind::take, {2 * i}).end = &(*ends)[i];
  }
  for (uint32_t i = 0; i < count; ++i) {
    Step& send = halo.add(StepKind::send);
    send.end = &(*ends)[count + i];
    send.bytes = 8 << i % 16;
    send.from = device::contiguous_at(8192);
  }
  return halo;
}

TEST(Specialised, IndependentStepsUpToAWarpsLanes) {
  std::vector<char> ends;
  for (const uint32_t count : {2u, 26u, device::kMostIndependent}) {
    Steps halo = neighbours(count, &ends);
    expect(halo, Poll::none, Move::independent);
    const Specialised found = halo.specialised();
    EXPECT_EQ(found.moves, count);
    EXPECT_EQ(found.polls, count);
    EXPECT_EQ(found.posts, count);
    const std::vector<uint32_t> order = independent_order(halo.steps);
    for (uint32_t i = 0; i < count; ++i) {
      EXPECT_EQ(order[i], 2 * count + i);
      EXPECT_EQ(order[count + i], 2 * i + 1);
      EXPECT_EQ(order[2 * count + i], 2 * i);
    }
    ProgramShape shape;
    ASSERT_EQ(arrange(halo.steps, halo.after, 0, kMostBlocks, &shape), TW_OK);
    EXPECT_EQ(shape.specialised.move, Move::independent);
    std::vector<std::byte> placed(placed_bytes(halo.steps, halo.after, shape));
    place(halo.steps, halo.after, shape, placed.data());
    EXPECT_EQ(
        std::memcmp(placed.data() + halo.steps.size() * sizeof(Step) + halo.after.size() * 4, order.data(), order.size() * 4),
        0);
  }
  expect_none(neighbours(device::kMostIndependent + 1, &ends));
}

/// Whoever has a share counts himself: who shares, in each block and in how many, is what each of them computes of the others.
TEST(ItemShare, SharersKnowHowManyTheyAre) {
  std::mt19937 random(std::random_device{}());
  for (int turn = 0; turn < 3000; ++turn) {
    const uint32_t warps = 1u << random() % 5, blocks = 1u << random() % 7, all = warps * blocks, item = 256u << random() % 3;
    Step step{};
    step.bytes = random() % 3 == 0 ? random() % 5 : random() % (uint64_t{item} * all * 3);
    step.recv_buffer = random() % 3000;
    std::vector<uint32_t> in_block(blocks);
    std::set<uint32_t> having;
    uint32_t sharers = 0;
    for (uint32_t rank = 0; rank < all; ++rank) {
      if (!device::ItemShare{rank, all, item, warps}.has(step)) continue;
      ++sharers;
      ++in_block[rank / warps];
      having.insert(rank / warps);
    }
    for (uint32_t rank = 0; rank < all; ++rank) {
      const device::ItemShare share{rank, all, item, warps};
      ASSERT_EQ(share.sharers(step), sharers);
      ASSERT_EQ(share.sharers_in_block(step), in_block[rank / warps]) << rank << " of " << all;
      ASSERT_EQ(share.blocks(step), having.size());
    }
  }
}

TEST(Specialised, StepsThatWaitForOthersAreNotIndependent) {
  std::vector<char> ends;
  Steps relay = neighbours(3, &ends);  // a send of what has come
  relay.add(StepKind::send, {1}).end = ends.data();
  expect_none(relay);
  Steps twice = neighbours(3, &ends);  // the second message of a channel
  twice.add(StepKind::send).end = twice.steps.back().end;
  twice.steps.back().end = twice.steps[6].end;
  expect_none(twice);
  Steps other = neighbours(3, &ends);  // a receive behind another one's credit
  other.after[0] = 2;
  std::swap(other.after[0], other.after[1]);
  expect_none(other);
  Steps atomic = neighbours(3, &ends);
  atomic.add(StepKind::atomic).atomic_bytes = 8;
  expect_none(atomic);
  Steps bounced = neighbours(3, &ends);  // as many bytes as another step finds
  bounced.copy(4096, 8192, 100);
  bounced.steps.back().word = &Steps::word;
  expect_none(bounced);
  Steps waits;
  for (int i = 0; i < 2; ++i) waits.add(StepKind::wait);
  expect(waits, Poll::none, Move::independent);
}

}  // namespace
}  // namespace thalweg::impl
