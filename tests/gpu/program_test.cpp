// SPDX-License-Identifier: Apache-2.0
// Programs on any back end, on host queues and in the calling thread: every kind of step, every layout.
#include "tests/gpu/programs.hpp"

namespace thalweg::impl::contract {
namespace {

using namespace programs;

TEST_P(Programs, CopiesOfEveryLayoutComeBeforeTheirSignals) {
  Site site(GetParam(), device, ordinary), target(GetParam(), other, ordinary);
  const uint64_t from = site.allocate(kArea), to = target.allocate(kArea), word = target.allocate(8);
  site.admit(to, kArea);
  site.admit(word, 8);
  for (unsigned turn = 0; turn < 60; ++turn) {
    const uint64_t bytes = turn % 4 == 0 ? 8 * (1 + rng()() % 900) : 1 + rng()() % 20000;
    const Bytes payload = site.fill(from, kArea);
    Bytes expected = target.fill(to, kArea);
    const Side source = random_side(site, from, bytes), sink = random_side(site, to, bytes);
    const std::vector<uint64_t> reads = addresses(site, source, bytes), writes = addresses(site, sink, bytes);
    for (uint64_t i = 0; i < bytes; ++i) expected[writes[i] - to] = payload[reads[i] - from];
    target.put_word(word, 0);
    Written program(site, turn % 3 == 0 ? 0 : 1u << turn % 5);
    program.copy(sink, source, bytes, {pointer<device::u64>(word), turn + 1, 0, turn % 2});
    program.prepare();
    program.trigger();
    program.finish();
    program.expect_good();
    ASSERT_EQ(target.word(word), turn + 1);
    ASSERT_EQ(target.read(to, kArea), expected) << bytes << " bytes, block " << source.block << " to " << sink.block;
  }
}

TEST_P(Programs, ChannelsCarryTheNthSendToTheNthReceive) {
  Site a(GetParam(), device, ordinary), b(GetParam(), other, ordinary);
  constexpr size_t kLength = 5003;
  const uint64_t from = a.allocate(kLength), first = b.allocate(kArea), second = b.allocate(kLength + 64);
  a.admit(first, kArea);
  a.admit(second, kLength + 64);
  const Side rows{first + 100, 50, {0, 0}, {61, 0, 0}, nullptr, 0};
  Channel channel(a, b, {{rows, kLength}, {at(second + 3), kLength + 1}});
  Written sends(a, 4), receives(b);
  sends.send(channel.send, at(from), kLength);
  sends.send(channel.send, at(from + 1), kLength - 1, {0});
  receives.post(channel.recv, 0);
  receives.take(channel.recv);
  receives.post(channel.recv, 1);
  receives.take(channel.recv);
  sends.prepare();
  receives.prepare();
  for (unsigned turn = 0; turn < 100; ++turn) {
    const Bytes payload = a.fill(from, kLength);
    Bytes wanted = b.fill(first, kArea), after = b.fill(second, kLength + 64);
    for (size_t i = 0; i < kLength; ++i) wanted[100 + i / 50 * 61 + i % 50] = payload[i];
    std::copy(payload.begin() + 1, payload.end(), after.begin() + 3);
    (turn % 2 == 0 ? sends : receives).trigger();
    (turn % 2 == 0 ? receives : sends).trigger();
    while (sends.advance() == TW_IN_PROGRESS) receives.advance();
    receives.finish();
    sends.finish();
    sends.expect_good();
    receives.expect_good();
    ASSERT_EQ(b.read(first, kArea), wanted) << turn;
    ASSERT_EQ(b.read(second, kLength + 64), after) << turn;
  }
}

/// The last dependency wins: each step copies one cell to another, after every earlier step that touched either.
TEST_P(Programs, StepsKeepTheOrderThatTheirListGives) {
  Site site(GetParam(), device, ordinary);
  constexpr size_t kCell = 3000, kCells = 12, kSteps = 200;
  const uint64_t cells = site.allocate(kCell * kCells);
  for (const uint32_t blocks : {1u, 2u, 16u}) {
    Bytes expected = site.fill(cells, kCell * kCells);
    Written program(site, blocks);
    std::vector<std::pair<size_t, size_t>> moves;
    for (uint32_t i = 0; i < kSteps; ++i) {
      const size_t from = rng()() % kCells, to = (from + 1 + rng()() % (kCells - 1)) % kCells;
      program.copy(at(cells + to * kCell), at(cells + from * kCell), kCell);
      Step& step = program.steps.back();
      step.first_after = static_cast<uint32_t>(program.numbers.size());
      for (uint32_t earlier = 0; earlier < i; ++earlier) {
        const auto [f, t] = moves[earlier];
        if (f == to || t == to || t == from) program.numbers.push_back(earlier);
      }
      step.after_count = static_cast<uint32_t>(program.numbers.size()) - step.first_after;
      moves.emplace_back(from, to);
      std::copy_n(expected.begin() + static_cast<ptrdiff_t>(from * kCell), kCell,
                  expected.begin() + static_cast<ptrdiff_t>(to * kCell));
    }
    program.prepare();
    program.trigger();
    program.finish();
    program.expect_good();
    ASSERT_EQ(site.read(cells, kCell * kCells), expected) << blocks << " blocks";
  }
}

/// Two programs, each of which first names what comes last: nothing may be held up by what stands before it.
TEST_P(Programs, TheOrderOfTheListLocksNothingUp) {
  Site a(GetParam(), device, ordinary), b(GetParam(), other, ordinary);
  const uint64_t at_a = a.allocate(8 * 8), at_b = b.allocate(8 * 8);
  a.admit(at_b, 64);
  b.admit(at_a, 64);
  const auto word = [](uint64_t base, unsigned i) { return pointer<device::u64>(base + 8 * i); };
  for (const uint32_t blocks : {1u, 4u}) {
    Written one(a, blocks), two(b, blocks);
    // one waits for 0, 1, 2, and answers each; two gives 2 at once, 1 when 2 is answered, 0 when 1 is.
    for (uint32_t i = 0; i < 3; ++i) one.wait(at_a + 8 * i, 1, 1);
    for (uint32_t i = 0; i < 3; ++i) one.signal({word(at_b, i), 1, 1, 0}, {i});
    two.wait(at_b, 1, 1);
    two.wait(at_b + 8, 1, 1);
    two.signal({word(at_a, 0), 1, 1, 0}, {1});
    two.wait(at_b + 16, 1, 1);
    two.signal({word(at_a, 1), 1, 1, 0}, {3});
    two.signal({word(at_a, 2), 1, 1, 0});
    one.prepare();
    two.prepare();
    a.write(at_a, Bytes(64));
    b.write(at_b, Bytes(64));
    for (int turn = 0; turn < 50; ++turn) {
      one.trigger();
      two.trigger();
      while (one.advance() == TW_IN_PROGRESS) two.advance();
      one.finish();
      two.finish();
      one.expect_good();
      two.expect_good();
    }
    EXPECT_EQ(b.word(at_b), 50u);
  }
}

TEST_P(Programs, AtomicsRingsAndAwaits) {
  Site site(GetParam(), device, ordinary);
  const uint64_t words = site.allocate(64), doorbell = site.pinned(8), answer = site.pinned(8), done = site.pinned(8),
                 told = site.pinned(16);
  for (const uint32_t blocks : {1u, 8u}) {
    Written program(site, blocks);
    const auto atomic = [&](uint64_t at, uint32_t op, uint32_t bytes, uint64_t operand, uint64_t compare, uint64_t result,
                            std::initializer_list<uint32_t> after) {
      Step& step = program.add(StepKind::atomic, after);
      step.word = pointer<device::u64>(at);
      step.atomic_op = op;
      step.atomic_bytes = bytes;
      step.operand = operand;
      step.operand2 = compare;
      step.result = pointer<device::u64>(result);
    };
    Step& ring = program.add(StepKind::ring);
    ring.word = pointer<device::u64>(doorbell);
    ring.result = pointer<device::u64>(told);  // what it tells is there before the doorbell
    ring.operand = 4711;
    ring.signal = {pointer<device::u64>(told + 8), 100, 3, 0};
    program.add(StepKind::await, {0}).word = pointer<device::u64>(answer);
    atomic(words, TW_ATOMIC_ADD, 8, 5, 0, words + 8, {1});
    atomic(words + 16, TW_ATOMIC_XOR, 4, 0xff, 0, 0, {});
    atomic(words + 24, TW_ATOMIC_CSWAP, 8, 77, 7, words + 32, {});
    program.steps.back().signal = {pointer<device::u64>(done), 3, 2, 0};
    program.prepare();
    site.write(words, Bytes(64));
    site.put_word(words + 24, 7);
    __atomic_store_n(pointer<uint64_t>(doorbell), 0, __ATOMIC_RELEASE);
    __atomic_store_n(pointer<uint64_t>(answer), 0, __ATOMIC_RELEASE);
    for (uint64_t turn = 0; turn < 5; ++turn) {
      program.trigger();
      while (__atomic_load_n(pointer<uint64_t>(doorbell), __ATOMIC_ACQUIRE) != turn + 1) {  // this is the proxy
        program.advance();
        site.poke();
      }
      EXPECT_EQ(site.word(words), 5 * turn);  // it is waiting for the answer
      EXPECT_EQ(*pointer<uint64_t>(told), 4711u);
      EXPECT_EQ(*pointer<uint64_t>(told + 8), 100 + 3 * turn);
      *pointer<uint64_t>(told) = 0;
      __atomic_store_n(pointer<uint64_t>(answer), turn + 1, __ATOMIC_RELEASE);
      program.finish();
      program.expect_good();
      EXPECT_EQ(site.word(words + 8), 5 * turn);
      EXPECT_EQ(site.word(words + 16), turn % 2 == 0 ? 0xffu : 0u);
      EXPECT_EQ(site.word(words + 24), 77u);
      EXPECT_EQ(site.word(words + 32), turn == 0 ? 7u : 77u);
      EXPECT_EQ(site.word(done), 3 + 2 * turn);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Triggers, Programs, kTriggers, trigger_name);

}  // namespace
}  // namespace thalweg::impl::contract
