// SPDX-License-Identifier: Apache-2.0
// The contract of devices/device.hpp as tests, over whichever back end --backend names: emulated, fake (the CUDA back end over
// the fake driver), cuda. Device memory is only looked at through queues and pinned memory.
#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "devices/registry.hpp"

namespace thalweg::impl::contract {

/// Set by main().
extern Backend* backend;
extern MemoryKind ordinary;  // what the back end calls plain device memory
extern const char* name;
/// In a process of its own: imports what comes over `socket` on the last device, writes there, says what it wrote.
int import_in_another_process(int socket);

class Contract : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(backend->devices(&devices), TW_OK) << last_error();
    ASSERT_FALSE(devices.empty());
    device = devices[0];
    ASSERT_EQ(device->make_queue(&queue), TW_OK) << last_error();
  }
  uint64_t allocate(size_t length, MemoryKind kind, Device* on = nullptr) {
    uint64_t address = 0;
    Device* const home = on != nullptr ? on : device;
    EXPECT_EQ(home->allocate(kind, length, &address), TW_OK) << last_error();
    allocated.emplace_back(home, address);
    return address;
  }
  uint64_t make_word() {
    const uint64_t word = allocate(8, MemoryKind::pinned);
    std::memset(reinterpret_cast<void*>(word), 0, 8);
    return word;
  }
  Status copy(uint64_t to, uint64_t from, uint64_t width) {
    const Copy one{to, from, width};
    return queue->copy(&one, 1);
  }
  void finish() { ASSERT_EQ(queue->synchronize(), TW_OK) << last_error(); }
  /// Fresh random bytes there; returns them.
  std::vector<std::byte> fill(uint64_t address, size_t length) {
    const uint64_t source = allocate(length, MemoryKind::pinned);
    std::vector<std::byte> bytes(length);
    std::mt19937_64 rng(std::random_device{}());
    for (std::byte& b : bytes) b = static_cast<std::byte>(rng());
    std::memcpy(reinterpret_cast<void*>(source), bytes.data(), length);
    EXPECT_EQ(copy(address, source, length), TW_OK) << last_error();
    EXPECT_EQ(queue->synchronize(), TW_OK) << last_error();
    return bytes;
  }
  std::vector<std::byte> read(uint64_t address, size_t length) {
    const uint64_t back = allocate(length, MemoryKind::pinned);
    EXPECT_EQ(copy(back, address, length), TW_OK) << last_error();
    EXPECT_EQ(queue->synchronize(), TW_OK) << last_error();
    const auto* first = reinterpret_cast<const std::byte*>(back);
    return {first, first + length};
  }
  static uint64_t word_at(uint64_t address) {
    return __atomic_load_n(reinterpret_cast<const uint64_t*>(address), __ATOMIC_ACQUIRE);
  }
  /// Kernels are absent in a build without nvcc: their tests say so.
  bool kernels() {
    const Status status = device->load_kernels();
    EXPECT_TRUE(status == TW_OK || status == TW_ERR_UNSUPPORTED) << last_error();
    return status == TW_OK;
  }
  void TearDown() override {
    queue.reset();
    for (const auto& [home, address] : allocated) EXPECT_EQ(home->free(address), TW_OK) << last_error();
  }

  std::vector<Device*> devices;
  Device* device = nullptr;
  std::unique_ptr<Queue> queue;
  std::vector<std::pair<Device*, uint64_t>> allocated;
};

}  // namespace thalweg::impl::contract
