// SPDX-License-Identifier: Apache-2.0
// A kernel of one block that waits ahead of a program's: it gives credits, passes when all has come, and at its limit, or when the
// host aborts it, closes the program that is queued behind it.
#include "devices/program/wait_ahead.hpp"
#include "tests/gpu/programs.hpp"

namespace thalweg::impl::contract {
namespace {

/// A receive on a device, whose sender is this test: it reads the credit and stores data and flag itself.
class WaitAhead : public Contract {
 protected:
  void SetUp() override {
    Contract::SetUp();
    if (!kernels()) GTEST_SKIP() << last_error();
  }
  void make(uint64_t limit_ns, uint32_t blocks) {
    site = std::make_unique<programs::Site>(programs::Trigger::device, device, ordinary);
    credits = site->pinned(device::kSlots * 8);
    flags = site->allocate(device::kSlots * 8);
    device::RecvEnd receiver{};
    receiver.credits = programs::pointer<device::u64>(credits);
    receiver.flags = programs::pointer<device::u64>(flags);
    end = site->allocate(sizeof receiver);
    site->put(end, receiver);
    landed = site->allocate(kBytes);
    copied = site->allocate(kBytes);
    program = std::make_unique<programs::Written>(*site, blocks);
    program->post(end, 7);
    program->take(end, {0});
    program->copy(programs::at(copied), programs::at(landed), kBytes, {}, {1});
    program->prepare(limit_ns);
    list.state = programs::pointer<device::ProgramState>(program->state);
    list.guard = program->run.guard;
    list.step_count = static_cast<uint32_t>(program->steps.size());
    list.blocks = program->run.shape.blocks;
    const auto step = [this](uint32_t at) {
      const device::Step& its = program->steps[at];
      return device::AheadStep{its.end, its.kind, at, static_cast<uint32_t>(its.operand), its.recv_buffer};
    };
    list.post[list.posts++] = step(0);
    list.wait[list.waits++] = step(1);
  }
  void trigger() {
    ASSERT_EQ(site->queue().launch(WaitAheadKernel{&list}), TW_OK) << last_error();
    program->trigger();
  }
  /// Until the credit of receive n is there.
  void await_credit(uint64_t n) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (word_at(credits + n % device::kSlots * 8) != device::slot_word(n, 7)) {
      site->poke();
      ASSERT_LT(std::chrono::steady_clock::now(), limit);
    }
  }
  void arrive(uint64_t n) { site->put_word(flags + n % device::kSlots * 8, device::slot_word(n, 0)); }
  /// No block of the program has begun.
  bool untouched() {
    for (uint32_t block = 0; block < list.blocks; ++block) {
      if (program->owner_word(block) % 2 != 0) return false;
    }
    return true;
  }

  static constexpr size_t kBytes = 70'001;
  std::unique_ptr<programs::Site> site;
  std::unique_ptr<programs::Written> program;
  device::WaitAhead list{};
  uint64_t credits = 0, flags = 0, end = 0, landed = 0, copied = 0;
};

TEST_F(WaitAhead, GivesTheCreditAndLetsTheProgramBeginWhenAllHasCome) {
  for (const uint32_t blocks : {1u, 8u}) {
    list = {};
    make(60'000'000'000, blocks);
    for (uint64_t n = 0; n < 2 * device::kSlots + 1; ++n) {
      const programs::Bytes data = site->fill(landed, kBytes);
      site->fill(copied, kBytes);
      trigger();
      await_credit(n);
      EXPECT_TRUE(untouched()) << n;
      arrive(n);
      program->finish();
      program->expect_good();
      EXPECT_TRUE(site->read(copied, kBytes) == data) << n;
      EXPECT_EQ(word_at(credits + n % device::kSlots * 8), device::slot_word(n, 7));  // given again: the same
    }
  }
}

TEST_F(WaitAhead, AtItsLimitTheProgramBehindItDoesNothing) {
  for (const bool aborted : {false, true}) {
    for (const uint32_t blocks : {1u, 8u}) {
      list = {};
      make(aborted ? 60'000'000'000 : 30'000'000, blocks);
      const programs::Bytes before = site->fill(copied, kBytes);
      for (int run = 0; run < 3; ++run) trigger();
      await_credit(0);
      if (aborted)
        __atomic_store_n(programs::pointer<uint64_t>(program->abort), static_cast<uint64_t>(int64_t{TW_ERR_PEER_LOST}),
                         __ATOMIC_RELEASE);
      program->finish();
      EXPECT_EQ(program->failed().code, aborted ? TW_ERR_PEER_LOST : TW_ERR_TIMED_OUT);
      EXPECT_EQ(program->failed().what, 1u);
      EXPECT_EQ(program->failed().expected, 1u);
      EXPECT_EQ(program->failed().found, 0u);
      arrive(0);
      trigger();  // closed: too late
      program->finish();
      EXPECT_TRUE(site->read(copied, kBytes) == before);
      EXPECT_EQ(site->word(program->state + offsetof(device::ProgramState, runs)), 0u);
    }
  }
}

}  // namespace
}  // namespace thalweg::impl::contract
