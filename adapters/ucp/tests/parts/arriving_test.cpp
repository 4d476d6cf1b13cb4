// SPDX-License-Identifier: Apache-2.0
// What a peer may have under way at a receiver, counted where no user of ucp.h can look.
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "../world.hpp"
#include "worker.hpp"

using namespace ucp_test;

namespace {

struct Count {
  size_t calls = 0, bytes = 0;
  bool right = true;
  static ucs_status_t handle(void* arg, const void* header, size_t header_length, void* data, size_t length,
                             const ucp_am_recv_param_t* param) {
    auto& self = *static_cast<Count*>(arg);
    unsigned char value = 0;
    self.right = self.right && header_length == 1;
    std::memcpy(&value, header, header_length != 0);
    const bool announced = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;  // beyond the credit
    for (size_t i = 0; !announced && i < length; ++i) {
      self.right = self.right && static_cast<unsigned char*>(data)[i] == static_cast<unsigned char>(value + i * 7);
    }
    ++self.calls;
    self.bytes += length;
    return UCS_OK;
  }
  explicit Count(ucp_worker_h worker) {
    ucp_am_handler_param_t param{};
    param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    param.id = 1;
    param.cb = handle;
    param.arg = this;
    EXPECT_EQ(ucp_worker_set_am_recv_handler(worker, &param), UCS_OK);
  }
};

std::vector<unsigned char> pattern(unsigned char value, size_t length) {
  std::vector<unsigned char> bytes(length);
  for (size_t i = 0; i < length; ++i) bytes[i] = static_cast<unsigned char>(value + i * 7);
  return bytes;
}

struct Sender {
  World& w;
  uint32_t how;
  std::vector<std::vector<unsigned char>> payloads{};
  std::vector<ucs_status_ptr_t> requests{};
  void send(size_t length) {
    const auto value = static_cast<unsigned char>(payloads.size());
    payloads.push_back(pattern(value, length));
    const ucp_request_param_t param = flags(how);
    ucs_status_ptr_t request = ucp_am_send_nbx(w.a.ep, 1, &value, 1, payloads.back().data(), length, &param);
    ASSERT_FALSE(UCS_PTR_IS_ERR(request));
    if (UCS_PTR_IS_PTR(request)) requests.push_back(request);
  }
  size_t under_way() const {
    size_t count = 0;
    for (ucs_status_ptr_t request : requests) count += ucp_request_check_status(request) == UCS_INPROGRESS;
    return count;
  }
  ~Sender() {
    for (ucs_status_ptr_t request : requests) ucp_request_free(request);
  }
};

TEST(Arriving, WholeMessagesAreFetchedAFewAtATime) {
  World w;
  w.connect();
  Count count(w.b.worker);
  Sender sender{w, UCP_AM_SEND_FLAG_EAGER};
  sender.send(1);
  ASSERT_TRUE(w.until([&] { return count.calls == 1; }));
  constexpr size_t kMessages = 100, kLength = 300'000;
  for (size_t i = 0; i < kMessages; ++i) sender.send(kLength);
  // Its sender serves nobody.
  size_t most = 0, waiting = 0;
  for (int i = 0; i < 20000; ++i) {
    ucp_worker_progress(w.b.worker);
    for (const auto& [endpoint, fetches] : w.b.worker->fetches) {
      most = std::max<size_t>(most, fetches.count);
      waiting = std::max(waiting, fetches.waiting.size());
      EXPECT_LE(fetches.bytes, thalweg::ucx::kMostFetchedBytes);
    }
  }
  EXPECT_LE(most, thalweg::ucx::kMostFetches);
  const char* const tls = std::getenv("UCX_TLS");
  if (tls == nullptr) {  // over tcp most wait at the sender
    EXPECT_GT(waiting, 0u);
  }
  EXPECT_TRUE(w.until([&] { return count.calls == 1 + kMessages && sender.under_way() == 0; }));
  EXPECT_TRUE(count.right);
  EXPECT_EQ(count.bytes, 1 + kMessages * kLength);
  EXPECT_TRUE(w.b.worker->fetches.empty());
}

TEST(Arriving, TheEndOfASenderEndsWhatWaitsToBeFetched) {
  Side b;
  Count count(b.worker);
  {
    World w;
    w.a.connect(b);
    Sender sender{w, UCP_AM_SEND_FLAG_EAGER};
    for (size_t i = 0; i < 60; ++i) sender.send(500'000);
    for (int i = 0; i < 20000; ++i) ucp_worker_progress(b.worker);
    ucp_worker_progress(w.a.worker);
    for (int i = 0; i < 20000; ++i) ucp_worker_progress(b.worker);
  }
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!b.worker->fetches.empty() && std::chrono::steady_clock::now() < limit) ucp_worker_progress(b.worker);
  EXPECT_TRUE(b.worker->fetches.empty());
  EXPECT_TRUE(count.right);
}

TEST(Arriving, InACallTheySpendTheirSendersCredit) {
  World w;
  w.connect();
  Count count(w.b.worker);
  Sender sender{w, 0};
  sender.send(1);
  ASSERT_TRUE(w.until([&] { return count.calls == 1; }));
  ++w.b.worker->holding;  // a call that is none of progress
  constexpr size_t kLength = 4000, kMost = 100'000;
  size_t sent = 0;
  for (int idle = 0; sent < kMost && idle < 2000;) {
    const size_t before = sender.under_way();
    if (before < 100) sender.send(kLength), ++sent;
    ucp_worker_progress(w.a.worker);
    tw_worker_progress(w.b.worker->worker);  // as in such a call
    idle = sender.under_way() < 100 ? 0 : idle + 1;
  }
  EXPECT_LT(sent, kMost) << "the receiver took all";
  EXPECT_EQ(count.calls, 1u);
  --w.b.worker->holding;
  EXPECT_TRUE(w.until([&] { return count.calls == 1 + sent; }));
  EXPECT_TRUE(count.right);
}

}  // namespace
