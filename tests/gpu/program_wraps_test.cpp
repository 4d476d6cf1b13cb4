// SPDX-License-Identifier: Apache-2.0
// Programs whose counters are about to wrap: as if they had run for minutes (the counts of blocks) or years (of messages).
#include "devices/persistent/block.hpp"
#include "devices/program/specialised_run.hpp"
#include "tests/gpu/programs.hpp"

namespace thalweg::impl::contract {
namespace {

class ProgramWraps : public Programs {};

constexpr unsigned kRuns = 7;
constexpr uint64_t kBefore = 3;  // runs, messages: from the wrap

/// What the state holds after so many runs; one is over.
void preset(Site& site, const Written& program, uint64_t runs) {
  const uint32_t blocks = program.run.shape.blocks;
  const auto steps = static_cast<uint32_t>(program.steps.size());
  device::ProgramState state{};
  state.runs = runs;
  if (program.run.shape.specialised.known() && blocks > 1) state.arrived = runs * blocks * device::kOneArrived;
  site.put(program.state, state);
  for (uint32_t i = 0; i < steps; ++i) {  // by what shares the step
    const uint64_t word = program.state + sizeof state + 8 * i;
    site.put_word(word, uint32_t(runs * site.word(word)));
  }
  auto* const owners = device::owner_words(pointer<device::ProgramState>(program.state), steps);
  for (uint32_t i = 0; i < blocks; ++i) site.put_word(reinterpret_cast<uint64_t>(owners + i), 2 * runs);
}

enum class Copies : uint8_t { one, chain, independent };
constexpr const char* kCopies[] = {"a copy", "a chain of copies", "copies beside two waits"};

/// With each run the value of the signal behind them grows.
void run_copies(Site& site, uint32_t blocks, Copies form, uint64_t wrap) {
  constexpr size_t kLength = 16 * 1024;
  const uint64_t from = site.allocate(kLength), middle = site.allocate(kLength), to = site.allocate(kLength);
  const uint64_t word = site.pinned(8), first = wrap / blocks - kBefore;
  Written program(site, blocks);
  const Signal signal{pointer<device::u64>(word), 1, 1, 0};
  if (form == Copies::chain) {
    program.copy(at(middle), at(from), kLength);
    program.copy(at(to), at(middle), kLength, signal, {0});
  } else {
    program.copy(at(to), at(from), kLength, signal);
  }
  if (form == Copies::independent) {
    program.copy(at(middle), at(from), kLength / 2);
    program.wait(word, 0, 0);
    program.wait(word, 1, 1);
  }
  program.prepare();
  ASSERT_EQ(program.run.shape.blocks, blocks);
  EXPECT_EQ(program.run.shape.specialised.known(), form != Copies::chain);
  EXPECT_EQ(program.run.shape.specialised.move == device::Move::independent, form == Copies::independent);
  program.trigger();
  program.finish();
  preset(site, program, first);
  site.put_word(word, first);
  for (uint64_t run = first; run < first + kRuns; ++run) {
    const Bytes payload = site.fill(from, kLength);
    program.trigger();
    program.finish();
    program.expect_good();
    ASSERT_EQ(site.word(word), run + 1);
    ASSERT_TRUE(site.read(to, kLength) == payload) << run;
  }
}

TEST_P(ProgramWraps, BlocksThatAreDoneAreCountedBeyond32Bits) {
  Site site(GetParam(), device, ordinary);
  for (const Copies form : {Copies::one, Copies::chain, Copies::independent}) {
    for (const uint32_t blocks : {2u, 8u, 64u}) {
      SCOPED_TRACE(std::string(kCopies[static_cast<size_t>(form)]) + ", blocks: " + std::to_string(blocks));
      run_copies(site, blocks, form, uint64_t{1} << 32);
      if (HasFatalFailure()) return;
    }
  }
}

/// A channel of which so many messages are over: each slot holds the last one's word.
void preset(Site& sender, Site& receiver, const Channel& channel, uint64_t messages) {
  device::SendEnd send;
  std::memcpy(&send, sender.read(channel.send, sizeof send).data(), sizeof send);
  device::RecvEnd recv;
  std::memcpy(&recv, receiver.read(channel.recv, sizeof recv).data(), sizeof recv);
  send.count = recv.posted = recv.taken = messages;
  sender.put(channel.send, send);
  receiver.put(channel.recv, recv);
  for (uint64_t n = messages - device::kSlots; n < messages; ++n) {
    sender.put_word(reinterpret_cast<uint64_t>(send.credits + n % device::kSlots), device::slot_word(n, 0));
    receiver.put_word(reinterpret_cast<uint64_t>(recv.flags + n % device::kSlots), device::slot_word(n, 0));
  }
}

TEST_P(ProgramWraps, MessagesOfAChannelAreCountedBeyond48Bits) {
  Site a(GetParam(), device, ordinary), b(GetParam(), other, ordinary);
  constexpr size_t kLength = 5003;
  for (const uint32_t each : {1u, 2u}) {  // messages of a run; one: by specialised kernels
    const uint64_t from = a.allocate(kLength), to = b.allocate(kLength);
    a.admit(to, kLength);
    Channel channel(a, b, {{at(to), kLength}});
    preset(a, b, channel, (uint64_t{1} << 48) - kBefore);
    Written sends(a, 2), receives(b);
    for (uint32_t i = 0; i < each; ++i) {
      sends.send(channel.send, at(from), kLength);
      receives.post(channel.recv, 0);
      receives.take(channel.recv);
    }
    sends.prepare(2'000'000'000);
    receives.prepare(2'000'000'000);
    EXPECT_EQ(sends.run.shape.specialised.known(), each == 1);
    for (unsigned turn = 0; turn < kRuns; ++turn) {
      const Bytes payload = a.fill(from, kLength);
      receives.trigger();
      sends.trigger();
      while (sends.advance() == TW_IN_PROGRESS) receives.advance();
      receives.finish();
      sends.finish();
      sends.expect_good();
      receives.expect_good();
      ASSERT_TRUE(b.read(to, kLength) == payload) << each << ", " << turn;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ProgramWraps, kTriggers, trigger_name);

/// The polls of a wait are counted in 32 bits, which are over in minutes; the limit goes on from where it began.
TEST(Waits, TheirLimitOutlivesTheCountOfLooks) {
  const device::DirectMachine m;
  device::u64 poison = 0;
  const device::Guard guard{&poison, nullptr, nullptr, 1'000'000};
  const device::TimeoutCheck first = device::check_timeout(m, guard, 0, 0);
  EXPECT_EQ(first.code, 0);
  EXPECT_NE(first.since, 0u);
  const device::TimeoutCheck wrapped = device::check_timeout(m, guard, first.since - 2'000'000, 0);
  EXPECT_EQ(wrapped.code, device::kTimedOut);
}

/// A command's tag is the low half of its position: here for positions about the wrap, also where a slot's earlier command had
/// not been done by all blocks.
TEST(PersistentBlocks, TagsBeyondTheWrapOfPositions) {
  using namespace persistent;
  for (const u64 start : {u64{0}, (u64{1} << 32) - 70, (u64{1} << 32) - 1, u64{1} << 33}) {
    const auto shared = std::make_unique<Shared>();
    std::memset(shared.get(), 0, sizeof *shared);
    for (u64 p = start < kSlots ? 0 : start - kSlots; p < start; ++p) {
      for (u32 i = 0; i < kWords; ++i) shared->slots[p % kSlots].words[i] = word_of({}, i, tag_of(p));
    }
    const Arguments arguments{shared.get(), 1, start, 60'000'000'000, 60'000'000'000, 1};
    Block<OneThreadIo<device::DirectMachine>> block({}, arguments, 0);
    block.begin();
    for (u64 p = start; p < start + 2 * kSlots; ++p) {
      ASSERT_EQ(block.turn(), Turn::idle) << p;
      Bytes from = random_bytes(40), to(40);
      const Command command{reinterpret_cast<u64>(to.data()), reinterpret_cast<u64>(from.data()), 40, 1};
      for (u32 i = kWords; i-- > 0;) {
        ASSERT_EQ(block.turn(), Turn::idle) << p;  // not all of it
        shared->slots[p % kSlots].words[i] = word_of(command, i, tag_of(p));
      }
      ASSERT_EQ(block.turn(), Turn::moved) << p;
      ASSERT_EQ(to, from);
      ASSERT_EQ(shared->done[0], p + 1);
    }
  }
}

}  // namespace
}  // namespace thalweg::impl::contract
