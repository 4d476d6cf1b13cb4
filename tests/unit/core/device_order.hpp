// SPDX-License-Identifier: Apache-2.0
// A worker connected to itself, buffers on an emulated device, and a stream of the user's that is held up by a word.
#pragma once
#include <gtest/gtest.h>
#include <thalweg/places.h>

#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "../../fixtures/rooms.hpp"
#include "core/c_checks.hpp"
#include "devices/registry.hpp"

namespace thalweg::impl {

inline constexpr size_t kBytes = 70001;

inline std::vector<unsigned char> random_bytes() {
  std::vector<unsigned char> bytes(kBytes);
  std::mt19937_64 random(std::random_device{}());
  for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random());
  return bytes;
}

/// A context, and what its tests do with memory of devices.
class DeviceMemories : public testing::Test {
 protected:
  void store(tw_memory* memory, const std::vector<unsigned char>& bytes) {
    ASSERT_EQ(tw_memory_copy(context_, tw_memory_address(memory), bytes.data(), bytes.size()), TW_OK) << tw_last_error();
  }
  std::vector<unsigned char> load(tw_memory* memory) {
    std::vector<unsigned char> bytes(kBytes);
    EXPECT_EQ(tw_memory_copy(context_, bytes.data(), tw_memory_address(memory), bytes.size()), TW_OK) << tw_last_error();
    return bytes;
  }
  tw_context* context_ = nullptr;
};

class DeviceOrder : public DeviceMemories {
 protected:
  void SetUp() override {
    ::setenv("THALWEG_EMULATED", "devices=2", 0);
    ASSERT_EQ(tw_context_create(nullptr, &context_), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_worker_create(context_, nullptr, &worker_), TW_OK);
    unsigned char address[kAddressRoom];
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
    (void)tw_endpoint_close(endpoint_, TW_CLOSE_GRACEFUL, nullptr);
    tw_worker_destroy(worker_);
    for (tw_memory* memory : {source_, fresh_, target_}) (void)tw_memory_release(memory);
    if (device_ != nullptr) device_->free(word_);
    tw_context_destroy(context_);
  }
  static uint64_t number(const tw_memory* memory) { return reinterpret_cast<uint64_t>(tw_memory_address(memory)); }
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
    for (int i = 0; i < 20000; ++i) tw_worker_progress(worker_);
  }

  tw_worker* worker_ = nullptr;
  tw_endpoint* endpoint_ = nullptr;
  tw_memory *source_ = nullptr, *fresh_ = nullptr, *target_ = nullptr;
  Device* device_ = nullptr;
  std::unique_ptr<Queue> stream_;
  uint64_t word_ = 0;
  const std::vector<unsigned char> old_ = random_bytes(), new_ = random_bytes();
};

}  // namespace thalweg::impl
