// SPDX-License-Identifier: Apache-2.0
// Memory of emulated devices: what the host may not touch, kinds, identities, limits.
#include "tests/unit/devices/emulated_tools.hpp"

namespace thalweg::impl::emulated {
namespace {

TEST(EmulatedMemoryDeathTest, TheHostMayNotTouchDeviceMemory) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  for (MemoryKind kind : {MemoryKind::emulated, MemoryKind::pool, MemoryKind::vmm}) {
    EXPECT_DEATH(
        {
          auto device = open_device(0);
          *reinterpret_cast<volatile char*>(allocate(*device, 4096, kind)) = 1;
        },
        "");
  }
}

TEST(EmulatedMemory, TheHostTouchesPinnedAndManagedMemory) {
  auto device = open_device(0);
  for (MemoryKind kind : {MemoryKind::pinned, MemoryKind::managed}) {
    const uint64_t host = allocate(*device, 1003, kind), there = allocate(*device, 1003);
    const std::vector<std::byte> payload = fill(*device, there, 1003);
    auto queue = make_queue(*device);
    ASSERT_EQ(copy(*queue, host, there, 1003), TW_OK);
    ASSERT_EQ(queue->synchronize(), TW_OK);
    EXPECT_EQ(std::memcmp(reinterpret_cast<const void*>(host), payload.data(), 1003), 0);
    BufferInfo info;
    ASSERT_EQ(find_device(host + 1002, &info), TW_OK);
    EXPECT_EQ(info.kind, kind);
    EXPECT_TRUE(info.host_access);
    EXPECT_EQ(info.exportable, ExportForm::none);
    EXPECT_EQ(device->free(host), TW_OK);
    EXPECT_EQ(find_device(host, &info), TW_ERR_NO_MATCH);
  }
  uint64_t address = 0;
  EXPECT_EQ(device->allocate(MemoryKind::host, 1, &address), TW_ERR_INVALID);
}

TEST(EmulatedMemory, AReusedAddressHasANewIdentity) {
  auto device = open_device(0);
  BufferInfo first, second;
  const uint64_t a = allocate(*device, 5000);
  ASSERT_EQ(find_device(a + 4999, &first), TW_OK);
  EXPECT_EQ(first.kind, MemoryKind::emulated);
  EXPECT_EQ(first.device, device.get());
  EXPECT_EQ(first.base, a);
  EXPECT_EQ(first.length, 5000u);
  EXPECT_FALSE(first.host_access);
  EXPECT_EQ(first.exportable, ExportForm::ipc_handle);
  EXPECT_EQ(find_device(a + 5000, &second), TW_ERR_NO_MATCH);
  EXPECT_EQ(find_device(reinterpret_cast<uintptr_t>(&a), &second), TW_ERR_NO_MATCH);
  ASSERT_EQ(device->free(a), TW_OK);
  EXPECT_EQ(device->free(a), TW_ERR_HANDLE);
  ASSERT_EQ(allocate(*device, 5000), a);
  ASSERT_EQ(find_device(a, &second), TW_OK);
  EXPECT_NE(first.buffer_id, second.buffer_id);
}

TEST(EmulatedMemory, VmmConsistsOfPieces) {
  Options options;
  options.vmm_piece = 8192;
  auto device = open_device(0, options);
  const uint64_t a = allocate(*device, 20001, MemoryKind::vmm);
  BufferInfo first, second, last;
  ASSERT_EQ(find_device(a + 8191, &first), TW_OK);
  ASSERT_EQ(find_device(a + 8192, &second), TW_OK);
  ASSERT_EQ(find_device(a + 20000, &last), TW_OK);
  EXPECT_EQ(first.length, 8192u);
  EXPECT_EQ(second.base, a + 8192);
  EXPECT_EQ(last.length, 20001u - 16384u);
  EXPECT_NE(first.buffer_id, second.buffer_id);
  EXPECT_EQ(first.exportable, ExportForm::descriptor);
  EXPECT_TRUE(holds(*device, a + 5, fill(*device, a + 5, 19996)));  // across the pieces
}

TEST(EmulatedMemory, HostPagesArePinnedOnce) {
  auto device = open_device(0), other = open_device(1);
  Pinned pinned(*device, 3001);
  BufferInfo info;
  ASSERT_EQ(find_device(pinned.address(3000), &info), TW_OK);
  EXPECT_EQ(info.kind, MemoryKind::pinned);
  EXPECT_EQ(info.length, 3001u);
  EXPECT_EQ(other->register_host(pinned.data() + 3000, 500), TW_ERR_BUSY);
  EXPECT_EQ(other->unregister_host(pinned.data()), TW_ERR_HANDLE);
  EXPECT_EQ(device->free(pinned.address()), TW_ERR_HANDLE);  // not allocated by it
  const uint64_t there = allocate(*other, 3001);             // every device reaches it
  auto queue = make_queue(*other);
  ASSERT_EQ(copy(*queue, there, pinned.address(), 3001), TW_OK);
  ASSERT_EQ(queue->synchronize(), TW_OK);
  EXPECT_TRUE(holds(*other, there, pinned.bytes()));
}

TEST(EmulatedMemory, CapacityIsExhaustedAndComesBack) {
  Options options;
  options.capacity = 10000;
  auto device = open_device(0, options);
  const uint64_t a = allocate(*device, 6000);
  uint64_t b = 0;
  EXPECT_EQ(device->allocate(MemoryKind::pool, 5000, &b), TW_ERR_NO_MEMORY);
  ASSERT_EQ(device->free(a), TW_OK);
  EXPECT_EQ(device->allocate(MemoryKind::pool, 5000, &b), TW_OK);
}

TEST(EmulatedMemory, FreedMemoryLivesUntilQueuedWorkHasRun) {
  Options options;
  options.task_delay_ns = 2'000'000;
  auto device = open_device(0, options);
  const uint64_t address = allocate(*device, 64);
  Pinned source(*device, 64), back(*device, 64);
  auto queue = make_queue(*device);
  ASSERT_EQ(copy(*queue, address, source.address(), 64), TW_OK);
  ASSERT_EQ(copy(*queue, back.address(), address, 64), TW_OK);
  ASSERT_EQ(device->free(address), TW_OK);
  ASSERT_EQ(queue->synchronize(), TW_OK);
  EXPECT_EQ(back.bytes(), source.bytes());
}

}  // namespace
}  // namespace thalweg::impl::emulated
