// SPDX-License-Identifier: Apache-2.0
// A graceful close has delivered what was sent, also where the process ends right behind it and the receiver is slow: what
// the kernel still has when a socket ends with unread answers is discarded.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "process.hpp"

using namespace thalweg::test;

namespace {

constexpr size_t kSize = 65536;
constexpr uint64_t kCount = 400;

/// The transport and the receiver's address in.
const Role kSender("leaving_sender", [](Pipe& pipe) {
  Side side;
  const std::string transport = pipe.receive(), address = pipe.receive();
  tw_endpoint* endpoint = side.connect(address, transport.c_str());
  if (endpoint == nullptr || tw_endpoint_wait(endpoint, 20'000'000'000) != TW_OK) return 1;
  std::vector<unsigned char> data(kSize);
  for (uint64_t n = 0; n < kCount; ++n) {
    std::memcpy(data.data(), &n, sizeof n);
    if (tw_send_blocking(endpoint, data.data(), kSize, 1) != TW_OK) return 2;
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(5));  // unread answers arrive
  if (tw_endpoint_close(endpoint, TW_CLOSE_GRACEFUL, nullptr) != TW_OK) return 3;
  _exit(0);
});

class Leaving : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Over, Leaving, testing::Values("shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(Leaving, EverythingArrivesAtASlowReceiver) {
  Side side;
  Child sender("leaving_sender");
  sender.send(GetParam());
  sender.send(side.address());
  std::vector<unsigned char> in(kSize);
  for (uint64_t n = 0; n < kCount; ++n) {
    if (n % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(3));
    tw_request request = TW_REQUEST_NONE;
    ASSERT_EQ(tw_recv(side.worker, in.data(), kSize, 1, ~0ull, nullptr, &request), TW_IN_PROGRESS);
    ASSERT_EQ(tw_request_wait(request, 20'000'000'000), TW_OK) << "message " << n << ": " << tw_last_error();
    ASSERT_EQ(tw_request_release(request), TW_OK);
    uint64_t number = 0;
    std::memcpy(&number, in.data(), sizeof number);
    ASSERT_EQ(number, n);
  }
  EXPECT_EQ(sender.join(), 0);
}

}  // namespace
