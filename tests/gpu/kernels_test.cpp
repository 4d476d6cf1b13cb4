// SPDX-License-Identifier: Apache-2.0
// The library's kernels on any back end: payload, signal, status.
#include <algorithm>

#include "tests/gpu/contract.hpp"

namespace thalweg::impl::contract {
namespace {

constexpr size_t kGuard = 64;

TEST_F(Contract, CopyKernelsSignalBehindTheirData) {
  if (!kernels()) GTEST_SKIP() << last_error();
  const uint64_t word = make_word(), status = make_word();
  uint64_t expected_word = 0;
  for (Device* const other : devices) {
    if (!device->peer(other->uuid()).access) continue;
    for (const size_t length : {size_t{1}, size_t{15}, size_t{4097}, size_t{70002}, size_t{5000001}}) {
      for (const size_t shift : {size_t{0}, size_t{1}, size_t{4}}) {
        const uint64_t a = allocate(length + kGuard, ordinary), b = allocate(length + 2 * kGuard, ordinary, other);
        const std::vector<std::byte> payload = fill(a, length + kGuard);
        std::vector<std::byte> expected = fill(b, length + 2 * kGuard);
        ASSERT_EQ(queue->admit(Use::kernel, b, length + 2 * kGuard), TW_OK) << last_error();
        ASSERT_EQ(queue->launch(CopyKernel{{b + kGuard, a + shift, length}, {word, 1, true}, status}), TW_OK) << last_error();
        std::copy_n(payload.begin() + static_cast<ptrdiff_t>(shift), length, expected.begin() + kGuard);
        finish();
        EXPECT_EQ(word_at(word), ++expected_word);
        ASSERT_EQ(read(b, length + 2 * kGuard), expected) << length << " shifted by " << shift;
        ASSERT_EQ(queue->launch(CopyKernel{{a, b + kGuard, length}, {}}), TW_OK) << last_error();  // pull
        expected.erase(expected.begin(), expected.begin() + kGuard);
        expected.resize(length);
        ASSERT_EQ(read(a, length), expected) << length << " pulled";
      }
    }
  }
}

TEST_F(Contract, BlocksByList) {
  if (!kernels()) GTEST_SKIP() << last_error();
  constexpr size_t kCount = 300;
  for (const size_t block : {size_t{129}, size_t{4096}, size_t{65536}}) {
    const uint64_t a = allocate(block * kCount, ordinary), b = allocate(block * kCount, ordinary), word = make_word();
    const std::vector<std::byte> source = fill(a, block * kCount);
    std::vector<std::byte> expected = fill(b, block * kCount);
    const uint64_t list = allocate(kCount * sizeof(BlockPair), MemoryKind::pinned);
    auto* const pairs = reinterpret_cast<BlockPair*>(list);
    for (size_t i = 0; i < kCount / 2; ++i) {
      const size_t from = (i * 7) % kCount, to = (i * 13 + 5) % kCount;
      pairs[i] = {b + block * to, a + block * from};
      std::memcpy(&expected[block * to], &source[block * from], block);
    }
    ASSERT_EQ(queue->launch(BlocksKernel{list, kCount / 2, block, {word, 9, false}}), TW_OK) << last_error();
    finish();
    EXPECT_EQ(word_at(word), 9u);
    EXPECT_EQ(read(b, block * kCount), expected) << block;
  }
}

uint64_t after(AtomicOp op, uint64_t held, uint64_t operand, uint64_t compare) {
  const uint64_t results[] = {held + operand, held & operand, held | operand,
                              held ^ operand, operand,        held == compare ? operand : held};
  return results[static_cast<size_t>(op)];
}

TEST_F(Contract, AtomicsChangeOneWordAndSayWhatItHeld) {
  if (!kernels()) GTEST_SKIP() << last_error();
  std::mt19937_64 rng(std::random_device{}());
  const uint64_t old = make_word(), signal = make_word(), status = make_word();
  uint64_t signals = 0;
  for (Device* const other : devices) {
    if (!device->peer(other->uuid()).atomics) continue;
    const uint64_t words = allocate(3 * 8, ordinary, other);
    ASSERT_EQ(queue->admit(Use::kernel, words, 3 * 8), TW_OK) << last_error();
    for (const unsigned bytes : {4u, 8u}) {
      const uint64_t mask = bytes == 4 ? ~uint32_t{0} : ~uint64_t{0}, word = words + 8 + (bytes == 4 ? 4 : 0);
      for (unsigned op = 0; op <= static_cast<unsigned>(AtomicOp::compare_swap); ++op) {
        for (const bool equal : {false, true}) {
          std::vector<std::byte> expected = fill(words, 3 * 8);
          uint64_t held = 0;
          std::memcpy(&held, &expected[word - words], bytes);
          const uint64_t operand = rng() & mask, compare = equal ? held : ~held & mask;
          const uint64_t result = after(static_cast<AtomicOp>(op), held, operand, compare) & mask;
          std::memcpy(&expected[word - words], &result, bytes);
          const AtomicKernel kernel{word, operand, compare, old, static_cast<AtomicOp>(op), bytes, {signal, 1, true}, status};
          ASSERT_EQ(queue->launch(kernel), TW_OK) << last_error();
          finish();
          EXPECT_EQ(read(words, 3 * 8), expected) << "operation " << op << " of " << bytes << " bytes";
          EXPECT_EQ(word_at(old), held);
          EXPECT_EQ(word_at(signal), ++signals);
        }
      }
    }
  }
  EXPECT_GT(signals, 0u);
}

TEST_F(Contract, AtomicsOfSeveralQueuesAddUp) {
  if (!kernels()) GTEST_SKIP() << last_error();
  constexpr unsigned kTimes = 200;
  const uint64_t word = allocate(8, ordinary), zero = make_word(), result = make_word();
  ASSERT_EQ(copy(word, zero, 8), TW_OK);
  finish();
  std::vector<std::unique_ptr<Queue>> queues;
  for (Device* const one : devices) {
    if (!one->peer(device->uuid()).atomics) continue;
    for (int i = 0; i < 2; ++i) ASSERT_EQ(one->make_queue(&queues.emplace_back()), TW_OK);
    ASSERT_EQ(queues.back()->admit(Use::kernel, word, 8), TW_OK) << last_error();
  }
  for (unsigned i = 0; i < kTimes; ++i) {
    for (const auto& one : queues) ASSERT_EQ(one->launch(AtomicKernel{word, 3}), TW_OK) << last_error();
  }
  for (const auto& one : queues) ASSERT_EQ(one->synchronize(), TW_OK) << last_error();
  ASSERT_EQ(copy(result, word, 8), TW_OK);
  finish();
  EXPECT_EQ(word_at(result), 3 * kTimes * queues.size());
}

TEST_F(Contract, WrongAtomicsAreRefused) {
  if (!kernels()) GTEST_SKIP() << last_error();
  const uint64_t word = allocate(16, ordinary), status = make_word(), old = make_word(), done = make_word();
  const std::vector<std::byte> held = fill(word, 16);
  EXPECT_EQ(queue->launch(AtomicKernel{word + 4, 1}), TW_ERR_MISALIGNED);
  EXPECT_EQ(queue->launch(AtomicKernel{word + 2, 1, 0, 0, AtomicOp::add, 4}), TW_ERR_MISALIGNED);
  EXPECT_EQ(queue->launch(AtomicKernel{word, 1, 0, 0, AtomicOp::add, 2}), TW_ERR_INVALID);
  EXPECT_EQ(queue->launch(AtomicKernel{word, 1, 0, old + 4}), TW_ERR_MISALIGNED);
  EXPECT_EQ(queue->launch(AtomicKernel{0, 1}), TW_ERR_INVALID);
  __atomic_store_n(reinterpret_cast<uint64_t*>(status), 1, __ATOMIC_RELEASE);  // something has expired
  ASSERT_EQ(queue->launch(AtomicKernel{word, 1, 0, old, AtomicOp::add, 8, {done, 1, false}, status}), TW_OK) << last_error();
  EXPECT_EQ(read(word, 16), held);
  EXPECT_EQ(word_at(old) + word_at(done), 0u);
}

TEST_F(Contract, AnExpiredWaitStopsWhatFollowsButNotTheQueue) {
  if (!kernels()) GTEST_SKIP() << last_error();
  const uint64_t word = make_word(), status = make_word(), done = make_word();
  const uint64_t a = allocate(5000, ordinary), b = allocate(5000, ordinary);
  fill(a, 5000);
  const std::vector<std::byte> old = fill(b, 5000);
  ASSERT_EQ(queue->launch(WaitKernel{word, 1, 1'000'000, status}), TW_OK) << last_error();
  ASSERT_EQ(queue->launch(CopyKernel{{b, a, 5000}, {done, 1, false}, status}), TW_OK) << last_error();
  finish();
  EXPECT_EQ(static_cast<int64_t>(word_at(status)), TW_ERR_TIMED_OUT);
  EXPECT_EQ(word_at(done), 0u);
  EXPECT_EQ(read(b, 5000), old);
  const uint64_t fresh = make_word();
  __atomic_store_n(reinterpret_cast<uint64_t*>(word), 1, __ATOMIC_RELEASE);
  ASSERT_EQ(queue->launch(WaitKernel{word, 1, 1'000'000, fresh}), TW_OK);
  ASSERT_EQ(queue->write_value(done, 3, true), TW_OK) << last_error();
  finish();
  EXPECT_EQ(word_at(fresh), 0u);
  EXPECT_EQ(word_at(done), 3u);
}

}  // namespace
}  // namespace thalweg::impl::contract
