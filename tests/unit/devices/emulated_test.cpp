// SPDX-License-Identifier: Apache-2.0
// The emulated device: memory the host may not touch, queues that run behind it, identities, imports.
#include "devices/emulated/emulated.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>

#include "devices/emulated/queue.hpp"

namespace thalweg::impl::emulated {
namespace {

std::unique_ptr<EmulatedDevice> open_device(unsigned index, Options options = {}) {
  std::unique_ptr<EmulatedDevice> device;
  EXPECT_EQ(EmulatedDevice::open(index, options, &device), TW_OK);
  return device;
}

std::vector<std::byte> random_bytes(size_t n) {
  std::mt19937_64 rng(std::random_device{}());
  std::vector<std::byte> bytes(n);
  for (std::byte& b : bytes) b = static_cast<std::byte>(rng());
  return bytes;
}

uint64_t host(const void* p) { return reinterpret_cast<uintptr_t>(p); }
Copy plain(uint64_t to, uint64_t from, uint64_t width) {
  Copy copy{};
  copy.to = to;
  copy.from = from;
  copy.width = width;
  return copy;
}

TEST(EmulatedDevice, QueuesMoveBytesInAndOut) {
  auto device = open_device(0), other = open_device(1);
  uint64_t a = 0, b = 0;
  ASSERT_EQ(device->allocate(10007, &a), TW_OK);
  ASSERT_EQ(other->allocate(10007, &b), TW_OK);
  const std::vector<std::byte> source = random_bytes(10001);
  std::vector<std::byte> back(10007, std::byte{0x5a});
  std::unique_ptr<Queue> queue;
  ASSERT_EQ(device->make_queue(&queue), TW_OK);
  const Copy copies[] = {plain(a + 3, host(source.data()), 10001), plain(b + 2, a + 3, 10001),  // also between devices
                         plain(host(back.data() + 1), b + 2, 10001)};
  ASSERT_EQ(queue->copy(copies, 3), TW_OK);
  ASSERT_EQ(queue->synchronize(), TW_OK);
  EXPECT_EQ(std::memcmp(back.data() + 1, source.data(), 10001), 0);
  EXPECT_EQ(back[0], std::byte{0x5a});
  EXPECT_EQ(back[10002], std::byte{0x5a});
  const Copy outside = plain(a + 10000, host(source.data()), 8);
  EXPECT_EQ(queue->copy(&outside, 1), TW_ERR_OUT_OF_BOUNDS);
}

TEST(EmulatedDeviceDeathTest, TheHostMayNotTouchDeviceMemory) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        auto device = open_device(0);
        uint64_t address = 0;
        device->allocate(4096, &address);
        *reinterpret_cast<volatile char*>(address) = 1;
      },
      "");
}

TEST(EmulatedDevice, RectanglesWithNegativePitch) {
  auto device = open_device(0);
  uint64_t address = 0;
  ASSERT_EQ(device->allocate(4096, &address), TW_OK);
  const std::vector<std::byte> source = random_bytes(600);
  Copy in{};
  in.to = address + 2000;  // rows go downwards
  in.from = host(source.data());
  in.width = 13;
  in.rows = 5;
  in.slices = 3;
  in.to_row = -100;
  in.from_row = 17;
  in.to_slice = 20;
  in.from_slice = 150;
  std::unique_ptr<Queue> queue;
  ASSERT_EQ(device->make_queue(&queue), TW_OK);
  ASSERT_EQ(queue->copy(&in, 1), TW_OK);
  ASSERT_EQ(queue->synchronize(), TW_OK);
  const std::byte* view = device->translate(address, 4096);
  std::vector<std::byte> expected(4096);
  for (int z = 0; z < 3; ++z) {
    for (int y = 0; y < 5; ++y) std::memcpy(&expected[2000 - 100 * y + 20 * z], &source[17 * y + 150 * z], 13);
  }
  EXPECT_EQ(std::memcmp(view, expected.data(), 4096), 0);
}

TEST(EmulatedDevice, AReusedAddressHasANewIdentity) {
  auto device = open_device(0);
  uint64_t a = 0, b = 0;
  BufferInfo first, second;
  ASSERT_EQ(device->allocate(5000, &a), TW_OK);
  ASSERT_EQ(device->identify(a + 4999, &first), TW_OK);
  EXPECT_EQ(first.kind, MemoryKind::emulated);
  EXPECT_EQ(first.base, a);
  EXPECT_EQ(first.length, 5000u);
  EXPECT_EQ(device->identify(a + 5000, &second), TW_ERR_NO_MATCH);
  EXPECT_EQ(device->identify(host(&a), &second), TW_ERR_NO_MATCH);
  ASSERT_EQ(device->free(a), TW_OK);
  EXPECT_EQ(device->free(a), TW_ERR_HANDLE);
  ASSERT_EQ(device->allocate(5000, &b), TW_OK);
  ASSERT_EQ(a, b);
  ASSERT_EQ(device->identify(b, &second), TW_OK);
  EXPECT_NE(first.buffer_id, second.buffer_id);
}

TEST(EmulatedDevice, ImportsReachTheSameMemoryAndCheckTheDevice) {
  auto device = open_device(0), same = open_device(0), other = open_device(1);
  EXPECT_EQ(std::memcmp(device->uuid(), same->uuid(), 16), 0);
  EXPECT_NE(std::memcmp(device->uuid(), other->uuid(), 16), 0);
  uint64_t address = 0, imported = 0;
  ASSERT_EQ(device->allocate(777, &address), TW_OK);
  ExportedMemory wrong, exported;
  ASSERT_EQ(device->export_memory(address, &wrong), TW_OK);
  EXPECT_EQ(other->import_memory(std::move(wrong), &imported), TW_ERR_INVALID);
  ASSERT_EQ(device->export_memory(address, &exported), TW_OK);
  ASSERT_EQ(same->import_memory(std::move(exported), &imported), TW_OK);
  const std::vector<std::byte> source = random_bytes(777);
  std::unique_ptr<Queue> queue;
  ASSERT_EQ(same->make_queue(&queue), TW_OK);
  const Copy copy = plain(imported, host(source.data()), 777);
  ASSERT_EQ(queue->copy(&copy, 1), TW_OK);
  ASSERT_EQ(queue->synchronize(), TW_OK);
  EXPECT_EQ(std::memcmp(device->translate(address, 777), source.data(), 777), 0);
  EXPECT_EQ(device->translate(address, 778), nullptr);
  EXPECT_EQ(same->free(imported), TW_ERR_HANDLE);
  EXPECT_EQ(same->release_import(imported), TW_OK);
}

TEST(EmulatedQueue, RunsBehindTheHostInOrderAndWaitsForWords) {
  auto device = open_device(0);
  uint64_t word = 0;
  ASSERT_EQ(device->allocate(16, &word), TW_OK);
  std::unique_ptr<Queue> waiter, writer;
  ASSERT_EQ(device->make_queue(&waiter), TW_OK);
  ASSERT_EQ(device->make_queue(&writer), TW_OK);
  std::atomic<int> order{0};
  ASSERT_EQ(waiter->wait_geq(word, 5), TW_OK);
  ASSERT_EQ(waiter->launch([&] { order = 1; }), TW_OK);
  EXPECT_EQ(waiter->query(), TW_IN_PROGRESS);
  EXPECT_EQ(order, 0);
  ASSERT_EQ(writer->write_value(word, 3, false), TW_OK);
  ASSERT_EQ(writer->synchronize(), TW_OK);
  EXPECT_EQ(order, 0);
  ASSERT_EQ(writer->write_value(word, 2, true), TW_OK);
  ASSERT_EQ(waiter->synchronize(), TW_OK);
  EXPECT_EQ(order, 1);
  EXPECT_EQ(writer->write_value(word + 4, 1, false), TW_ERR_MISALIGNED);
}

TEST(EmulatedQueue, AWaitIsBoundedAndPoisons) {
  Options options;
  options.wait_limit_ns = 5'000'000;
  auto device = open_device(0, options);
  uint64_t word = 0;
  ASSERT_EQ(device->allocate(8, &word), TW_OK);
  std::unique_ptr<Queue> queue;
  ASSERT_EQ(device->make_queue(&queue), TW_OK);
  std::atomic<bool> ran{false};
  ASSERT_EQ(queue->wait_geq(word, 1), TW_OK);
  ASSERT_EQ(queue->launch([&] { ran = true; }), TW_OK);
  EXPECT_EQ(queue->synchronize(), TW_ERR_TIMED_OUT);
  EXPECT_FALSE(ran);
  EXPECT_EQ(queue->write_value(word, 1, false), TW_ERR_TIMED_OUT);
}

TEST(EmulatedQueue, FreedMemoryLivesUntilQueuedWorkHasRun) {
  Options options;
  options.task_delay_ns = 2'000'000;
  auto device = open_device(0, options);
  uint64_t address = 0;
  ASSERT_EQ(device->allocate(64, &address), TW_OK);
  const std::vector<std::byte> source = random_bytes(64);
  std::vector<std::byte> back(64);
  std::unique_ptr<Queue> queue;
  ASSERT_EQ(device->make_queue(&queue), TW_OK);
  const Copy in = plain(address, host(source.data()), 64), out = plain(host(back.data()), address, 64);
  ASSERT_EQ(queue->copy(&in, 1), TW_OK);
  ASSERT_EQ(queue->copy(&out, 1), TW_OK);
  ASSERT_EQ(device->free(address), TW_OK);
  ASSERT_EQ(queue->synchronize(), TW_OK);
  EXPECT_EQ(back, source);
}

}  // namespace
}  // namespace thalweg::impl::emulated
