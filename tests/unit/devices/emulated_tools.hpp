// SPDX-License-Identifier: Apache-2.0
// What the tests of emulated devices share: devices, random payloads in pinned memory, plain copies.
#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "devices/emulated/emulated.hpp"
#include "devices/registry.hpp"

namespace thalweg::impl::emulated {

inline std::unique_ptr<EmulatedDevice> open_device(unsigned index, const Options& options = {}) {
  std::unique_ptr<EmulatedDevice> device;
  EXPECT_EQ(EmulatedDevice::open(index, options, &device), TW_OK);
  return device;
}

inline uint64_t allocate(EmulatedDevice& device, size_t length, MemoryKind kind = MemoryKind::emulated) {
  uint64_t address = 0;
  EXPECT_EQ(device.allocate(kind, length, &address), TW_OK);
  return address;
}

template <typename Device>
std::unique_ptr<EmulatedQueue> make_queue(Device& device) {
  std::unique_ptr<Queue> queue;
  EXPECT_EQ(device.make_queue(&queue), TW_OK);
  return std::unique_ptr<EmulatedQueue>(static_cast<EmulatedQueue*>(queue.release()));
}

/// Host memory that queues may touch, random from the start.
class Pinned {
 public:
  Pinned(EmulatedDevice& device, size_t length) : device_(device), bytes_(length) {
    std::mt19937_64 rng(std::random_device{}());
    for (std::byte& b : bytes_) b = static_cast<std::byte>(rng());
    EXPECT_EQ(device_.register_host(bytes_.data(), length), TW_OK);
  }
  ~Pinned() { EXPECT_EQ(device_.unregister_host(bytes_.data()), TW_OK); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  std::byte* data() { return bytes_.data(); }
  uint64_t address(size_t offset = 0) const { return reinterpret_cast<uintptr_t>(bytes_.data()) + offset; }
  std::vector<std::byte>& bytes() { return bytes_; }

 private:
  EmulatedDevice& device_;
  std::vector<std::byte> bytes_;
};

/// A zeroed 64-bit word in pinned memory of its own.
inline uint64_t make_word(EmulatedDevice& device) { return allocate(device, 8, MemoryKind::pinned); }
inline uint64_t read_word(uint64_t address) {
  return __atomic_load_n(reinterpret_cast<const uint64_t*>(address), __ATOMIC_ACQUIRE);
}

inline Copy plain(uint64_t to, uint64_t from, uint64_t width) { return Copy{to, from, width}; }

inline Status copy(Queue& queue, uint64_t to, uint64_t from, uint64_t width) {
  const Copy one = plain(to, from, width);
  return queue.copy(&one, 1);
}

/// Random bytes in [address, address + length) of the device; returns them.
inline std::vector<std::byte> fill(EmulatedDevice& device, uint64_t address, size_t length) {
  Pinned source(device, length);
  auto queue = make_queue(device);
  EXPECT_EQ(copy(*queue, address, source.address(), length), TW_OK);
  EXPECT_EQ(queue->synchronize(), TW_OK);
  return source.bytes();
}

inline bool holds(const EmulatedDevice& device, uint64_t address, const std::vector<std::byte>& expected) {
  const std::byte* view = device.translate(address, expected.size());
  return view != nullptr && std::memcmp(view, expected.data(), expected.size()) == 0;
}

}  // namespace thalweg::impl::emulated
