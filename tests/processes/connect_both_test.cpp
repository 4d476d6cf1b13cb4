// SPDX-License-Identifier: Apache-2.0
// Simultaneous connects: two processes connect to each other's worker address at once, over and over, and always end with
// one connection whose early traffic arrives; and hundreds of endpoints in one worker.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "process.hpp"

using namespace thalweg::test;

namespace {

constexpr int kRounds = 50;

/// One side of a round: connects at once, sends a number, expects the other's number from the same endpoint.
bool round_of(Side& side, const std::string& other, uint64_t mine, uint64_t theirs, bool graceful) {
  tw_endpoint* endpoint = side.connect(other);
  if (endpoint == nullptr) return false;
  tw_request send = TW_REQUEST_NONE, receive = TW_REQUEST_NONE;
  uint64_t got = 0;
  tw_op_options options = TW_OP_OPTIONS_INIT;
  options.source = endpoint;
  if (tw_send(endpoint, &mine, sizeof mine, 1, nullptr, &send) < 0) return false;
  if (tw_recv(side.worker, &got, sizeof got, 1, UINT64_MAX, &options, &receive) != TW_IN_PROGRESS) return false;
  const tw_status sent = tw_request_finish(send);
  const tw_status received = tw_request_wait(receive, 20'000'000'000);
  if (sent != TW_OK || received != TW_OK) {
    fprintf(stderr, "round: sent %s, received %s (%s)\n", tw_status_name(sent), tw_status_name(received), tw_last_error());
    return false;
  }
  (void)tw_request_release(receive);
  if (graceful) (void)tw_endpoint_close(endpoint, TW_CLOSE_GRACEFUL, nullptr);
  return got == theirs;
}

const Role kBoth("both", [](Pipe& pipe) {
  for (int i = 0; i < kRounds; ++i) {
    Side side;
    pipe.send(side.address());
    const std::string other = pipe.receive();
    if (!round_of(side, other, 2000 + uint64_t(i), 1000 + uint64_t(i), i % 2 == 0)) return 1;
    pipe.send("done");
    if (!progress_until(side.worker, [&] { return pipe.readable(); }) || pipe.receive() != "next") return 2;
  }
  return 0;
});

TEST(ConnectBoth, EndsInOneConnection) {
  Child child("both");
  for (int i = 0; i < kRounds; ++i) {
    Side side;
    child.send(side.address());
    const std::string other = child.receive();
    ASSERT_TRUE(round_of(side, other, 1000 + uint64_t(i), 2000 + uint64_t(i), i % 2 == 1)) << "round " << i;
    // The other may still wait for what only our progress moves.
    ASSERT_TRUE(progress_until(side.worker, [&] { return child.readable(); })) << "round " << i;
    ASSERT_EQ(child.receive(), "done") << "round " << i;
    child.send("next");
  }
  EXPECT_EQ(child.join(), 0);
}

TEST(ConnectBoth, InOneThread) {
  for (int i = 0; i < kRounds; ++i) {
    Side a, b;
    tw_endpoint* ab = a.connect(b.address());
    tw_endpoint* ba = b.connect(a.address());
    uint64_t to_b = 11, to_a = 22, at_a = 0, at_b = 0;
    tw_request requests[4] = {};
    ASSERT_GE(tw_send(ab, &to_b, 8, 1, nullptr, &requests[0]), 0);
    ASSERT_GE(tw_send(ba, &to_a, 8, 1, nullptr, &requests[1]), 0);
    tw_op_options from = TW_OP_OPTIONS_INIT;
    from.source = ab;
    ASSERT_EQ(tw_recv(a.worker, &at_a, 8, 1, UINT64_MAX, &from, &requests[2]), TW_IN_PROGRESS);
    from.source = ba;
    ASSERT_EQ(tw_recv(b.worker, &at_b, 8, 1, UINT64_MAX, &from, &requests[3]), TW_IN_PROGRESS);
    ASSERT_TRUE(progress_until(a.worker,
                               [&] {
                                 tw_worker_progress(b.worker);
                                 for (tw_request request : requests) {
                                   if (tw_request_test(request) == TW_IN_PROGRESS) return false;
                                 }
                                 return true;
                               }))
        << "round " << i;
    for (tw_request request : requests) EXPECT_EQ(tw_request_finish(request), TW_OK) << tw_last_error();
    EXPECT_EQ(at_a, 22u);
    EXPECT_EQ(at_b, 11u);
    EXPECT_EQ(a.connect(b.address()), ab);
    EXPECT_EQ(b.connect(a.address()), ba);
  }
}

const Role kMany("many", [](Pipe& pipe) {
  const std::string to = pipe.receive();
  SideOptions options;
  options.transports = pipe.receive() == "tcp" ? "self,tcp" : "self,shm";
  Side side(options);
  std::vector<tw_worker*> workers;
  for (int i = 0; i < 25; ++i) {
    tw_worker* worker = nullptr;
    if (tw_worker_create(side.context, nullptr, &worker) != TW_OK) return 1;
    workers.push_back(worker);
    tw_endpoint* endpoint = nullptr;
    if (tw_connect(worker, to.data(), to.size(), nullptr, &endpoint) != TW_OK) return 2;
    if (!echo(worker, endpoint, 100 + size_t(i), uint64_t(i))) return 3;
  }
  pipe.send("all connected");
  if (pipe.receive() != "end") return 4;
  for (tw_worker* worker : workers) tw_worker_destroy(worker);
  return 0;
});

class Many : public testing::TestWithParam<const char*> {};

TEST_P(Many, TwoHundredEndpoints) {
  SideOptions options;
  options.threads = TW_THREADS_MULTI;
  options.progress = TW_PROGRESS_CALLER;
  Side side(options);
  constexpr int kChildren = 8, kEach = 25;
  std::vector<std::unique_ptr<Child>> children;
  for (int i = 0; i < kChildren; ++i) {
    children.push_back(std::make_unique<Child>("many"));
    children.back()->send(side.address());
    children.back()->send(GetParam());
  }
  std::string buffer(4096, '\0');
  for (int i = 0; i < kChildren * kEach; ++i) {
    tw_recv_info info{};
    ASSERT_EQ(tw_recv_blocking(side.worker, buffer.data(), buffer.size(), 0, 0, &info), TW_OK) << i;
    ASSERT_EQ(tw_send_blocking(info.endpoint, buffer.data(), info.length, info.tag), TW_OK) << tw_last_error();
  }
  for (auto& child : children) EXPECT_EQ(child->receive(), "all connected");
  for (auto& child : children) child->send("end");
  for (auto& child : children) EXPECT_EQ(child->join(), 0);
}
INSTANTIATE_TEST_SUITE_P(Transports, Many, testing::Values("shm", "tcp"), [](const auto& i) { return std::string(i.param); });

}  // namespace
