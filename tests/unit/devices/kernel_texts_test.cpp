// SPDX-License-Identifier: Apache-2.0
// The text of the library's kernels (devices/kernels/) on the host's machine: a grid of one block of one thread.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "devices/kernels/block_group.hpp"
#include "devices/kernels/copies.hpp"
#include "devices/kernels/independent.hpp"
#include "devices/kernels/persistent.hpp"
#include "devices/kernels/specialised.hpp"
#include "devices/kernels/words.hpp"
#include "devices/program.hpp"
#include "devices/program/specialised_of.hpp"

namespace thalweg::impl::kernels {
namespace {

template <class T>
uint64_t at(T* address) {
  return reinterpret_cast<uint64_t>(address);
}

/// Fresh random bytes, with guards of 64 bytes around what a test may write.
struct Bytes {
  static constexpr size_t kGuard = 64;
  explicit Bytes(size_t bytes) : all(bytes + 2 * kGuard) {
    static std::mt19937 random(std::random_device{}());
    for (unsigned char& byte : all) byte = static_cast<unsigned char>(random());
  }
  unsigned char* data() { return all.data() + kGuard; }
  size_t size() const { return all.size() - 2 * kGuard; }
  std::vector<unsigned char> all;
};

TEST(KernelTexts, WideCopiesAtEveryAlignment) {
  for (size_t to = 0; to < 17; ++to) {
    for (size_t from = 0; from < 17; ++from) {
      Bytes target(3001), source(3001);
      std::vector<unsigned char> expected = target.all;
      const size_t width = 701, rows = 3, pitch = 900;
      uint64_t word = 0;
      for (size_t y = 0; y < rows; ++y)
        std::memcpy(&expected[Bytes::kGuard + to + y * pitch], source.data() + from + y * width, width);
      CopyArguments copy{at(target.data() + to), at(source.data() + from), width, rows, 1, 900, 701, 0, 0, 64, {}};
      copy.ends = {0, at(&word), 7, 0, false};
      copy_wide(copy);
      ASSERT_EQ(target.all, expected) << "from " << from << " to " << to;
      EXPECT_EQ(word, 7u);
    }
  }
}

TEST(KernelTexts, NarrowCopiesOfEveryWord) {
  for (const uint64_t word : {1, 2, 4, 8, 16}) {
    alignas(16) static std::array<unsigned char, 4096> target, source;
    target.fill(0);
    for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<unsigned char>(i * 31 + word);
    std::array<unsigned char, 4096> expected = target;
    const uint64_t width = 3 * word, rows = 5, slices = 4;
    for (uint64_t z = 0; z < slices; ++z) {
      for (uint64_t y = 0; y < rows; ++y) std::memcpy(&expected[z * 512 + y * 64], &source[z * 640 + y * 80], width);
    }
    uint64_t sum = 5;
    copy_narrow(CopyArguments{at(target.data()), at(source.data()), width, rows, slices, 64, 80, 512, 640, word,
                              Ends{0, at(&sum), 3, 0, true}});
    EXPECT_EQ(target, expected) << "words of " << word;
    EXPECT_EQ(sum, 8u);
  }
}

TEST(KernelTexts, BlocksByIndexUnlessAnEarlierWaitExpired) {
  Bytes target(1000), source(1000);
  const BlockPair pairs[] = {{at(target.data()), at(source.data() + 500)}, {at(target.data() + 301), at(source.data() + 3)}};
  std::vector<unsigned char> expected = target.all;
  uint64_t status = 1, word = 0;
  const BlocksArguments blocks{at(pairs), 2, 130, 64, {at(&status), at(&word), 1, 0, false}};
  copy_blocks(blocks);
  EXPECT_EQ(target.all, expected);
  EXPECT_EQ(word, 0u);
  status = 0;
  copy_blocks(blocks);
  std::memcpy(&expected[Bytes::kGuard], source.data() + 500, 130);
  std::memcpy(&expected[Bytes::kGuard + 301], source.data() + 3, 130);
  EXPECT_EQ(target.all, expected);
  EXPECT_EQ(word, 1u);
}

TEST(KernelTexts, AtomicOperationsAndWaits) {
  const uint64_t results[] = {0xf0 + 0x3c, 0xf0 & 0x3c, 0xf0 | 0x3c, 0xf0 ^ 0x3c, 0x3c, 0x3c};
  for (unsigned op = 0; op < 6; ++op) {
    for (const unsigned bytes : {4u, 8u}) {
      uint64_t word = 0xf0, old = 0, signal = 0;
      change({at(&word), 0x3c, 0xf0, at(&old), op, bytes, {0, at(&signal), 9, 0, false}});
      EXPECT_EQ(word, results[op]);
      EXPECT_EQ(old, 0xf0u);
      EXPECT_EQ(signal, 9u);
    }
  }
  uint64_t word = 5, status = 0;
  wait({at(&word), 5, 1, at(&status), 77});
  EXPECT_EQ(status, 0u);
  wait({at(&word), 6, 1000, at(&status), 77});
  EXPECT_EQ(status, 77u) << "it gave up";
}

/// A program of `steps` with room for its state, as devices/program.hpp lays it out.
struct Prepared {
  explicit Prepared(std::vector<device::Step> list, std::vector<uint32_t> numbers = {})
      : steps(std::move(list)), after(std::move(numbers)), state(state_bytes(steps.size()) / 8) {
    after.resize(std::max<size_t>(after.size(), 1));
    common.program = {steps.data(), static_cast<uint32_t>(steps.size()),
                      after.data(), reinterpret_cast<device::ProgramState*>(state.data()),
                      {},           nullptr,
                      nullptr,      0};
    common.program.guard = {&common.program.state->abort_flag, &failure, nullptr, 1'000'000'000};
    common.blocks = 1;
    common.item = 4096;
  }
  template <class Arguments>
  Arguments inlined() const {
    Arguments all{common, {}, {}};
    std::copy(steps.begin(), steps.end(), all.steps);
    std::copy(after.begin(), after.end(), all.after);
    return all;
  }
  template <bool kReduces = false, class Arguments>
  void run(const Arguments& arguments) {
    typename BlockGroup<Arguments, kReduces>::Shared shared;
    std::memset(&shared, 0xaa, sizeof shared);
    run_program<kReduces>(arguments, common, shared);
  }
  std::vector<device::Step> steps;
  std::vector<uint32_t> after;
  std::vector<uint64_t> state;
  device::Failure failure{};
  ProgramArguments common{};
};

device::Step copy_step(Bytes& to, Bytes& from, u64* word) {
  device::Step step{};
  step.kind = device::StepKind::copy;
  step.bytes = from.size();
  step.to = device::contiguous_at(to.data());
  step.from = device::contiguous_at(from.data());
  step.signal = {word, 1, 1, 0};
  return step;
}

device::Step wait_step(u64* word, u64 value) {
  device::Step step{};
  step.kind = device::StepKind::wait;
  step.signal = {word, value, 1, 0};
  return step;
}

TEST(KernelTexts, ProgramsInlineAndPlaced) {
  Bytes a(1003), b(1003), c(1003);
  u64 first = 0, second = 0;
  std::vector<device::Step> steps = {copy_step(b, a, &first), wait_step(&first, 1), copy_step(c, b, &second)};
  steps[2].first_after = 0;
  steps[2].after_count = 1;
  Prepared prepared(steps, {1});
  prepared.run(prepared.inlined<SmallProgram>());
  EXPECT_EQ(std::memcmp(c.data(), a.data(), a.size()), 0);
  EXPECT_EQ(second, 1u);
  std::memset(c.data(), 0, c.size());
  prepared.run(prepared.inlined<LargeProgram>());
  EXPECT_EQ(std::memcmp(c.data(), a.data(), a.size()), 0);
  prepared.run(prepared.common);
  EXPECT_EQ(second, 3u);
  EXPECT_EQ(prepared.common.program.state->runs, 3u);
  EXPECT_EQ(prepared.failure.code, 0);
}

template <Poll kPoll, Move kMove>
void run_as(Prepared& prepared) {
  prepared.common.specialised = specialised_of(prepared.steps, prepared.after);
  ASSERT_TRUE(prepared.common.specialised.poll == kPoll && prepared.common.specialised.move == kMove);
  SpecialisedShared shared;
  std::memset(static_cast<void*>(&shared), 0xaa, sizeof shared);
  run_specialised<kPoll, kMove>(prepared.inlined<SmallProgram>(), prepared.common, shared);
  EXPECT_EQ(prepared.failure.code, 0);
}

TEST(KernelTexts, SpecialisedKernelsOfACopyBehindAWait) {
  Bytes a(777), b(777), c(778);
  u64 there = 1, word = 0, both = 0;
  std::vector<device::Step> steps = {wait_step(&there, 1), copy_step(b, a, &word)};
  steps[1].after_count = 1;
  Prepared one(steps, {0});
  run_as<Poll::wait, Move::sides>(one);
  EXPECT_EQ(std::memcmp(b.data(), a.data(), a.size()), 0);
  EXPECT_EQ(word, 1u);
  EXPECT_EQ(one.common.program.state->runs, 1u);

  std::vector<device::Step> list = {copy_step(b, a, nullptr), copy_step(c, c, &both)};
  Bytes d(778);
  list[1].to = device::contiguous_at(d.data());
  list[0].recv_buffer = 0;
  list[1].recv_buffer = 1;  // the number of its first piece
  Prepared two(list);
  two.common.specialised = specialised_of(two.steps, two.after);
  std::memset(b.data(), 0, b.size());
  two.common.specialised.items = 2;
  SpecialisedShared shared;
  run_specialised<Poll::none, Move::list>(two.inlined<SmallProgram>(), two.common, shared);
  EXPECT_EQ(std::memcmp(b.data(), a.data(), a.size()), 0);
  EXPECT_EQ(std::memcmp(d.data(), c.data(), c.size()), 0);
  EXPECT_EQ(both, 1u);
}

TEST(KernelTexts, SpecialisedSendsToReceiveBuffersOfAnyLayout) {
  constexpr size_t kPitch = 48, kRow = 24;
  for (const size_t bytes : {size_t{8}, size_t{1024}, size_t{777}}) {
    for (const bool rows : {false, true}) {
      Bytes source(bytes), target(2 * bytes + kPitch);
      std::vector<unsigned char> expected = target.all;
      u64 credits[device::kSlots] = {device::slot_word(0, 3)}, flags[device::kSlots] = {};
      std::vector<device::RecvBuffer> recv_buffers(device::kRecvBuffers);
      recv_buffers[3] = {rows ? device::rows_at(target.data(), kRow, kPitch) : device::contiguous_at(target.data()), bytes};
      device::SendEnd end{};
      end.credits = credits;
      end.flags = flags;
      end.recv_buffers = recv_buffers.data();
      device::Step step{};
      step.kind = device::StepKind::send;
      step.bytes = bytes;
      step.from = device::contiguous_at(source.data());
      step.end = &end;
      Prepared one({step});
      run_as<Poll::none, Move::send>(one);
      for (size_t i = 0; i < bytes; ++i) expected[Bytes::kGuard + (rows ? i / kRow * kPitch + i % kRow : i)] = source.data()[i];
      EXPECT_EQ(target.all, expected) << bytes << (rows ? " in rows" : "");
      EXPECT_EQ(flags[0], device::slot_word(0, 0));
    }
  }
}

/// Also one whose room is there no more, or not yet.
TEST(KernelTexts, ASpecialisedSendIntoTooLittleRoomMovesNothing) {
  for (const uint64_t room : {uint64_t{0}, uint64_t{99}}) {
    Bytes source(100), target(100);
    const std::vector<unsigned char> before = target.all;
    u64 credits[device::kSlots] = {device::slot_word(0, 0)}, flags[device::kSlots] = {};
    device::RecvBuffer recv_buffer{device::contiguous_at(target.data()), room};
    device::SendEnd end{};
    end.credits = credits;
    end.flags = flags;
    end.recv_buffers = &recv_buffer;
    device::Step step{};
    step.kind = device::StepKind::send;
    step.bytes = source.size();
    step.from = device::contiguous_at(source.data());
    step.end = &end;
    Prepared one({step});
    one.common.specialised = specialised_of(one.steps, one.after);
    SpecialisedShared shared;
    run_specialised<Poll::none, Move::send>(one.inlined<SmallProgram>(), one.common, shared);
    EXPECT_EQ(target.all, before);
    EXPECT_EQ(one.failure.code, TW_ERR_TRUNCATED);
    EXPECT_EQ(flags[0], device::slot_word(0, static_cast<u64>(-TW_ERR_TRUNCATED)));
  }
}

/// A message each way between two channels of one program, copies with and without a signal, a wait; inline and placed.
TEST(KernelTexts, IndependentStepsInAnyOrder) {
  constexpr size_t kPitch = 48, kRow = 24, kBytes = 777;
  Bytes source(kBytes), target(2 * kBytes + kPitch), a(1003), b(1003), empty(1);
  std::vector<unsigned char> expected = target.all;
  u64 credits[device::kSlots] = {}, flags[device::kSlots] = {}, there = 5, word = 0;
  std::vector<device::RecvBuffer> recv_buffers(device::kRecvBuffers);
  recv_buffers[3] = {device::rows_at(target.data(), kRow, kPitch), kBytes};
  device::SendEnd sender{};
  device::RecvEnd receiver{};
  sender.credits = receiver.credits = credits;
  sender.flags = receiver.flags = flags;
  sender.recv_buffers = recv_buffers.data();
  device::Step take{}, post{}, send{};
  take.kind = device::StepKind::take;
  post.kind = device::StepKind::post;
  send.kind = device::StepKind::send;
  take.end = post.end = &receiver;
  send.end = &sender;
  post.recv_buffer = 3;
  send.from = device::contiguous_at(source.data());
  send.bytes = kBytes;
  device::Step nothing = copy_step(empty, empty, nullptr);
  nothing.bytes = 0;
  Prepared one({wait_step(&there, 5), send, copy_step(b, a, &word), post, take, nothing});
  ProgramShape shape;
  ASSERT_EQ(arrange(one.steps, {}, 1, kMostBlocks, &shape), TW_OK);
  ASSERT_EQ(shape.specialised.move, Move::independent);
  one.common.specialised = shape.specialised;
  one.common.item = shape.item;
  const std::vector<uint32_t> order = independent_order(one.steps);
  ProgramArguments placed = one.common;
  placed.numbers = order.data();
  IndependentShared shared;
  for (u64 run = 0; run < 3; ++run) {
    for (size_t i = 0; i < kBytes; ++i) {
      source.data()[i] ^= static_cast<unsigned char>(run + 7);
      expected[Bytes::kGuard + i / kRow * kPitch + i % kRow] = source.data()[i];
    }
    a.data()[run] ^= 1;
    there = 5 + run;
    if (run == 1) {
      run_independent(placed, placed, shared);
    } else {
      run_independent(one.inlined<LargeProgram>(), one.common, shared);
    }
    EXPECT_EQ(one.failure.code, 0);
    EXPECT_EQ(target.all, expected);
    EXPECT_EQ(std::memcmp(b.data(), a.data(), a.size()), 0);
    EXPECT_EQ(word, run + 1);
    EXPECT_EQ(sender.count, run + 1);
    EXPECT_EQ(receiver.posted, run + 1);
    EXPECT_EQ(receiver.taken, run + 1);
    EXPECT_EQ(one.common.program.state->runs, run + 1);
  }
  one.common.program.guard.limit_ns = 1;  // what it waits for does not come
  run_independent(one.inlined<LargeProgram>(), one.common, shared);
  EXPECT_EQ(one.failure.code, TW_ERR_TIMED_OUT);
  EXPECT_EQ(one.failure.what, 0u);
  EXPECT_EQ(one.failure.expected, 8u);
  EXPECT_EQ(one.failure.found, 7u);
  EXPECT_EQ(one.common.program.state->closed, 4u);
  run_independent(one.inlined<LargeProgram>(), one.common, shared);
  EXPECT_EQ(one.common.program.state->runs, 3u);
}

TEST(KernelTexts, APersistentBlockDoesItsCommandsAndEnds) {
  static persistent::Shared shared;
  std::memset(static_cast<void*>(&shared), 0, sizeof shared);
  Bytes a(5000), b(5000);
  const persistent::Command commands[] = {
      {at(b.data()), at(a.data()), 100, 1}, {at(b.data() + 100), at(a.data() + 100), 4900, 1}, {}};
  for (u32 position = 0; position < 3; ++position) {
    for (u32 i = 0; i < persistent::kWords; ++i)
      shared.slots[position].words[i] = persistent::word_of(commands[position], i, persistent::tag_of(position));
  }
  PersistentShared block{};
  stay<1>({&shared, 1, 0, 1'000'000'000, 2'000'000'000, 1}, block);
  EXPECT_EQ(std::memcmp(b.data(), a.data(), a.size()), 0);
  EXPECT_EQ(shared.started[0], 1u);
  EXPECT_EQ(shared.done[0], 3u);
  EXPECT_EQ(shared.gone[0], 1u);
}

}  // namespace
}  // namespace thalweg::impl::kernels
