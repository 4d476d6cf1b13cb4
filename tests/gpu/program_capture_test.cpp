// SPDX-License-Identifier: Apache-2.0
// Captured exchanges, replayed with random delays: nothing but addresses is baked, late partners are waited for.
#include "tests/gpu/programs.hpp"

namespace thalweg::impl::contract {
namespace {

class ProgramCaptures : public Programs {};

/// How often; more on real devices.
unsigned replays() {
  const char* const text = std::getenv("THALWEG_GPU_REPLAYS");
  return text == nullptr ? 1000 : static_cast<unsigned>(std::atoi(text));
}

std::unique_ptr<Graph> captured(Site& site, std::initializer_list<const Written*> programs) {
  std::unique_ptr<Graph> graph;
  EXPECT_EQ(site.queue().begin_capture(), TW_OK) << last_error();
  for (const Written* const one : programs) EXPECT_EQ(site.queue().run(one->run), TW_OK) << last_error();
  EXPECT_EQ(site.queue().end_capture(&graph), TW_OK) << last_error();
  return graph;
}

void dawdle() {
  const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(rng()() % 4 == 0 ? rng()() % 50'000 : 0);
  while (std::chrono::steady_clock::now() < end) {
  }
}

TEST_P(ProgramCaptures, AnExchangeIsReplayedWithFreshPayload) {
  Site a(GetParam(), device, ordinary), b(GetParam(), other, ordinary);
  constexpr size_t kLength = 4099, kRow = 8;
  const uint64_t out_a = a.allocate(kLength), in_a = a.allocate(kLength + 64), out_b = b.allocate(kLength);
  const uint64_t in_b = b.allocate(2 * kLength + 64);
  a.admit(in_b, 2 * kLength + 64);
  b.admit(in_a, kLength + 64);
  const Side rows{in_b + 32, kRow, {0, 0}, {2 * kRow, 0, 0}, nullptr, 0};
  Channel there(a, b, {{rows, kLength}}), back(b, a, {{at(in_a + 32), kLength}});
  Written one(a, 4), two(b);
  for (auto [program, to, from, source] : {std::tuple{&one, &there, &back, out_a}, std::tuple{&two, &back, &there, out_b}}) {
    program->send(to->send, at(source), kLength);  // before the credit that the other side waits for
    program->take(from->recv);
    program->post(from->recv, 0);
    program->prepare();
  }
  const auto graph_a = captured(a, {&one}), graph_b = captured(b, {&two});
  for (unsigned turn = 0; turn < replays(); ++turn) {
    const Bytes to_b = a.fill(out_a, kLength), to_a = b.fill(out_b, kLength);
    ASSERT_EQ((turn % 2 == 0 ? graph_a : graph_b)->launch((turn % 2 == 0 ? a : b).queue()), TW_OK) << last_error();
    dawdle();
    ASSERT_EQ((turn % 2 == 0 ? graph_b : graph_a)->launch((turn % 2 == 0 ? b : a).queue()), TW_OK) << last_error();
    ASSERT_EQ(a.queue().synchronize(), TW_OK) << last_error();
    ASSERT_EQ(b.queue().synchronize(), TW_OK) << last_error();
    const Bytes at_a = a.read(in_a + 32, kLength), at_b = b.read(in_b + 32, 2 * kLength);
    ASSERT_EQ(at_a, to_a) << turn;
    for (size_t i = 0; i < kLength; ++i) ASSERT_EQ(at_b[i / kRow * 2 * kRow + i % kRow], to_b[i]) << turn << ", byte " << i;
  }
  one.expect_good();
  two.expect_good();
}

/// Many replays ahead of each other, without the host: the sender changes its payload in the stream, the receiver checks it
/// there, so that a replay that overtakes another one is seen by a wait that is never fulfilled.
TEST_P(ProgramCaptures, QueuesRunAheadOfEachOther) {
  Site a(GetParam(), device, ordinary), b(GetParam(), other, ordinary);
  constexpr size_t kLength = 8 * 1024;
  const uint64_t from = a.allocate(kLength), to = b.allocate(kLength);
  a.admit(to, kLength);
  Channel channel(a, b, {{at(to), kLength}});
  Written sends(a, 4), receives(b, 2);
  for (const uint64_t word : {from, from + kLength - 8}) {
    Step& step = sends.add(StepKind::atomic);
    step.word = pointer<device::u64>(word);
    step.atomic_bytes = 8;
    step.operand = 1;
  }
  sends.send(channel.send, at(from), kLength, {0, 1});
  receives.post(channel.recv, 0);
  receives.take(channel.recv);
  receives.wait(to, 1, 1, TW_COMPARE_EQ, {1});
  receives.wait(to + kLength - 8, 1, 1, TW_COMPARE_EQ, {1});
  sends.prepare(2'000'000'000);
  receives.prepare(2'000'000'000);
  const auto graph_a = captured(a, {&sends, &sends, &sends}), graph_b = captured(b, {&receives, &receives, &receives});
  const unsigned graphs = replays() / 3;
  std::thread other_side([&] {
    std::mt19937 mine(std::random_device{}());
    for (unsigned i = 0; i < graphs; ++i) {
      if (mine() % 8 == 0) std::this_thread::yield();
      ASSERT_EQ(graph_b->launch(b.queue()), TW_OK) << last_error();
    }
  });
  for (unsigned i = 0; i < graphs; ++i) {
    dawdle();
    ASSERT_EQ(graph_a->launch(a.queue()), TW_OK) << last_error();
  }
  other_side.join();
  while (a.queue().query() == TW_IN_PROGRESS || b.queue().query() == TW_IN_PROGRESS) std::this_thread::yield();
  sends.expect_good();
  receives.expect_good();
  EXPECT_EQ(a.word(channel.send), 3 * graphs);
  EXPECT_EQ(b.word(to + kLength - 8), 3 * graphs);
}

INSTANTIATE_TEST_SUITE_P(Triggers, ProgramCaptures, kQueues, trigger_name);

}  // namespace
}  // namespace thalweg::impl::contract
