// SPDX-License-Identifier: Apache-2.0
// Programs that fail: waits that expire or are aborted, buffers too short, two runs at once. What failed is named, nothing that
// was not there is announced, and the queue goes on.
#include "tests/gpu/programs.hpp"

namespace thalweg::impl::contract {
namespace {

class ProgramFaults : public Programs {};

constexpr uint64_t kSoon = 30'000'000;

TEST_P(ProgramFaults, AnExpiredWaitIsNamedAndStopsThePlanButNotTheQueue) {
  Site site(GetParam(), device, ordinary);
  const uint64_t words = site.allocate(64), a = site.allocate(40000), b = site.allocate(40000), done = site.pinned(16);
  for (const uint32_t blocks : {1u, 8u}) {
    site.fill(a, 40000);
    const Bytes old = site.fill(b, 40000);
    site.write(words, Bytes(64));
    site.put_word(words, 41);
    Written program(site, blocks);
    program.signal({pointer<device::u64>(done + 8), 9, 0, 0});
    program.wait(words, 42, 0, TW_COMPARE_EQ);
    program.copy(at(b), at(a), 40000, {pointer<device::u64>(done), 1, 0, 0}, {1});
    program.prepare(kSoon);
    site.put_word(done, 0);
    site.put_word(done + 8, 0);
    program.trigger();
    program.finish();
    EXPECT_EQ(program.failed().code, TW_ERR_TIMED_OUT);
    EXPECT_EQ(program.failed().what, 1u);
    EXPECT_EQ(program.failed().expected, 42u);
    EXPECT_EQ(program.failed().found, 41u);
    EXPECT_EQ(site.word(done + 8), 9u);  // what waited for nothing
    site.put_word(words, 42);
    site.put_word(done + 8, 0);
    program.trigger();  // poisoned: it does nothing, at once
    program.finish();
    EXPECT_EQ(program.failed().code, TW_ERR_TIMED_OUT);
    EXPECT_EQ(site.word(done) + site.word(done + 8), 0u);
    EXPECT_EQ(site.read(b, 40000), old);
    site.write(program.state, Bytes(state_bytes(program.steps.size())));  // re-armed
    std::memset(pointer<void>(program.failure), 0, sizeof(device::Failure));
    const Bytes fresh = site.fill(a, 40000);
    program.trigger();
    program.finish();
    program.expect_good();
    EXPECT_EQ(site.word(done), 1u);
    EXPECT_EQ(site.read(b, 40000), fresh);
  }
}

TEST_P(ProgramFaults, TheHostAbortsAWait) {
  Site site(GetParam(), device, ordinary);
  const uint64_t word = site.allocate(8);
  for (const uint32_t blocks : {1u, 4u}) {
    Written program(site, blocks);
    program.wait(word, 1, 0);
    program.prepare();
    program.trigger();
    EXPECT_EQ(site.trigger() == Trigger::caller ? program.advance() : site.queue().query(), TW_IN_PROGRESS);
    __atomic_store_n(pointer<int64_t>(program.abort), int64_t{TW_ERR_PEER_LOST}, __ATOMIC_RELEASE);
    program.finish();
    EXPECT_EQ(program.failed().code, TW_ERR_PEER_LOST);
    EXPECT_EQ(program.failed().what, 0u);
  }
}

TEST_P(ProgramFaults, AReceiveThatIsTooShortFailsBothSides) {
  Site a(GetParam(), device, ordinary), b(GetParam(), other, ordinary);
  const uint64_t from = a.allocate(1000), to = b.allocate(1000);
  a.admit(to, 1000);
  a.fill(from, 1000);
  const Bytes old = b.fill(to, 1000);
  for (const uint32_t blocks : {1u, 4u}) {
    Channel channel(a, b, {{at(to), 999}});
    Written sends(a, blocks), receives(b);
    sends.send(channel.send, at(from), 1000);
    receives.post(channel.recv, 0);
    receives.take(channel.recv);
    sends.prepare();
    receives.prepare();
    receives.trigger();
    receives.advance();
    sends.trigger();
    sends.finish();
    receives.finish();
    EXPECT_EQ(sends.failed().code, TW_ERR_TRUNCATED);
    EXPECT_EQ(receives.failed().code, TW_ERR_TRUNCATED);
    EXPECT_EQ(receives.failed().what, 1u);
    EXPECT_EQ(b.read(to, 1000), old);
  }
}

/// One run waits; another one of the same program, from a graph or from another queue, is refused and changes nothing.
TEST_P(ProgramFaults, TwoRunsAtOnceAreNoticed) {
  if (GetParam() == Trigger::caller) GTEST_SKIP() << "start() refuses it";
  Site a(GetParam(), device, ordinary), b(GetParam(), other, ordinary);
  constexpr size_t kLength = 70003;
  const uint64_t from = a.allocate(kLength), to = b.allocate(kLength);
  a.admit(to, kLength);
  const auto second = a.new_queue();
  for (const uint32_t blocks : {1u, 2u, 16u}) {
    Channel channel(a, b, {{at(to), kLength}});
    Written sends(a, blocks), receives(b);
    sends.send(channel.send, at(from), kLength);
    receives.post(channel.recv, 0);
    receives.take(channel.recv);
    sends.prepare();
    receives.prepare();
    ASSERT_EQ(a.queue().begin_capture(), TW_OK) << last_error();
    ASSERT_EQ(a.queue().run(sends.run), TW_OK) << last_error();
    std::unique_ptr<Graph> graph, again;  // a driver runs one graph once at a time
    ASSERT_EQ(a.queue().end_capture(&graph), TW_OK) << last_error();
    ASSERT_EQ(a.queue().begin_capture(), TW_OK) << last_error();
    ASSERT_EQ(a.queue().run(sends.run), TW_OK) << last_error();
    ASSERT_EQ(a.queue().end_capture(&again), TW_OK) << last_error();
    uint64_t sent = 0;
    for (int turn = 0; turn < 20; ++turn) {
      const Bytes payload = a.fill(from, kLength);
      b.fill(to, kLength);
      ASSERT_EQ(graph->launch(a.queue()), TW_OK) << last_error();
      for (uint32_t block = 0; block < (a.on_device() ? blocks : 1); ++block)
        ASSERT_TRUE(sends.begins(block)) << "turn " << turn << ", block " << block << " of " << blocks;
      ASSERT_EQ(again->launch(*second), TW_OK) << last_error();
      ASSERT_EQ(second->run(sends.run), TW_OK) << last_error();
      ASSERT_EQ(second->synchronize(), TW_OK) << last_error();
      EXPECT_EQ(sends.failed().code, TW_ERR_BUSY);
      EXPECT_EQ(a.queue().query(), TW_IN_PROGRESS);
      std::memset(pointer<void>(sends.failure), 0, sizeof(device::Failure));
      receives.trigger();
      receives.finish();
      ASSERT_EQ(a.queue().synchronize(), TW_OK) << last_error();
      sends.expect_good();
      receives.expect_good();
      ASSERT_EQ(b.read(to, kLength), payload) << blocks << " blocks";
      EXPECT_EQ(a.word(channel.send), ++sent);
      if (a.on_device() && blocks > 1) {
        EXPECT_NE(a.word(sends.state), 0u);  // closed by the refusal
        a.write(sends.state, Bytes(state_bytes(sends.steps.size())));
      }
    }
  }
}

/// The same without looking: launches meet at every point of a run. Whatever the number of runs, each is whole, also when a
/// refusal closes the program.
TEST_P(ProgramFaults, RunsThatMeetAnywhereStayWhole) {
  if (GetParam() == Trigger::caller) GTEST_SKIP() << "start() refuses it";
  Site site(GetParam(), device, ordinary);
  constexpr size_t kLength = 40000;
  const uint64_t from = site.allocate(kLength), to = site.allocate(kLength), counts = site.allocate(16);
  const auto second = site.new_queue();
  for (const auto& [blocks, independent] : {std::pair{1u, false}, {8u, false}, {1u, true}, {8u, true}}) {
    site.write(counts, Bytes(16));
    Written program(site, blocks);
    program.copy(at(to), at(from), independent ? kLength / 2 : kLength, {pointer<device::u64>(counts), 1, 0, 1});
    if (independent) {
      program.copy(at(to + kLength / 2), at(from + kLength / 2), kLength / 2, {pointer<device::u64>(counts + 8), 1, 1, 0});
      for (int i = 0; i < 2; ++i) program.wait(counts, 0, 0);
    } else {
      program.signal({pointer<device::u64>(counts + 8), 1, 1, 0}, {0});
    }
    program.prepare();
    EXPECT_EQ(program.run.shape.specialised.move == device::Move::independent, independent);
    const Bytes payload = site.fill(from, kLength);
    site.fill(to, kLength);
    for (int turn = 0; turn < 300; ++turn) {
      ASSERT_EQ(site.queue().run(program.run), TW_OK) << last_error();
      ASSERT_EQ(second->run(program.run), TW_OK) << last_error();
    }
    ASSERT_EQ(site.queue().synchronize(), TW_OK);
    ASSERT_EQ(second->synchronize(), TW_OK);
    const uint64_t runs = site.word(program.state + offsetof(device::ProgramState, runs));
    EXPECT_GE(runs, 1u);
    EXPECT_LE(runs, 600u);
    EXPECT_EQ(site.word(counts), runs);
    EXPECT_EQ(site.word(counts + 8), runs);
    EXPECT_EQ(site.read(to, kLength), payload);
    const bool closes = site.on_device() && blocks > 1 && runs < 600;
    if (!closes) {
      EXPECT_EQ(program.owner_word(0), 2 * runs);  // free again
    }
    EXPECT_EQ(site.word(program.state) != 0, closes);
    EXPECT_EQ(program.failed().code, runs < 600 ? TW_ERR_BUSY : TW_OK);
  }
}

INSTANTIATE_TEST_SUITE_P(Triggers, ProgramFaults, kTriggers, trigger_name);

}  // namespace
}  // namespace thalweg::impl::contract
