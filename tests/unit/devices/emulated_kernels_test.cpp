// SPDX-License-Identifier: Apache-2.0
// Twins of the library's kernels, the order in which their stores show, slots.
#include <atomic>

#include "devices/emulated/store_buffer.hpp"
#include "tests/unit/devices/emulated_tools.hpp"

namespace thalweg::impl::emulated {
namespace {

/// Is the payload whole at the moment the flag shows?
bool payload_before_flag(bool fenced, bool skip_fences) {
  std::vector<std::byte> payload(1001), seen(1001);
  std::mt19937_64 rng(std::random_device{}());
  for (std::byte& b : payload) b = static_cast<std::byte>(rng());
  uint64_t flag = 0;
  bool whole = false, first = true;
  {
    StoreBuffer stores(skip_fences);
    stores.watch([&] {
      if (flag == 0 || !first) return;
      first = false;
      whole = seen == payload;
    });
    stores.store(seen.data(), payload.data(), payload.size());
    if (fenced) stores.fence();
    stores.store_word(&flag, 1, false);
  }
  EXPECT_EQ(flag, 1u);
  EXPECT_EQ(seen, payload);
  return whole;
}

TEST(StoreBuffer, AFlagOvertakesItsPayloadUnlessFenced) {
  EXPECT_TRUE(payload_before_flag(true, false));
  EXPECT_FALSE(payload_before_flag(false, false));
  EXPECT_FALSE(payload_before_flag(true, true));
}

TEST(EmulatedKernels, CopyThenSignal) {
  auto device = open_device(0), other = open_device(1);
  const uint64_t a = allocate(*device, 70003), b = allocate(*other, 70003), word = allocate(*other, 8);
  const std::vector<std::byte> payload = fill(*device, a, 70003), guard = fill(*other, b, 1);
  auto sender = make_queue(*device), receiver = make_queue(*other);
  ASSERT_EQ(receiver->wait_geq(word, 3), TW_OK);
  const uint64_t landed = allocate(*other, 70002);
  ASSERT_EQ(copy(*receiver, landed, b + 1, 70002), TW_OK);
  EXPECT_EQ(sender->launch(CopyKernel{plain(b + 1, a + 1, 70002), {}}), TW_ERR_INVALID);  // nobody asked
  EXPECT_EQ(sender->write_value(word, 3, false), TW_ERR_INVALID);
  ASSERT_EQ(sender->admit(Use::kernel, b, 70003), TW_OK);
  ASSERT_EQ(sender->admit(Use::kernel, word, 8), TW_OK);
  CopyKernel kernel{plain(b + 1, a + 1, 70002), {word, 3, true}};
  ASSERT_EQ(sender->launch(kernel), TW_OK);
  ASSERT_EQ(receiver->synchronize(), TW_OK);
  EXPECT_TRUE(holds(*other, landed, {payload.begin() + 1, payload.end()}));
  EXPECT_TRUE(holds(*other, b, guard));
}

TEST(EmulatedKernels, StridedCopy) {
  auto device = open_device(0);
  const uint64_t from = allocate(*device, 1000), to = allocate(*device, 300);
  const std::vector<std::byte> source = fill(*device, from, 1000);
  std::vector<std::byte> expected = fill(*device, to, 300);
  Copy gather = plain(to + 7, from + 3, 11);
  gather.rows = 9;
  gather.from_row = 101;
  gather.to_row = 11;
  for (int y = 0; y < 9; ++y) std::memcpy(&expected[7 + 11 * y], &source[3 + 101 * y], 11);
  auto queue = make_queue(*device);
  ASSERT_EQ(queue->launch(CopyKernel{gather, {}}), TW_OK);
  ASSERT_EQ(queue->synchronize(), TW_OK);
  EXPECT_TRUE(holds(*device, to, expected));
}

TEST(EmulatedKernels, BlocksByIndex) {
  auto device = open_device(0);
  constexpr size_t kBlock = 129, kCount = 50;
  const uint64_t from = allocate(*device, kBlock * kCount), to = allocate(*device, kBlock * kCount), word = make_word(*device);
  const std::vector<std::byte> source = fill(*device, from, kBlock * kCount);
  std::vector<std::byte> expected = fill(*device, to, kBlock * kCount);
  const uint64_t list = allocate(*device, kCount * sizeof(BlockPair), MemoryKind::pinned);
  auto* pairs = reinterpret_cast<BlockPair*>(list);
  for (size_t i = 0; i < kCount / 2; ++i) {
    const size_t source_block = (i * 7) % kCount, target_block = (i * 13 + 5) % kCount;
    pairs[i] = {to + kBlock * target_block, from + kBlock * source_block};
    std::memcpy(&expected[kBlock * target_block], &source[kBlock * source_block], kBlock);
  }
  auto queue = make_queue(*device);
  ASSERT_EQ(queue->launch(BlocksKernel{list, kCount / 2, kBlock, {word, 1, false}}), TW_OK);
  ASSERT_EQ(queue->synchronize(), TW_OK);
  EXPECT_EQ(read_word(word), 1u);
  EXPECT_TRUE(holds(*device, to, expected));
  pairs[0].to = to + kBlock * kCount;  // past the end: known only when it runs
  ASSERT_EQ(queue->launch(BlocksKernel{list, 1, kBlock, {}}), TW_OK);
  EXPECT_EQ(queue->synchronize(), TW_ERR_OUT_OF_BOUNDS);
}

TEST(EmulatedKernels, AnExpiredWaitStopsWhatFollows) {
  auto device = open_device(0);
  const uint64_t word = allocate(*device, 8), status = make_word(*device), done = make_word(*device);
  const uint64_t a = allocate(*device, 100), b = allocate(*device, 100);
  fill(*device, a, 100);
  const std::vector<std::byte> old = fill(*device, b, 100);
  auto queue = make_queue(*device);
  EXPECT_EQ(queue->launch(WaitKernel{word, 1, 1000, 0}), TW_ERR_INVALID);
  ASSERT_EQ(queue->launch(WaitKernel{word, 1, 1'000'000, status}), TW_OK);
  ASSERT_EQ(queue->launch(CopyKernel{plain(b, a, 100), {done, 1, false}, status}), TW_OK);
  ASSERT_EQ(queue->synchronize(), TW_OK);  // the queue itself is whole
  EXPECT_EQ(static_cast<int64_t>(read_word(status)), TW_ERR_TIMED_OUT);
  EXPECT_EQ(read_word(done), 0u);
  EXPECT_TRUE(holds(*device, b, old));
}

TEST(EmulatedKernels, SpinningKernelsStarveOthersButNotCopies) {
  Options options;
  options.kernel_slots = 2;
  auto device = open_device(0, options);
  const uint64_t word = make_word(*device), a = allocate(*device, 100);
  uint64_t pinned = 0;  // from before: host memory is pinned while no kernel runs
  ASSERT_EQ(device->allocate(MemoryKind::pinned, 100, &pinned), TW_OK);
  auto one = make_queue(*device), two = make_queue(*device), three = make_queue(*device), copies = make_queue(*device);
  std::atomic<int> spinning{0};
  std::atomic<bool> ran{false};
  const auto spin = [&] {
    spinning.fetch_add(1);
    while (read_word(word) == 0) std::this_thread::yield();
  };
  ASSERT_EQ(one->launch_twin(spin), TW_OK);
  ASSERT_EQ(two->launch_twin(spin), TW_OK);
  while (spinning.load() < 2) std::this_thread::yield();
  ASSERT_EQ(three->launch_twin([&] { ran = true; }), TW_OK);
  // A copy engine and words need no slot.
  std::byte* const host = reinterpret_cast<std::byte*>(pinned);
  std::mt19937 random(std::random_device{}());
  std::vector<std::byte> payload(100);
  for (std::byte& byte : payload) byte = static_cast<std::byte>(random());
  std::copy(payload.begin(), payload.end(), host);
  ASSERT_EQ(copy(*copies, a, pinned, 100), TW_OK);
  ASSERT_EQ(copies->synchronize(), TW_OK);
  std::fill_n(host, 100, std::byte{0});
  ASSERT_EQ(copy(*copies, pinned, a, 100), TW_OK);
  ASSERT_EQ(copies->synchronize(), TW_OK);
  EXPECT_TRUE(std::equal(payload.begin(), payload.end(), host));
  EXPECT_FALSE(ran);
  EXPECT_EQ(three->query(), TW_IN_PROGRESS);
  ASSERT_EQ(copies->write_value(word, 1, false), TW_OK);
  ASSERT_EQ(three->synchronize(), TW_OK);
  EXPECT_TRUE(ran);
  EXPECT_EQ(one->synchronize(), TW_OK);
  EXPECT_EQ(two->synchronize(), TW_OK);
  EXPECT_EQ(device->free(pinned), TW_OK);
}

TEST(EmulatedKernels, KernelsReachPeersOnly) {
  Options alone;
  alone.peers = 1;  // device 0 reaches itself
  auto device = open_device(0, alone), other = open_device(1);
  const uint64_t a = allocate(*device, 100), b = allocate(*other, 100);
  const std::vector<std::byte> payload = fill(*device, a, 100);
  auto queue = make_queue(*device);
  EXPECT_EQ(queue->admit(Use::kernel, b, 100), TW_ERR_UNREACHABLE);
  EXPECT_EQ(queue->launch(CopyKernel{plain(b, a, 100), {}}), TW_ERR_UNREACHABLE);
  EXPECT_EQ(queue->write_value(b, 1, false), TW_ERR_UNREACHABLE);
  EXPECT_EQ(queue->admit(Use::copy, b, 100), TW_OK);
  ASSERT_EQ(copy(*queue, b, a, 100), TW_OK);  // an engine goes through the host
  ASSERT_EQ(queue->synchronize(), TW_OK);
  EXPECT_TRUE(holds(*other, b, payload));
}

}  // namespace
}  // namespace thalweg::impl::emulated
