// SPDX-License-Identifier: Apache-2.0
// Waiting for one of several requests: of one worker, of several, and by the C++ view.
#include <gtest/gtest.h>

#include <random>
#include <thread>
#include <vector>

#include "../../fixtures/rooms.hpp"
#include "thalweg/thalweg.hpp"

namespace {

constexpr uint64_t kLong = 20'000'000'000;
constexpr size_t kSize = 3001;

/// Two workers of this thread, each with an endpoint to itself over this transport.
class WaitAny : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    ASSERT_EQ(tw_context_create(nullptr, &context_), TW_OK);
    for (int i = 0; i < 2; ++i) {
      ASSERT_EQ(tw_worker_create(context_, nullptr, &worker_[i]), TW_OK) << tw_last_error();
      unsigned char address[kAddressRoom];
      size_t length = sizeof address;
      ASSERT_EQ(tw_worker_address(worker_[i], address, &length), TW_OK);
      tw_endpoint_options options = TW_ENDPOINT_OPTIONS_INIT;
      options.transport = GetParam();
      ASSERT_EQ(tw_connect(worker_[i], address, length, &options, &endpoint_[i]), TW_OK) << tw_last_error();
      ASSERT_EQ(tw_endpoint_wait(endpoint_[i], kLong), TW_OK) << tw_last_error();
    }
    std::random_device seed;
    for (unsigned char& byte : from_) byte = static_cast<unsigned char>(seed());
  }
  void TearDown() override {
    for (tw_worker* worker : worker_) tw_worker_destroy(worker);
    tw_context_destroy(context_);
  }
  tw_request receive(int worker, uint64_t tag, std::vector<unsigned char>& to) {
    tw_request request = TW_REQUEST_NONE;
    EXPECT_EQ(tw_recv(worker_[worker], to.data(), to.size(), tag, ~uint64_t{0}, nullptr, &request), TW_IN_PROGRESS);
    return request;
  }
  void send(int worker, uint64_t tag) {
    tw_request request = TW_REQUEST_NONE;
    ASSERT_GE(tw_send(endpoint_[worker], from_.data(), from_.size(), tag, nullptr, &request), TW_OK) << tw_last_error();
    if (request != TW_REQUEST_NONE) ASSERT_EQ(tw_request_release(request), TW_OK);
  }
  tw_context* context_ = nullptr;
  tw_worker* worker_[2] = {};
  tw_endpoint* endpoint_[2] = {};
  std::vector<unsigned char> from_ = std::vector<unsigned char>(kSize);
};
INSTANTIATE_TEST_SUITE_P(Over, WaitAny, testing::Values("self", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(WaitAny, TellsWhichOfSeveralWorkersHasEnded) {
  std::vector<std::vector<unsigned char>> to(6, std::vector<unsigned char>(kSize));
  std::vector<tw_request> requests;
  for (int i = 0; i < 6; ++i) requests.push_back(receive(i % 2, static_cast<uint64_t>(i), to[static_cast<size_t>(i)]));
  for (const size_t next : {3u, 0u, 5u, 1u, 4u, 2u}) {
    send(static_cast<int>(next % 2), next);
    size_t index = 99;
    ASSERT_EQ(tw_request_wait_any(requests.data(), requests.size(), kLong, &index), TW_OK) << tw_last_error();
    ASSERT_EQ(index, next);
    EXPECT_EQ(tw_request_test(requests[index]), TW_OK);
    EXPECT_TRUE(to[index] == from_);
    ASSERT_EQ(tw_request_release(requests[index]), TW_OK);
    requests[index] = TW_REQUEST_NONE;
  }
  size_t index = 99;
  EXPECT_EQ(tw_request_wait_any(requests.data(), requests.size(), kLong, &index), TW_ERR_INVALID) << "none is left";
}

TEST_P(WaitAny, EndsInTimeAndLeavesThemAlive) {
  std::vector<unsigned char> to(kSize), other(kSize);
  tw_request requests[] = {receive(0, 7, to), TW_REQUEST_NONE, receive(1, 8, other)};
  size_t index = 99;
  EXPECT_EQ(tw_request_wait_any(requests, 3, 2'000'000, &index), TW_ERR_TIMED_OUT);
  EXPECT_EQ(index, 99u);
  EXPECT_EQ(tw_request_wait_any(requests, 3, 0, nullptr), TW_ERR_INVALID);
  EXPECT_EQ(tw_request_wait_any(nullptr, 3, 0, &index), TW_ERR_INVALID);
  ASSERT_EQ(tw_request_cancel(requests[2]), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_request_wait_any(requests, 3, kLong, &index), TW_OK);
  EXPECT_EQ(index, 2u) << "it has ended, though not well";
  EXPECT_EQ(tw_request_test(requests[2]), TW_ERR_CANCELED);
  send(0, 7);
  EXPECT_EQ(tw_request_release(requests[2]), TW_OK);
  requests[2] = TW_REQUEST_NONE;
  ASSERT_EQ(tw_request_wait_any(requests, 3, kLong, &index), TW_OK);
  EXPECT_EQ(index, 0u);
  EXPECT_TRUE(to == from_);
  EXPECT_EQ(tw_request_release(requests[0]), TW_OK);
}

TEST_P(WaitAny, IsThereInCxx) {
  std::vector<unsigned char> to(kSize), other(kSize);
  std::vector<thalweg::Request> requests;
  requests.emplace_back(receive(0, 7, to));
  requests.emplace_back(receive(0, 8, other));
  send(0, 8);
  size_t index = 99;
  ASSERT_EQ(thalweg::wait_any(requests, std::chrono::seconds(20), &index), TW_OK) << tw_last_error();
  EXPECT_EQ(index, 1u);
  ASSERT_EQ(requests[0].cancel(), TW_OK);
  ASSERT_EQ(requests[0].wait(std::chrono::seconds(20)), TW_ERR_CANCELED);
}

}  // namespace
