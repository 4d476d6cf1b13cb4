// SPDX-License-Identifier: Apache-2.0
// Buffers that this process may not read, as memory of a GPU is where its driver is not loaded: named errors, not faults. A range
// that is reserved without access stands for it.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <thalweg/thalweg.hpp>

#include <cstring>
#include <random>
#include <vector>

#include "../../fixtures/rooms.hpp"
#include "core/c_checks.hpp"

namespace {

constexpr size_t kReserved = 1u << 20;

class Unreadable : public testing::Test {
 protected:
  void SetUp() override {
    reserved = ::mmap(nullptr, kReserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(reserved, MAP_FAILED);
    std::mt19937_64 random(std::random_device{}());
    for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random());
    char address[kAddressRoom];
    size_t length = sizeof address;
    ASSERT_EQ(tw_worker_address(worker.get(), address, &length), TW_OK);
    ASSERT_EQ(tw_connect(worker.get(), address, length, nullptr, &endpoint), TW_OK);
    ASSERT_EQ(tw_endpoint_wait(endpoint, 10'000'000'000), TW_OK);
    ASSERT_EQ(tw_memory_register(context.get(), bytes.data(), bytes.size(), nullptr, &memory), TW_OK);
    char key[kKeyRoom];
    length = sizeof key;
    ASSERT_EQ(tw_memory_export(memory, key, &length), TW_OK);
    ASSERT_EQ(tw_memory_import(endpoint, key, length, &remote), TW_OK);
  }
  void TearDown() override {
    tw_remote_memory_release(remote);
    EXPECT_EQ(tw_memory_release(memory), TW_OK);
    ::munmap(reserved, kReserved);
  }
  static void expect_named(tw_status status) {
    EXPECT_EQ(status, TW_ERR_UNSUPPORTED);
    EXPECT_NE(std::strstr(tw_last_error(), "thalweg info"), nullptr) << tw_last_error();
  }
  /// A message to oneself, whole.
  void expect_alive() {
    std::vector<unsigned char> back(bytes.size(), 0x5a);
    tw_request requests[2] = {};
    ASSERT_EQ(tw_recv(worker.get(), back.data(), back.size(), 1, ~0ull, nullptr, &requests[0]), TW_IN_PROGRESS);
    ASSERT_GE(tw_send(endpoint, bytes.data(), bytes.size(), 1, nullptr, &requests[1]), TW_OK);
    for (tw_request request : requests) {
      if (request == TW_REQUEST_NONE) continue;
      EXPECT_EQ(tw_request_wait(request, 10'000'000'000), TW_OK);
      (void)tw_request_release(request);
    }
    EXPECT_EQ(back, bytes);
  }
  thalweg::Context context;
  thalweg::Worker worker{context};
  tw_endpoint* endpoint = nullptr;
  tw_memory* memory = nullptr;
  tw_remote_memory* remote = nullptr;
  void* reserved = nullptr;
  std::vector<unsigned char> bytes = std::vector<unsigned char>(kReserved);
};

TEST_F(Unreadable, RegisteringIsRefused) {
  tw_memory* other = nullptr;
  expect_named(tw_memory_register(context.get(), reserved, kReserved, nullptr, &other));
  // Of a range that begins well the end counts, too.
  ASSERT_EQ(::mprotect(reserved, kReserved / 2, PROT_READ | PROT_WRITE), 0);
  expect_named(tw_memory_register(context.get(), reserved, kReserved, nullptr, &other));
  ASSERT_EQ(tw_memory_register(context.get(), reserved, kReserved / 2, nullptr, &other), TW_OK);
  EXPECT_EQ(tw_memory_release(other), TW_OK);
}

TEST_F(Unreadable, PreparingBlocksIsRefused) {
  tw_blocks* blocks = nullptr;
  const tw_block_range range = {nullptr, reserved, 0, 0, 4};
  expect_named(tw_blocks_create(context.get(), &range, 1, 4096, &blocks));
}

TEST_F(Unreadable, LargeOperationsAreRefused) {
  using thalweg::impl::kAsked;
  tw_request request = TW_REQUEST_NONE;
  for (const size_t length : {kAsked, kReserved}) {
    expect_named(tw_send(endpoint, reserved, length, 1, nullptr, &request));
    expect_named(tw_send_blocking(endpoint, reserved, length, 1));
    expect_named(tw_recv(worker.get(), reserved, length, 1, ~0ull, nullptr, &request));
    expect_named(tw_recv_blocking(worker.get(), reserved, length, 1, ~0ull, nullptr));
    expect_named(tw_put(endpoint, reserved, length, remote, 0, nullptr, &request));
    expect_named(tw_get(endpoint, reserved, length, remote, 0, nullptr, &request));
    expect_named(tw_am_send(endpoint, 1, nullptr, 0, reserved, length, nullptr, &request));
    EXPECT_EQ(request, TW_REQUEST_NONE);
  }
  expect_alive();
}

/// Every second row of a layout that ends in what may not be read.
TEST_F(Unreadable, OfALayoutTheSpanCounts) {
  ASSERT_EQ(::mprotect(reserved, kReserved / 2, PROT_READ | PROT_WRITE), 0);
  tw_layout* layout = nullptr;
  const uint64_t rows = 96;
  const int64_t stride = 8192;
  ASSERT_EQ(tw_layout_strided(1, 4096, &rows, &stride, &layout), TW_OK) << tw_last_error();
  tw_op_options options = TW_OP_OPTIONS_INIT;
  options.layout = layout;
  tw_request request = TW_REQUEST_NONE;
  expect_named(tw_send(endpoint, reserved, 0, 1, &options, &request));
  tw_layout_destroy(layout);
  expect_alive();
}

}  // namespace
