// SPDX-License-Identifier: Apache-2.0
// Memory, copies, words and events of any back end.
#include <algorithm>
#include <thread>

#include "tests/gpu/contract.hpp"

namespace thalweg::impl::contract {
namespace {

constexpr size_t kGuard = 64;

TEST_F(Contract, EachKindIsRecognisedFromAnyThread) {
  for (const MemoryKind kind : {ordinary, MemoryKind::pinned, MemoryKind::managed, MemoryKind::pool, MemoryKind::vmm}) {
    const uint64_t address = allocate(70003, kind);
    std::thread([&] {  // no context is current here
      BufferInfo info;
      ASSERT_EQ(backend->identify(address + 70002, &info), TW_OK) << static_cast<int>(kind);
      EXPECT_EQ(info.kind, kind);
      EXPECT_EQ(info.device, device);
      EXPECT_LE(info.base, address);
      EXPECT_GT(info.base + info.length, address + 70002);
      EXPECT_EQ(info.host_access, kind == MemoryKind::pinned || kind == MemoryKind::managed);
    })
        .join();
  }
  BufferInfo info;
  EXPECT_EQ(backend->identify(reinterpret_cast<uintptr_t>(&info), &info), TW_ERR_NO_MATCH);
}

TEST_F(Contract, AReusedAddressHasANewIdentity) {
  BufferInfo first, second;
  uint64_t address = 0;
  ASSERT_EQ(device->allocate(ordinary, 1 << 20, &address), TW_OK);
  ASSERT_EQ(backend->identify(address, &first), TW_OK);
  ASSERT_EQ(device->free(address), TW_OK);
  EXPECT_EQ(device->free(address), TW_ERR_HANDLE);
  ASSERT_EQ(device->allocate(ordinary, 1 << 20, &address), TW_OK);
  ASSERT_EQ(backend->identify(address, &second), TW_OK);
  EXPECT_NE(first.buffer_id, second.buffer_id);
  EXPECT_EQ(device->free(address), TW_OK);
}

TEST_F(Contract, RegisteredPagesAreCopied) {
  std::vector<std::byte> pages(300001);
  std::mt19937_64 rng(std::random_device{}());
  for (std::byte& b : pages) b = static_cast<std::byte>(rng());
  ASSERT_EQ(device->register_host(pages.data(), pages.size()), TW_OK) << last_error();
  EXPECT_EQ(devices.back()->register_host(pages.data(), pages.size()), TW_ERR_BUSY);
  const uint64_t there = allocate(pages.size(), ordinary);
  ASSERT_EQ(copy(there, reinterpret_cast<uintptr_t>(pages.data()), pages.size()), TW_OK) << last_error();
  EXPECT_EQ(read(there, pages.size()), pages);
  EXPECT_EQ(queue->admit(Use::copy, reinterpret_cast<uintptr_t>(pages.data()), pages.size()), TW_OK) << last_error();
  EXPECT_EQ(device->unregister_host(pages.data()), TW_OK) << last_error();
  EXPECT_EQ(queue->admit(Use::copy, reinterpret_cast<uintptr_t>(pages.data()), pages.size()), TW_ERR_UNSUPPORTED);
}

TEST_F(Contract, CopiesBetweenAllDevicesKeepTheirGuards) {
  for (const MemoryKind kind : {ordinary, MemoryKind::pool, MemoryKind::vmm}) {
    for (Device* const other : devices) {
      const size_t length = 1000003;
      const uint64_t a = allocate(length, ordinary), b = allocate(length, kind, other);
      ASSERT_EQ(queue->admit(Use::copy, b, length), TW_OK) << last_error();
      const std::vector<std::byte> payload = fill(a, length);
      std::vector<std::byte> expected = fill(b, length);
      ASSERT_EQ(copy(b + kGuard, a + 3, length - 2 * kGuard), TW_OK) << last_error();
      std::copy_n(payload.begin() + 3, length - 2 * kGuard, expected.begin() + kGuard);
      EXPECT_EQ(read(b, length), expected) << static_cast<int>(kind) << " on " << other->ordinal();
    }
  }
}

/// Made without opening the other device, and copied to and from as any.
TEST_F(Contract, MemoryAtAPeerIsCopiedAndGivenBack) {
  EXPECT_FALSE(device->model().empty());
  for (Device* const other : devices) {
    const size_t length = 1000003;
    uint64_t there = 0;
    if (!device->peer(other->uuid()).access) {
      EXPECT_EQ(device->allocate_at(other->uuid(), length, &there), TW_ERR_UNREACHABLE);
      continue;
    }
    ASSERT_EQ(device->allocate_at(other->uuid(), length, &there), TW_OK) << last_error();
    const uint64_t here = allocate(length, ordinary);
    const std::vector<std::byte> payload = fill(here, length);
    std::vector<std::byte> expected = fill(there, length);
    ASSERT_EQ(copy(there + kGuard, here + 3, length - 2 * kGuard), TW_OK) << last_error();
    std::copy_n(payload.begin() + 3, length - 2 * kGuard, expected.begin() + kGuard);
    EXPECT_EQ(read(there, length), expected) << "on " << other->ordinal();
    EXPECT_EQ(device->free(there), TW_OK) << last_error();
    EXPECT_EQ(device->free(there), TW_ERR_HANDLE);
  }
}

TEST_F(Contract, ManyCopiesInOneCall) {
  constexpr size_t kCount = 700, kBlock = 1024;
  const uint64_t a = allocate(kCount * kBlock, ordinary), b = allocate(kCount * kBlock, ordinary);
  const std::vector<std::byte> payload = fill(a, kCount * kBlock);
  std::vector<std::byte> expected = fill(b, kCount * kBlock);
  std::vector<Copy> copies;
  for (size_t i = 0; i < kCount; ++i) {
    const size_t target = (i * 13 + 5) % kCount, length = 1 + (i * 31) % kBlock;
    copies.push_back({b + kBlock * target, a + kBlock * i, length});
    std::copy_n(payload.begin() + static_cast<ptrdiff_t>(kBlock * i), length,
                expected.begin() + static_cast<ptrdiff_t>(kBlock * target));
  }
  ASSERT_EQ(queue->copy(copies.data(), copies.size()), TW_OK) << last_error();
  EXPECT_EQ(read(b, kCount * kBlock), expected);
}

/// By the engine and by our kernel.
TEST_F(Contract, RectanglesOfAllSorts) {
  const bool with_kernels = kernels();
  const Copy shapes[] = {
      {0, 0, 8, 256, 1, 8, 2048, 0, 0},           {0, 0, 16, 64, 8, 16, 256, 1024, 20480},
      {0, 0, 1000, 7, 3, 1003, 1001, 7070, 9009}, {0, 0, 4096, 9, 2, 4096, 5000, 36864, 45000},
      {0, 0, 13, 5, 3, -100, 17, 20, 150},        {0, 0, 3, 11, 1, 7, 5, 0, 0},
      {0, 0, 600, 4, 4, 640, 640, 2560, 2560},
  };
  constexpr size_t kLength = 700000;
  const uint64_t a = allocate(kLength, ordinary), b = allocate(kLength, ordinary, devices.back());
  const bool reachable = device->peer(devices.back()->uuid()).access;
  ASSERT_TRUE(!reachable || queue->admit(Use::kernel, b, kLength) == TW_OK) << last_error();
  for (const Copy& shape : shapes) {
    for (const bool by_kernel : {false, true}) {
      if (by_kernel && (!with_kernels || !reachable)) continue;
      Copy one = shape;
      one.to = b + 80000;
      one.from = a + 40000;
      const std::vector<std::byte> source = fill(a, kLength);
      std::vector<std::byte> expected = fill(b, kLength);
      for (int64_t z = 0; z < static_cast<int64_t>(one.slices); ++z) {
        for (int64_t y = 0; y < static_cast<int64_t>(one.rows); ++y)
          std::memcpy(&expected[static_cast<size_t>(80000 + z * one.to_slice + y * one.to_row)],
                      &source[static_cast<size_t>(40000 + z * one.from_slice + y * one.from_row)], one.width);
      }
      ASSERT_EQ(by_kernel ? queue->launch(CopyKernel{one, {}}) : queue->copy(&one, 1), TW_OK) << last_error();
      EXPECT_EQ(read(b, kLength), expected) << "width " << one.width << (by_kernel ? " by kernel" : " by engine");
    }
  }
}

TEST_F(Contract, WordsHoldAndReleaseQueues) {
  const uint64_t word = allocate(64, ordinary), landed = allocate(1000, ordinary), source = allocate(1000, ordinary);
  const std::vector<std::byte> payload = fill(source, 1000), old = fill(landed, 1000);
  ASSERT_EQ(queue->write_value(word, ~uint64_t{0}, false), TW_OK) << last_error();  // -1: below 5, cyclically
  finish();
  std::unique_ptr<Queue> waiter;
  ASSERT_EQ(device->make_queue(&waiter), TW_OK);
  const Copy behind{landed, source, 1000};
  ASSERT_EQ(waiter->wait_geq(word, 5), TW_OK) << last_error();
  ASSERT_EQ(waiter->copy(&behind, 1), TW_OK);
  EXPECT_EQ(waiter->query(), TW_IN_PROGRESS);
  EXPECT_EQ(read(landed, 1000), old);
  ASSERT_EQ(queue->write_value(word, 5, false), TW_OK);
  EXPECT_EQ(waiter->synchronize(), TW_OK) << last_error();
  EXPECT_EQ(read(landed, 1000), payload);
  EXPECT_EQ(queue->write_value(word + 4, 1, false), TW_ERR_MISALIGNED);
  EXPECT_EQ(queue->admit(Use::word, allocate(8, MemoryKind::managed), 8), TW_ERR_UNSUPPORTED);
}

TEST_F(Contract, AHostsWordReleasesAQueueAndAQueueTellsTheHost) {
  const uint64_t gate = make_word(), done = make_word();
  ASSERT_EQ(queue->wait_geq(gate, 1), TW_OK) << last_error();
  ASSERT_EQ(queue->write_value(done, 7, false), TW_OK);
  EXPECT_EQ(queue->query(), TW_IN_PROGRESS);
  EXPECT_EQ(word_at(done), 0u);
  __atomic_store_n(reinterpret_cast<uint64_t*>(gate), 1, __ATOMIC_RELEASE);
  finish();
  EXPECT_EQ(word_at(done), 7u);
}

TEST_F(Contract, EventsOrderQueuesOfAllDevices) {
  for (Device* const other : devices) {
    const uint64_t gate = make_word(), a = allocate(5000, ordinary), b = allocate(5000, ordinary, other);
    const uint64_t source = allocate(5000, ordinary);
    const std::vector<std::byte> payload = fill(source, 5000);
    std::unique_ptr<Queue> second;
    std::unique_ptr<Event> event;
    ASSERT_EQ(other->make_queue(&second), TW_OK);
    ASSERT_EQ(device->make_event(&event), TW_OK);
    EXPECT_EQ(event->query(), TW_OK);  // never recorded
    ASSERT_EQ(queue->wait_geq(gate, 1), TW_OK);
    ASSERT_EQ(copy(a, source, 5000), TW_OK);
    ASSERT_EQ(queue->record(*event), TW_OK) << last_error();
    ASSERT_EQ(second->wait_event(*event), TW_OK) << last_error();
    const Copy onwards{b, a, 5000};
    ASSERT_EQ(second->copy(&onwards, 1), TW_OK) << last_error();
    EXPECT_EQ(event->query(), TW_IN_PROGRESS);
    __atomic_store_n(reinterpret_cast<uint64_t*>(gate), 1, __ATOMIC_RELEASE);
    EXPECT_EQ(event->synchronize(), TW_OK) << last_error();
    EXPECT_EQ(second->synchronize(), TW_OK) << last_error();
    EXPECT_EQ(read(b, 5000), payload);
  }
}

TEST_F(Contract, DefaultAndUsersStreams) {
  const uint64_t word = allocate(8, ordinary);
  std::unique_ptr<Queue> standard, wrapped;
  std::unique_ptr<Event> event, same;
  ASSERT_EQ(device->wrap_queue(nullptr, &standard), TW_OK) << last_error();
  ASSERT_EQ(device->make_event(&event), TW_OK);
  EXPECT_EQ(standard->record(*event), TW_OK) << last_error();
  EXPECT_EQ(standard->wait_event(*event), TW_OK) << last_error();
  EXPECT_EQ(event->synchronize(), TW_OK) << last_error();
  EXPECT_EQ(standard->write_value(word, 1, false), TW_ERR_UNSUPPORTED);
  ASSERT_EQ(device->wrap_queue(queue->native(), &wrapped), TW_OK) << last_error();
  ASSERT_EQ(device->wrap_event(event->native(), &same), TW_OK);
  const uint64_t gate = make_word();
  ASSERT_EQ(queue->wait_geq(gate, 1), TW_OK);
  ASSERT_EQ(wrapped->record(*event), TW_OK) << last_error();
  wrapped.reset();  // leaves the user's
  EXPECT_EQ(same->query(), TW_IN_PROGRESS);
  __atomic_store_n(reinterpret_cast<uint64_t*>(gate), 1, __ATOMIC_RELEASE);
  EXPECT_EQ(same->synchronize(), TW_OK) << last_error();
  EXPECT_EQ(queue->capture_state(), CaptureState::none);
}

}  // namespace
}  // namespace thalweg::impl::contract
