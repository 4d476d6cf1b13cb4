// SPDX-License-Identifier: Apache-2.0
// Endpoints that wait to connect: behind graceful closes that take their time, and for the peer's own attempt.
#include <gtest/gtest.h>
#include <poll.h>
#include <thalweg/thalweg.hpp>

#include <chrono>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "core/worker.hpp"

namespace {

constexpr char kKey[] = "a secret of more than sixteen bytes";
constexpr size_t kLarge = (8u << 20) + 3;  // goes by rendezvous

thalweg::ContextOptions options_of(const char* transports) {
  thalweg::ContextOptions options;
  options.job_key = kKey;
  options.job_key_length = sizeof kKey;
  options.transports = transports;
  return options;
}

std::string random_bytes(size_t n) {
  static std::mt19937_64 random{std::random_device{}()};
  std::string bytes(n + sizeof(uint64_t), '\0');
  for (size_t at = 0; at < n; at += sizeof(uint64_t)) {
    const uint64_t some = random();
    std::memcpy(&bytes[at], &some, sizeof some);
  }
  bytes.resize(n);
  return bytes;
}

/// Two workers, as of two processes. `first` is closed by a, and has still something to deliver.
class Successors : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    first = connect(a, b);
    ASSERT_TRUE(reach([&] { return tw_endpoint_state(first) != TW_IN_PROGRESS; }));
    ASSERT_EQ(tw_endpoint_state(first), TW_OK);
  }
  template <class Done>
  bool reach(Done done, bool progress_a = true) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!done()) {
      if (std::chrono::steady_clock::now() > end) return false;
      if (progress_a) a.progress();
      b.progress();
    }
    return true;
  }
  static tw_endpoint* connect(thalweg::Worker& from, thalweg::Worker& to, uint64_t timeout_ns = 0) {
    thalweg::EndpointOptions options;
    options.timeout_ns = timeout_ns;
    const std::string address = to.address();
    tw_endpoint* made = nullptr;
    EXPECT_EQ(tw_connect(from.get(), address.data(), address.size(), &options, &made), TW_OK) << tw_last_error();
    return made;
  }
  /// Nobody receives yet what `first` sends: its close is under way.
  void begin_close() {
    ASSERT_EQ(tw_send(first, sent.data(), sent.size(), 1, nullptr, &send), TW_IN_PROGRESS);
    ASSERT_EQ(tw_endpoint_close(first, TW_CLOSE_GRACEFUL, &close), TW_IN_PROGRESS);
  }
  void receive() { ASSERT_EQ(tw_recv(b.get(), &got[0], got.size(), 1, ~0ull, nullptr, &receiving), TW_IN_PROGRESS); }
  bool over(tw_request request, bool progress_a = true) {
    return reach([&] { return tw_request_test(request) != TW_IN_PROGRESS; }, progress_a);
  }
  void expect_delivered() {
    ASSERT_TRUE(over(close) && over(receiving));
    EXPECT_EQ(tw_request_finish(close), TW_OK);
    EXPECT_EQ(tw_request_finish(send), TW_OK);
    EXPECT_EQ(tw_request_finish(receiving), TW_OK);
    EXPECT_EQ(got, sent);
  }
  /// It connects, and a message goes over it.
  void expect_works(tw_endpoint* endpoint) {
    const std::string text = random_bytes(1001);
    std::string there(text.size(), '\0');
    tw_request out = 0, in = 0;
    ASSERT_GE(tw_send(endpoint, text.data(), text.size(), 2, nullptr, &out), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_recv(b.get(), &there[0], there.size(), 2, ~0ull, nullptr, &in), TW_IN_PROGRESS);
    ASSERT_TRUE(over(in) && over(out)) << tw_endpoint_state(endpoint);
    EXPECT_EQ(tw_request_finish(out), TW_OK);
    EXPECT_EQ(tw_request_finish(in), TW_OK);
    EXPECT_EQ(there, text);
    EXPECT_EQ(tw_endpoint_state(endpoint), TW_OK);
  }

  thalweg::Context context_a{options_of(GetParam())}, context_b{options_of(GetParam())};
  thalweg::Worker a{context_a}, b{context_b};
  tw_endpoint* first = nullptr;
  const std::string sent = random_bytes(kLarge);
  std::string got = std::string(kLarge, '\0');
  tw_request send = 0, close = 0, receiving = 0;
};

INSTANTIATE_TEST_SUITE_P(By, Successors, testing::Values("self,tcp", "self,shm"),
                         [](const auto& info) { return std::string(info.param).substr(5); });

TEST_P(Successors, ASuccessorThatIsClosedFirstIsNotConnected) {
  begin_close();
  for (const uint32_t mode : {uint32_t{TW_CLOSE_FORCE}, uint32_t{TW_CLOSE_GRACEFUL}}) {
    tw_endpoint* const next = connect(a, b);
    EXPECT_EQ(tw_endpoint_state(next), TW_IN_PROGRESS);
    EXPECT_EQ(tw_endpoint_close(next, mode, nullptr), TW_OK);
  }
  receive();
  expect_delivered();
  expect_works(connect(a, b));
}

/// The peer has ended the connection and made a new one before this side has seen either.
TEST_P(Successors, ThePeersNewConnectionIsTheSuccessors) {
  tw_endpoint* const back = connect(b, a);
  ASSERT_TRUE(reach([&] { return tw_endpoint_state(back) != TW_IN_PROGRESS; }));
  begin_close();
  tw_endpoint* const next = connect(a, b);
  EXPECT_EQ(tw_endpoint_close(back, TW_CLOSE_FORCE, nullptr), TW_OK);
  tw_endpoint* const again = connect(b, a);
  ASSERT_TRUE(reach([&] { return tw_endpoint_state(again) != TW_IN_PROGRESS; }, false));
  ASSERT_EQ(tw_endpoint_state(again), TW_OK);
  expect_works(next);
  EXPECT_EQ(connect(a, b), next);
  ASSERT_TRUE(over(close));
  EXPECT_EQ(tw_request_finish(close), TW_OK);
  EXPECT_EQ(tw_request_finish(send), TW_ERR_PEER_LOST);
}

TEST_P(Successors, ASuccessorThatClosesIsNotGivenAgain) {
  begin_close();
  tw_endpoint* const next = connect(a, b);
  const std::string text = random_bytes(77);
  std::string there(text.size(), '\0');
  tw_request out = 0, in = 0, next_close = 0;
  ASSERT_EQ(tw_send(next, text.data(), text.size(), 3, nullptr, &out), TW_IN_PROGRESS);
  ASSERT_EQ(tw_endpoint_close(next, TW_CLOSE_GRACEFUL, &next_close), TW_IN_PROGRESS);
  tw_endpoint* const last = connect(a, b);
  EXPECT_NE(last, next);
  EXPECT_EQ(tw_endpoint_state(last), TW_IN_PROGRESS);
  EXPECT_EQ(connect(a, b), last);
  ASSERT_EQ(tw_recv(b.get(), &there[0], there.size(), 3, ~0ull, nullptr, &in), TW_IN_PROGRESS);
  receive();
  expect_delivered();
  ASSERT_TRUE(over(next_close) && over(in));
  EXPECT_EQ(tw_request_finish(next_close), TW_OK);
  EXPECT_EQ(tw_request_finish(out), TW_OK);
  EXPECT_EQ(tw_request_finish(in), TW_OK);
  EXPECT_EQ(there, text);
  expect_works(last);
}

/// The receiver sees three connections at once: what came by the middle one counts, although the last one has replaced it.
TEST_P(Successors, WhatAReplacedConnectionBroughtIsReceived) {
  const auto alone = [&](auto done) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!done() && std::chrono::steady_clock::now() < end) a.progress();
    return done();
  };
  const auto connected = [&](tw_endpoint* one) { return alone([&] { return tw_endpoint_state(one) == TW_OK; }); };
  ASSERT_EQ(tw_endpoint_close(first, TW_CLOSE_GRACEFUL, nullptr), TW_OK);
  tw_endpoint* const next = connect(a, b);
  ASSERT_TRUE(connected(next));
  const std::string text = random_bytes(77);
  std::string there(text.size(), '\0');
  ASSERT_EQ(tw_send(next, text.data(), text.size(), 3, nullptr, &send), TW_OK);
  ASSERT_GE(tw_endpoint_close(next, TW_CLOSE_GRACEFUL, &close), 0);
  ASSERT_TRUE(alone([&] { return tw_request_test(close) != TW_IN_PROGRESS; }));
  EXPECT_EQ(tw_request_finish(close), TW_OK);
  tw_endpoint* const last = connect(a, b);
  ASSERT_TRUE(connected(last));
  ASSERT_EQ(tw_recv(b.get(), &there[0], there.size(), 3, ~0ull, nullptr, &receiving), TW_IN_PROGRESS);
  ASSERT_TRUE(over(receiving));
  EXPECT_EQ(tw_request_finish(receiving), TW_OK);
  EXPECT_EQ(there, text);
  expect_works(last);
}

/// The middle of a chain goes: what is behind it waits for the first one.
TEST_P(Successors, WhatIsBehindASuccessorThatFailsKeepsItsPlace) {
  begin_close();
  tw_endpoint* const next = connect(a, b, 1'000'000);
  const std::string text = random_bytes(77);
  tw_request out = 0, next_close = 0;
  ASSERT_EQ(tw_send(next, text.data(), text.size(), 3, nullptr, &out), TW_IN_PROGRESS);
  ASSERT_EQ(tw_endpoint_close(next, TW_CLOSE_GRACEFUL, &next_close), TW_IN_PROGRESS);
  tw_endpoint* const last = connect(a, b);
  ASSERT_TRUE(over(out) && over(next_close));
  EXPECT_EQ(tw_request_finish(next_close), TW_OK);
  EXPECT_EQ(tw_request_finish(out), TW_ERR_TIMED_OUT);
  EXPECT_EQ(tw_endpoint_state(last), TW_IN_PROGRESS);
  receive();
  expect_delivered();
  expect_works(last);
}

TEST_P(Successors, ASuccessorsTimeRunsWhileItWaits) {
  begin_close();
  tw_endpoint* const next = connect(a, b, 1'000'000);
  ASSERT_TRUE(reach([&] { return tw_endpoint_state(next) != TW_IN_PROGRESS; }));
  EXPECT_EQ(tw_endpoint_state(next), TW_ERR_TIMED_OUT);
  EXPECT_NE(std::string(tw_last_error()).find("closed before"), std::string::npos) << tw_last_error();
  EXPECT_EQ(tw_request_test(close), TW_IN_PROGRESS);
  EXPECT_EQ(tw_endpoint_close(next, TW_CLOSE_GRACEFUL, nullptr), TW_OK);
  tw_endpoint* const last = connect(a, b);
  receive();
  expect_delivered();
  expect_works(last);
}

/// In a callback between the loss of the one that closes and its end: what waits behind it is still what tw_connect gives.
TEST_P(Successors, OneIsFoundBetweenTheLossAndTheEndOfTheOneBefore) {
  tw_endpoint* const back = connect(b, a);
  ASSERT_TRUE(reach([&] { return tw_endpoint_state(back) != TW_IN_PROGRESS; }));
  struct Found {
    thalweg::Worker &from, &to;
    tw_endpoint* endpoint = nullptr;
  } found{a, b};
  tw_op_options options = TW_OP_OPTIONS_INIT;
  options.arg = &found;
  options.callback = [](void* arg, tw_request, tw_status status, const tw_recv_info*) {
    auto& [from, to, endpoint] = *static_cast<Found*>(arg);
    EXPECT_EQ(status, TW_ERR_PEER_LOST);
    endpoint = connect(from, to);
  };
  ASSERT_EQ(tw_send(first, sent.data(), sent.size(), 4, &options, nullptr), TW_IN_PROGRESS);
  begin_close();
  tw_endpoint* const next = connect(a, b);
  EXPECT_EQ(tw_endpoint_close(back, TW_CLOSE_FORCE, nullptr), TW_OK);
  ASSERT_TRUE(over(send) && over(close));
  EXPECT_EQ(tw_request_finish(send), TW_ERR_PEER_LOST);
  EXPECT_EQ(tw_request_finish(close), TW_OK);
  EXPECT_EQ(found.endpoint, next);
  expect_works(next);
}

/// Also told to who sleeps by the descriptor: nothing comes meanwhile.
TEST_P(Successors, ASuccessorsTimeEndsASleepByTheDescriptor) {
  begin_close();
  tw_endpoint* const next = connect(a, b, 50'000'000);
  int fd = -1;
  ASSERT_EQ(tw_worker_fd(a.get(), &fd), TW_OK);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (tw_endpoint_state(next) == TW_IN_PROGRESS && std::chrono::steady_clock::now() < end) {
    if (a.progress() != 0 || tw_worker_arm(a.get()) != TW_OK) continue;
    pollfd readable{fd, POLLIN, 0};
    ASSERT_EQ(poll(&readable, 1, 10'000), 1) << "asleep for ever";
  }
  EXPECT_EQ(tw_endpoint_state(next), TW_ERR_TIMED_OUT);
  EXPECT_EQ(tw_endpoint_close(next, TW_CLOSE_GRACEFUL, nullptr), TW_OK);
  receive();
  expect_delivered();
}

/// b has begun to connect to a, and goes on only as the test says.
class PeersAttempts : public testing::Test {
 protected:
  static constexpr uint64_t kToken = 7, kTimeout = 50'000'000;
  void SetUp() override {
    ASSERT_EQ(directory().arrived(b.get()->id, kToken, 0), thalweg::impl::Directory::Decision::answer);
    endpoint = connect(kTimeout);
    EXPECT_EQ(tw_endpoint_state(endpoint), TW_IN_PROGRESS);
  }
  thalweg::impl::Directory& directory() { return a.get()->directory; }
  tw_endpoint* connect(uint64_t timeout_ns) {
    thalweg::EndpointOptions options;
    options.timeout_ns = timeout_ns;
    const std::string address = b.address();
    tw_endpoint* made = nullptr;
    EXPECT_EQ(tw_connect(a.get(), address.data(), address.size(), &options, &made), TW_OK) << tw_last_error();
    return made;
  }
  /// By its own time, not by the end of the test's patience.
  void expect_timed_out() {
    EXPECT_EQ(tw_endpoint_state(endpoint), TW_ERR_TIMED_OUT);
    EXPECT_NE(std::string(tw_last_error()).find("not connected within 50 ms"), std::string::npos) << tw_last_error();
    EXPECT_EQ(tw_endpoint_close(endpoint, TW_CLOSE_FORCE, nullptr), TW_OK);
  }
  thalweg::Context context_a{options_of("self,tcp")}, context_b{options_of("self,tcp")};
  thalweg::Worker a{context_a}, b{context_b};
  tw_endpoint* endpoint = nullptr;
};

TEST_F(PeersAttempts, AreWaitedForWithinTheTimeOut) {
  (void)tw_endpoint_wait(endpoint, 20'000'000'000);
  expect_timed_out();
  EXPECT_FALSE(directory().broke(b.get()->id, kToken)) << "none waits for it any more";
  tw_endpoint* const next = connect(0);
  EXPECT_EQ(tw_endpoint_wait(next, 20'000'000'000), TW_OK) << tw_last_error();
}

TEST_F(PeersAttempts, EndASleepByTheDescriptorInTime) {
  int fd = -1;
  ASSERT_EQ(tw_worker_fd(a.get(), &fd), TW_OK);
  const thalweg::impl::Deadline limit(20'000'000'000);
  while (tw_endpoint_state(endpoint) == TW_IN_PROGRESS && !limit.passed()) {
    if (a.progress() != 0 || tw_worker_arm(a.get()) != TW_OK) continue;
    pollfd readable{fd, POLLIN, 0};
    ASSERT_EQ(poll(&readable, 1, 10'000), 1) << "asleep for ever";
  }
  expect_timed_out();
}

/// The endpoint then connects itself, in what is left of its time: nothing.
TEST_F(PeersAttempts, ThatBreakOffGiveNoNewTime) {
  const thalweg::impl::Deadline over(kTimeout);
  while (!over.passed()) {
  }
  ASSERT_TRUE(directory().broke(b.get()->id, kToken));
  thalweg::impl::ConnectionEvent retry;
  retry.kind = thalweg::impl::ConnectionEvent::Kind::retry;
  retry.peer = b.get()->id;
  a.get()->inbox.post(std::move(retry));
  (void)tw_endpoint_wait(endpoint, 20'000'000'000);
  expect_timed_out();
}

using RequestsOfCloses = Successors;
INSTANTIATE_TEST_SUITE_P(By, RequestsOfCloses, testing::Values("self,tcp"), [](const auto&) { return std::string("tcp"); });

/// Without a request nobody would learn when it ends: what does not end at once stays as it is.
TEST_P(RequestsOfCloses, AreThereBeforeTheCloseBegins) {
  tw_endpoint* const idle = connect(a, a);
  ASSERT_TRUE(reach([&] { return tw_endpoint_state(idle) == TW_OK; }));
  ASSERT_EQ(tw_send(first, sent.data(), sent.size(), 1, nullptr, &send), TW_IN_PROGRESS);
  char byte = 0;
  std::vector<tw_request> others(1);
  tw_status status = TW_OK;
  while ((status = tw_recv(a.get(), &byte, 1, 9, ~0ull, nullptr, &others.back())) == TW_IN_PROGRESS) others.push_back(0);
  ASSERT_EQ(status, TW_ERR_LIMIT);
  EXPECT_EQ(tw_endpoint_close(first, TW_CLOSE_GRACEFUL, &close), TW_ERR_LIMIT);
  EXPECT_NE(std::string(tw_last_error()).find("release"), std::string::npos) << tw_last_error();
  EXPECT_EQ(close, TW_REQUEST_NONE);
  EXPECT_EQ(tw_endpoint_close(first, TW_CLOSE_GRACEFUL, nullptr), TW_ERR_LIMIT);
  EXPECT_EQ(tw_endpoint_state(first), TW_OK) << "alive";
  EXPECT_EQ(tw_endpoint_close(idle, TW_CLOSE_GRACEFUL, &close), TW_OK) << tw_last_error();
  const auto free_one = [&](tw_request other) {
    ASSERT_EQ(tw_request_cancel(other), TW_OK);
    ASSERT_EQ(tw_request_release(other), TW_OK);
  };
  free_one(others[0]);
  EXPECT_EQ(tw_endpoint_close(first, TW_CLOSE_GRACEFUL, &close), TW_ERR_LIMIT) << "none for its flush";
  free_one(others[1]);
  ASSERT_EQ(tw_endpoint_close(first, TW_CLOSE_GRACEFUL, &close), TW_IN_PROGRESS) << tw_last_error();
  for (int i = 0; i < 100; ++i) a.progress();
  EXPECT_EQ(tw_request_test(close), TW_IN_PROGRESS);
  receive();
  expect_delivered();
  others.pop_back();  // the one that was refused
  for (size_t i = 2; i < others.size(); ++i) free_one(others[i]);
}

/// A put that is not confirmed: its close needs two requests, for the flush, too, and begins with none.
TEST_P(RequestsOfCloses, AreThereForTheFlush) {
  std::string target(64, '\0');
  const std::string bytes = random_bytes(target.size());
  const thalweg::Memory there = context_b.register_memory(target);
  const std::string key = there.key();
  tw_remote_memory* remote = nullptr;
  ASSERT_EQ(tw_memory_import(first, key.data(), key.size(), &remote), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_put(first, bytes.data(), bytes.size(), remote, 0, nullptr, &send), TW_OK) << tw_last_error();
  char byte = 0;
  std::vector<tw_request> others(1);
  while (tw_recv(a.get(), &byte, 1, 9, ~0ull, nullptr, &others.back()) == TW_IN_PROGRESS) others.push_back(0);
  others.pop_back();
  const auto free_last = [&] {
    ASSERT_EQ(tw_request_cancel(others.back()), TW_OK);
    ASSERT_EQ(tw_request_release(others.back()), TW_OK);
    others.pop_back();
  };
  free_last();
  EXPECT_EQ(tw_endpoint_close(first, TW_CLOSE_GRACEFUL, nullptr), TW_ERR_LIMIT);
  EXPECT_EQ(tw_endpoint_state(first), TW_OK) << "alive";
  free_last();
  ASSERT_GE(tw_endpoint_close(first, TW_CLOSE_GRACEFUL, &close), 0) << tw_last_error();
  ASSERT_TRUE(over(close));
  EXPECT_EQ(tw_request_finish(close), TW_OK);
  EXPECT_EQ(target, bytes);
  tw_remote_memory_release(remote);
  while (!others.empty()) free_last();
}

}  // namespace
