// SPDX-License-Identifier: Apache-2.0
// A message into device memory whose sender closes behind it: it was sent, so it arrives.
#include <gtest/gtest.h>
#include <thalweg/places.h>
#include <thalweg/thalweg.h>

#include <random>
#include <string>
#include <vector>

#include "../../fixtures/rooms.hpp"
#include "base/clock.hpp"
#include "unit/devices/emulated_tools.hpp"

namespace thalweg::impl {
namespace {

constexpr uint64_t kLong = 20'000'000'000;
constexpr unsigned kDevice = 20;

/// Two workers over this transport. Of the receiver's device every task takes so long that the sender's end comes before.
class ClosingSenders : public testing::TestWithParam<const char*> {
 protected:
  struct Side {
    tw_context* context = nullptr;
    tw_worker* worker = nullptr;
    tw_endpoint* endpoint = nullptr;
    std::vector<tw_memory*> memories;
  };
  void SetUp() override {
    static const auto* const devices = [] {  // until the program exits
      emulated::Options slow;
      slow.task_delay_ns = 30 * kMillisecond;
      return new std::array{emulated::open_device(kDevice), emulated::open_device(kDevice + 1, slow)};
    }();
    ASSERT_NE((*devices)[1], nullptr);
    for (Side* side : {&a, &b}) {
      tw_context_options options = TW_CONTEXT_OPTIONS_INIT;
      options.transports = GetParam();
      options.job_key = "thalweg-unit-test-job-key-of-32-b";
      options.job_key_length = 32;
      ASSERT_EQ(tw_context_create(&options, &side->context), TW_OK) << tw_last_error();
      ASSERT_EQ(tw_worker_create(side->context, nullptr, &side->worker), TW_OK) << tw_last_error();
    }
    connect(a, b);
    connect(b, a);
    ASSERT_TRUE(progress_until(
        [&] { return tw_endpoint_state(a.endpoint) != TW_IN_PROGRESS && tw_endpoint_state(b.endpoint) != TW_IN_PROGRESS; }));
    ASSERT_EQ(tw_endpoint_state(a.endpoint), TW_OK);
  }
  void TearDown() override {
    for (Side* side : {&a, &b}) {
      if (side->endpoint != nullptr) (void)tw_endpoint_close(side->endpoint, TW_CLOSE_FORCE, nullptr);
      tw_worker_destroy(side->worker);
      for (tw_memory* memory : side->memories) EXPECT_EQ(tw_memory_release(memory), TW_OK) << tw_last_error();
      tw_context_destroy(side->context);
    }
  }
  static void connect(Side& from, Side& to) {
    unsigned char address[kAddressRoom];
    size_t length = sizeof address;
    ASSERT_EQ(tw_worker_address(to.worker, address, &length), TW_OK);
    ASSERT_EQ(tw_connect(from.worker, address, length, nullptr, &from.endpoint), TW_OK) << tw_last_error();
  }
  template <class Done>
  bool progress_until(const Done& done) {
    const Deadline limit(kLong);
    while (!done() && !limit.passed()) {
      tw_worker_progress(a.worker);
      tw_worker_progress(b.worker);
    }
    return done();
  }
  static unsigned char* allocate(Side& side, unsigned device, size_t length) {
    const std::string place = "emulated:" + std::to_string(device);
    tw_memory_options options = TW_MEMORY_OPTIONS_INIT;
    options.place = place.c_str();
    tw_memory* memory = nullptr;
    EXPECT_EQ(tw_memory_allocate(side.context, length, &options, &memory), TW_OK) << tw_last_error();
    side.memories.push_back(memory);
    return static_cast<unsigned char*>(tw_memory_address(memory));
  }
  Side a, b;
};

TEST_P(ClosingSenders, DeliverWhatTheyHaveSent) {
  std::mt19937_64 random(std::random_device{}());
  for (const size_t length : {size_t{8}, size_t{32'771}, size_t{8} << 20}) {
    std::vector<unsigned char> bytes(length), got(length);
    for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random());
    unsigned char *const from = allocate(a, kDevice, length), *const to = allocate(b, kDevice + 1, length);
    ASSERT_EQ(tw_memory_copy(a.context, from, bytes.data(), length), TW_OK) << tw_last_error();
    tw_request received = TW_REQUEST_NONE, sent = TW_REQUEST_NONE, closed = TW_REQUEST_NONE;
    ASSERT_EQ(tw_recv(b.worker, to, length, 7, ~uint64_t{0}, nullptr, &received), TW_IN_PROGRESS) << tw_last_error();
    ASSERT_GE(tw_send(a.endpoint, from, length, 7, nullptr, &sent), TW_OK) << tw_last_error();
    ASSERT_GE(tw_endpoint_close(a.endpoint, TW_CLOSE_GRACEFUL, &closed), TW_OK) << tw_last_error();
    a.endpoint = nullptr;
    EXPECT_TRUE(progress_until([&] { return tw_request_test(received) != TW_IN_PROGRESS; }));
    EXPECT_EQ(tw_request_test(received), TW_OK) << tw_request_message(received);
    EXPECT_TRUE(progress_until([&] { return tw_endpoint_state(b.endpoint) != TW_OK; }));
    EXPECT_EQ(tw_endpoint_state(b.endpoint), TW_ERR_CLOSED);
    for (tw_request request : {received, sent, closed}) {
      if (request != TW_REQUEST_NONE) EXPECT_EQ(tw_request_release(request), TW_OK);
    }
    ASSERT_EQ(tw_memory_copy(b.context, got.data(), to, length), TW_OK) << tw_last_error();
    EXPECT_TRUE(got == bytes) << length;
    (void)tw_endpoint_close(b.endpoint, TW_CLOSE_FORCE, nullptr);
    connect(a, b);
    connect(b, a);
    ASSERT_TRUE(progress_until(
        [&] { return tw_endpoint_state(a.endpoint) != TW_IN_PROGRESS && tw_endpoint_state(b.endpoint) != TW_IN_PROGRESS; }));
  }
}

INSTANTIATE_TEST_SUITE_P(Over, ClosingSenders, testing::Values("tcp", "shm"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace thalweg::impl
