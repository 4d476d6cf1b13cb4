// SPDX-License-Identifier: Apache-2.0
// Operations that name a stream: their bytes are touched only behind its earlier work, while the caller goes on.
#include <gtest/gtest.h>
#include <thalweg/places.h>

#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "devices/registry.hpp"

namespace thalweg::impl {
namespace {

constexpr size_t kBytes = 70001;

std::vector<unsigned char> random_bytes() {
  std::vector<unsigned char> bytes(kBytes);
  std::mt19937_64 random(std::random_device{}());
  for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random());
  return bytes;
}

/// A worker connected to itself, three buffers on a device, and a stream of the user's that is held up by a word.
class DeviceOrder : public testing::Test {
 protected:
  void SetUp() override {
    ::setenv("THALWEG_EMULATED", "devices=2", 0);
    ASSERT_EQ(tw_context_create(nullptr, &context_), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_worker_create(context_, nullptr, &worker_), TW_OK);
    unsigned char address[TW_ADDRESS_MAX];
    size_t length = sizeof address;
    ASSERT_EQ(tw_worker_address(worker_, address, &length), TW_OK);
    ASSERT_EQ(tw_connect(worker_, address, length, nullptr, &endpoint_), TW_OK);
    ASSERT_EQ(tw_endpoint_wait(endpoint_, 10'000'000'000), TW_OK);
    for (tw_memory** memory : {&source_, &fresh_, &target_}) {
      tw_memory_options options = TW_MEMORY_OPTIONS_INIT;
      options.place = "emulated:0";
      ASSERT_EQ(tw_memory_allocate(context_, kBytes, &options, memory), TW_OK) << tw_last_error();
    }
    BufferInfo info;
    ASSERT_EQ(find_device(number(source_), &info), TW_OK);
    device_ = info.device;
    ASSERT_EQ(device_->make_queue(&stream_), TW_OK);
    ASSERT_EQ(device_->allocate(MemoryKind::pinned, 64, &word_), TW_OK);
    *reinterpret_cast<uint64_t*>(word_) = 0;
    store(source_, old_);
    store(fresh_, new_);
    store(target_, old_);
  }
  void TearDown() override {
    release();
    if (stream_ != nullptr) stream_->synchronize();
    stream_.reset();
    tw_endpoint_close(endpoint_, TW_CLOSE_GRACEFUL, nullptr);
    tw_worker_destroy(worker_);
    for (tw_memory* memory : {source_, fresh_, target_}) tw_memory_release(memory);
    if (device_ != nullptr) device_->free(word_);
    tw_context_destroy(context_);
  }
  static uint64_t number(const tw_memory* memory) { return reinterpret_cast<uint64_t>(tw_memory_address(memory)); }
  void store(tw_memory* memory, const std::vector<unsigned char>& bytes) {
    ASSERT_EQ(tw_memory_copy(context_, tw_memory_address(memory), bytes.data(), bytes.size()), TW_OK) << tw_last_error();
  }
  std::vector<unsigned char> load(tw_memory* memory) {
    std::vector<unsigned char> bytes(kBytes);
    EXPECT_EQ(tw_memory_copy(context_, bytes.data(), tw_memory_address(memory), bytes.size()), TW_OK) << tw_last_error();
    return bytes;
  }
  /// The stream will copy `from` to `to`, as soon as release() is called.
  void hold_up(tw_memory* to, tw_memory* from) {
    ASSERT_EQ(stream_->wait_geq(word_, 1), TW_OK) << last_error();
    const Copy copy{number(to), number(from), kBytes};
    ASSERT_EQ(stream_->copy(&copy, 1), TW_OK) << last_error();
  }
  void release() {
    if (word_ != 0) __atomic_store_n(reinterpret_cast<uint64_t*>(word_), 1, __ATOMIC_RELEASE);
  }
  tw_op_options after_stream() {
    tw_op_options options = TW_OP_OPTIONS_INIT;
    options.after = stream_->native();
    options.after_kind = TW_AFTER_STREAM;
    return options;
  }
  /// Progress, as much as an operation that does not wait would ever need.
  void let_pass() {
    for (int i = 0; i < 20000; ++i) tw_progress(worker_);
  }

  tw_context* context_ = nullptr;
  tw_worker* worker_ = nullptr;
  tw_endpoint* endpoint_ = nullptr;
  tw_memory *source_ = nullptr, *fresh_ = nullptr, *target_ = nullptr;
  Device* device_ = nullptr;
  std::unique_ptr<Queue> stream_;
  uint64_t word_ = 0;
  const std::vector<unsigned char> old_ = random_bytes(), new_ = random_bytes();
};

TEST_F(DeviceOrder, ASendSendsWhatTheStreamWillHaveWritten) {
  hold_up(source_, fresh_);
  const tw_op_options options = after_stream();
  tw_request send = TW_REQUEST_NONE, receive = TW_REQUEST_NONE;
  ASSERT_EQ(tw_recv(worker_, tw_memory_address(target_), kBytes, 7, ~0ull, nullptr, &receive), TW_IN_PROGRESS);
  ASSERT_EQ(tw_send(endpoint_, tw_memory_address(source_), kBytes, 7, &options, &send), TW_IN_PROGRESS) << tw_last_error();
  let_pass();
  EXPECT_EQ(tw_request_test(send), TW_IN_PROGRESS);
  EXPECT_EQ(load(target_), old_);
  release();
  EXPECT_EQ(tw_wait(send), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_wait(receive), TW_OK) << tw_last_error();
  EXPECT_EQ(load(target_), new_);
}

/// Small enough to come unasked, and large enough to be announced.
TEST_F(DeviceOrder, AReceiveDoesNotOverwriteWhatTheStreamStillReads) {
  for (const size_t length : {size_t{40}, kBytes}) {
    hold_up(fresh_, target_);  // reads the target
    const tw_op_options options = after_stream();
    const std::vector<unsigned char> sent = random_bytes();
    tw_request receive = TW_REQUEST_NONE, send = TW_REQUEST_NONE;
    ASSERT_EQ(tw_recv(worker_, tw_memory_address(target_), kBytes, 7, ~0ull, &options, &receive), TW_IN_PROGRESS);
    ASSERT_GE(tw_send(endpoint_, sent.data(), length, 7, nullptr, &send), TW_OK) << tw_last_error();
    let_pass();
    EXPECT_EQ(tw_request_test(receive), TW_IN_PROGRESS);
    const std::vector<unsigned char> before = load(target_);
    release();
    EXPECT_EQ(tw_wait(receive), TW_OK) << tw_last_error();
    EXPECT_EQ(send == TW_REQUEST_NONE ? TW_OK : tw_wait(send), TW_OK);
    ASSERT_EQ(stream_->synchronize(), TW_OK);
    EXPECT_EQ(load(fresh_), before) << "the stream read what had been received already";
    EXPECT_EQ(std::memcmp(load(target_).data(), sent.data(), length), 0);
    __atomic_store_n(reinterpret_cast<uint64_t*>(word_), 0, __ATOMIC_RELEASE);
  }
}

TEST_F(DeviceOrder, APutWaitsAndAFlushWaitsForIt) {
  unsigned char key[TW_KEY_MAX];
  size_t length = sizeof key;
  ASSERT_EQ(tw_memory_export(target_, key, &length), TW_OK);
  tw_remote_memory* remote = nullptr;
  ASSERT_EQ(tw_memory_import(endpoint_, key, length, &remote), TW_OK) << tw_last_error();
  hold_up(source_, fresh_);
  const tw_op_options options = after_stream();
  tw_request put = TW_REQUEST_NONE, flush = TW_REQUEST_NONE;
  ASSERT_EQ(tw_put(endpoint_, tw_memory_address(source_), kBytes, remote, 0, &options, &put), TW_IN_PROGRESS);
  ASSERT_EQ(tw_endpoint_flush(endpoint_, &flush), TW_IN_PROGRESS);
  let_pass();
  EXPECT_EQ(tw_request_test(put), TW_IN_PROGRESS);
  EXPECT_EQ(tw_request_test(flush), TW_IN_PROGRESS);
  EXPECT_EQ(load(target_), old_);
  release();
  EXPECT_EQ(tw_wait(flush), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_request_test(put), TW_OK);
  EXPECT_EQ(tw_wait(put), TW_OK);
  EXPECT_EQ(load(target_), new_);
  tw_remote_memory_release(remote);
}

/// Host memory that a stream fills is ordered in the same way.
TEST_F(DeviceOrder, PinnedMemoryThatAStreamFills) {
  uint64_t pinned = 0;
  ASSERT_EQ(device_->allocate(MemoryKind::pinned, kBytes, &pinned), TW_OK);
  std::memcpy(reinterpret_cast<void*>(pinned), old_.data(), kBytes);
  ASSERT_EQ(stream_->wait_geq(word_, 1), TW_OK);
  const Copy copy{pinned, number(fresh_), kBytes};
  ASSERT_EQ(stream_->copy(&copy, 1), TW_OK);
  const tw_op_options options = after_stream();
  std::vector<unsigned char> got(kBytes, 0xC3);
  tw_request send = TW_REQUEST_NONE, receive = TW_REQUEST_NONE;
  ASSERT_EQ(tw_recv(worker_, got.data(), kBytes, 7, ~0ull, nullptr, &receive), TW_IN_PROGRESS);
  ASSERT_EQ(tw_send(endpoint_, reinterpret_cast<void*>(pinned), 100, 7, &options, &send), TW_IN_PROGRESS) << tw_last_error();
  let_pass();
  EXPECT_EQ(tw_request_test(send), TW_IN_PROGRESS);
  release();
  EXPECT_EQ(tw_wait(send), TW_OK);
  EXPECT_EQ(tw_wait(receive), TW_OK);
  EXPECT_EQ(std::memcmp(got.data(), new_.data(), 100), 0);
  EXPECT_EQ(got[100], 0xC3);
  ASSERT_EQ(device_->free(pinned), TW_OK);
}

TEST_F(DeviceOrder, WhatCannotBeOrderedOrTouchedIsRefused) {
  tw_op_options options = after_stream();
  options.after_kind = 9;
  tw_request request = TW_REQUEST_NONE;
  void* const source = tw_memory_address(source_);
  EXPECT_EQ(tw_send(endpoint_, source, kBytes, 7, &options, &request), TW_ERR_INVALID);
  EXPECT_EQ(tw_send(endpoint_, source, kBytes + 1, 7, nullptr, &request), TW_ERR_OUT_OF_BOUNDS);
  EXPECT_EQ(tw_bytes_send(endpoint_, source, kBytes, nullptr, &request), TW_ERR_UNSUPPORTED);
  options = TW_OP_OPTIONS_INIT;
  options.flags = TW_OP_EAGER;
  EXPECT_EQ(tw_am_send(endpoint_, 1, nullptr, 0, source, 8, &options, &request), TW_ERR_UNSUPPORTED);
  EXPECT_NE(std::strstr(tw_last_error(), "send device memory without it"), nullptr);
}

}  // namespace
}  // namespace thalweg::impl
