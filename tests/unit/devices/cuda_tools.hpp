// SPDX-License-Identifier: Apache-2.0
// The CUDA back end over the fake driver (tests/fixtures/fake_cuda).
#pragma once
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "devices/cuda/backend.hpp"
#include "devices/cuda/device.hpp"
#include "tests/fixtures/fake_cuda/fake_cuda.hpp"

namespace thalweg::impl::cuda {

class CudaTest : public ::testing::Test {
 protected:
  CudaTest() {
    library = dlopen(FAKE_CUDA, RTLD_NOW);
    fake = symbol<FakeCuda*()>("fake_cuda")();
    *fake = FakeCuda{};
    symbol<void()>("fake_cuda_forget_peers")();  // access that an earlier test gave
    EXPECT_EQ(load_driver(FAKE_CUDA, &driver), TW_OK) << last_error();
    backend = std::make_unique<CudaBackend>(driver);
  }
  ~CudaTest() override {
    EXPECT_EQ(depth(), 0u) << "a context was left current";
    dlclose(library);
  }
  void open() {
    ASSERT_EQ(backend->devices(&devices), TW_OK) << last_error();
    ASSERT_EQ(devices.size(), static_cast<size_t>(kFakeDevices));
  }
  /// False, with the reason as last_error(): this build has no CUDA kernels.
  bool has_kernels() { return devices[0]->load_kernels() != TW_ERR_UNSUPPORTED; }
  template <typename Function>
  Function* symbol(const char* name) {
    return reinterpret_cast<Function*>(dlsym(library, name));
  }
  size_t depth() { return symbol<size_t()>("fake_cuda_depth")(); }

  uint64_t allocate(MemoryKind kind, size_t length, unsigned device = 0) {
    uint64_t address = 0;
    EXPECT_EQ(devices[device]->allocate(kind, length, &address), TW_OK) << last_error();
    return address;
  }
  std::unique_ptr<Queue> make_queue(unsigned device = 0) {
    std::unique_ptr<Queue> queue;
    EXPECT_EQ(devices[device]->make_queue(&queue), TW_OK) << last_error();
    return queue;
  }
  /// The fake's device memory is host memory to look at.
  static std::vector<std::byte> bytes_at(uint64_t address, size_t length) {
    const auto* first = reinterpret_cast<const std::byte*>(address);
    return {first, first + length};
  }
  static std::vector<std::byte> fill(uint64_t address, size_t length) {
    std::mt19937_64 rng(std::random_device{}());
    for (size_t i = 0; i < length; ++i) reinterpret_cast<std::byte*>(address)[i] = static_cast<std::byte>(rng());
    return bytes_at(address, length);
  }
  static uint64_t word_at(uint64_t address) {
    return __atomic_load_n(reinterpret_cast<const uint64_t*>(address), __ATOMIC_ACQUIRE);
  }

  DriverApi driver;
  void* library = nullptr;
  FakeCuda* fake = nullptr;
  std::unique_ptr<CudaBackend> backend;
  std::vector<Device*> devices;
};

}  // namespace thalweg::impl::cuda
