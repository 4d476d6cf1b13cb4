// SPDX-License-Identifier: Apache-2.0
// A signal whose word is in device memory that cannot be read or written: whoever asks is told so.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "core/context.hpp"
#include "devices/emulated/emulated.hpp"
#include "devices/registry.hpp"

namespace thalweg::impl {
namespace {

[[maybe_unused]] const int kDevices = setenv("THALWEG_EMULATED", "devices=2,vmm_piece=65536", 1);

class DeviceSignals : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(tw_context_create(nullptr, &context_), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_worker_create(context_, nullptr, &worker_), TW_OK) << tw_last_error();
    tw_memory_options place = TW_MEMORY_OPTIONS_INIT;
    place.place = "emulated:0";
    ASSERT_EQ(tw_memory_allocate(context_, 4096, &place, &memory_), TW_OK) << tw_last_error();
    BufferInfo info;
    ASSERT_EQ(find_device(reinterpret_cast<uint64_t>(tw_memory_address(memory_)), &info), TW_OK);
    device_ = static_cast<emulated::EmulatedDevice*>(info.device);
    options_.memory = memory_;
    options_.initial = 40;
  }
  void TearDown() override {
    fail_copy(0);
    if (signal_ != nullptr) EXPECT_EQ(tw_signal_destroy(signal_), TW_OK);
    EXPECT_EQ(tw_memory_release(memory_), TW_OK);
    tw_worker_destroy(worker_);
    tw_context_destroy(context_);
  }
  /// The nth copy from now on.
  void fail_copy(unsigned nth) { device_->faults().inject(emulated::Operation::copy, nth); }
  void expect_told(tw_status status) {
    EXPECT_EQ(status, TW_ERR_DEVICE);
    EXPECT_NE(std::string(tw_last_error()).find("was told to fail"), std::string::npos) << tw_last_error();
    fail_copy(0);
  }
  tw_context* context_ = nullptr;
  tw_worker* worker_ = nullptr;
  tw_memory* memory_ = nullptr;
  tw_signal* signal_ = nullptr;
  emulated::EmulatedDevice* device_ = nullptr;
  tw_signal_options options_ = TW_SIGNAL_OPTIONS_INIT;
};

TEST_F(DeviceSignals, AFailedCopyIsNoValue) {
  fail_copy(1);
  expect_told(tw_signal_create(worker_, &options_, &signal_));
  EXPECT_EQ(signal_, nullptr);
  ASSERT_EQ(tw_signal_create(worker_, &options_, &signal_), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_signal_test(signal_, 40, TW_COMPARE_EQ), TW_OK);
  fail_copy(1);
  expect_told(tw_signal_test(signal_, 0, TW_COMPARE_EQ));
  fail_copy(3);
  expect_told(tw_signal_wait(signal_, 41, TW_COMPARE_EQ, 10'000'000'000));
  fail_copy(1);
  expect_told(tw_signal_reset(signal_, 50));
  EXPECT_EQ(tw_signal_read(signal_), 40u);
  EXPECT_EQ(tw_signal_reset(signal_, 50), TW_OK);
  EXPECT_EQ(tw_signal_read(signal_), 50u);
}

}  // namespace
}  // namespace thalweg::impl
