// SPDX-License-Identifier: Apache-2.0
// Names are looked up by few threads, within the time of the connection, and for those who still want it only.
#include "core/resolver.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <netdb.h>

#include <atomic>
#include <chrono>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "thalweg/thalweg.h"

namespace {

constexpr uint64_t kLong = 20'000'000'000;

std::atomic<bool> server_is_slow{false};
std::atomic<int> looking{0};

void nap() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

template <class Done>
bool until(Done done) {
  for (int i = 0; i < 20'000 && !done(); ++i) nap();
  return done();
}

}  // namespace

/// A name server that answers when the test says so.
extern "C" int getaddrinfo(const char* node, const char* service, const addrinfo* hints, addrinfo** found) {
  using Function = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
  static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "getaddrinfo"));
  if (hints != nullptr && (hints->ai_flags & AI_NUMERICHOST) != 0) return real(node, service, hints, found);
  ++looking;
  until([] { return !server_is_slow.load(); });
  const int result = real(node, service, hints, found);
  --looking;
  return result;
}

namespace {

using thalweg::impl::Resolver;

TEST(Resolver, HasFewThreadsWhoeverAsks) {
  std::atomic<int> running{0}, most{0}, done{0};
  std::atomic<bool> go_on{false};
  Resolver resolver;
  const auto look_up = [&] {
    const int now = ++running;
    for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) continue;
    until([&] { return go_on.load(); });
    --running;
    ++done;
  };
  std::vector<std::thread> users;
  for (int user = 0; user < 4; ++user) {
    users.emplace_back([&] {
      for (int i = 0; i < 50; ++i) EXPECT_EQ(resolver.ask(look_up), TW_OK);
    });
  }
  for (std::thread& user : users) user.join();
  EXPECT_TRUE(until([&] { return running == int(Resolver::kThreads); }));
  go_on = true;
  EXPECT_TRUE(until([&] { return done == 200; }));
  EXPECT_EQ(most, int(Resolver::kThreads));
}

TEST(Resolver, WhatHasNotBegunIsDroppedAtTheEnd) {
  std::atomic<int> begun{0};
  std::atomic<bool> go_on{false};
  Resolver resolver;
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(resolver.ask([&] {
      ++begun;
      until([&] { return go_on.load(); });
    }),
              TW_OK);
  }
  EXPECT_TRUE(until([&] { return begun == int(Resolver::kThreads); }));
  std::thread other([&] {
    for (int i = 0; i < 50; ++i) nap();
    go_on = true;
  });
  resolver.close();
  EXPECT_TRUE(go_on) << "it waits for what runs";
  other.join();
  EXPECT_EQ(begun, int(Resolver::kThreads));
  EXPECT_EQ(resolver.ask([&] { ++begun; }), TW_OK);
}

TEST(Resolver, WhatThrowsEndsNoThread) {
  std::atomic<bool> done{false};
  Resolver resolver;
  for (size_t i = 0; i < Resolver::kThreads; ++i) ASSERT_EQ(resolver.ask([] { throw std::bad_alloc(); }), TW_OK);
  ASSERT_EQ(resolver.ask([&] { done = true; }), TW_OK);
  EXPECT_TRUE(until([&] { return done.load(); }));
}

/// Two workers, one of which listens.
class ConnectByName : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(tw_context_create(nullptr, &context_), TW_OK) << tw_last_error();
    tw_worker_options options = TW_WORKER_OPTIONS_INIT;
    options.progress = TW_PROGRESS_THREAD;
    for (tw_worker*& worker : workers_) ASSERT_EQ(tw_worker_create(context_, &options, &worker), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_worker_create(context_, nullptr, &server_), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_listen(server_, "127.0.0.1:0", nullptr, &listener_), TW_OK) << tw_last_error();
    name_ = "localhost:" + std::to_string(tw_listener_port(listener_));
  }
  void TearDown() override {
    server_is_slow = false;
    tw_listener_close(listener_);
    for (tw_worker* worker : workers_) tw_worker_destroy(worker);
    tw_worker_destroy(server_);
    tw_context_destroy(context_);
  }
  tw_endpoint* connect(uint64_t timeout_ns = kLong) {
    tw_endpoint_options options = TW_ENDPOINT_OPTIONS_INIT;
    options.timeout_ns = timeout_ns;
    tw_endpoint* endpoint = nullptr;
    EXPECT_EQ(tw_connect_to(workers_[0], name_.c_str(), &options, &endpoint), TW_OK) << tw_last_error();
    return endpoint;
  }
  tw_context* context_ = nullptr;
  tw_worker* workers_[2] = {};
  tw_worker* server_ = nullptr;
  tw_listener* listener_ = nullptr;
  std::string name_;
};

TEST_F(ConnectByName, FromManyThreadsAtOnce) {
  constexpr int kEach = 40;
  std::atomic<int> over{0};
  std::vector<std::thread> users;
  for (tw_worker* worker : workers_) {
    users.emplace_back([&, worker] {
      tw_endpoint_options options = TW_ENDPOINT_OPTIONS_INIT;
      options.timeout_ns = kLong;
      std::vector<tw_endpoint*> endpoints(kEach);
      for (tw_endpoint*& one : endpoints) EXPECT_EQ(tw_connect_to(worker, name_.c_str(), &options, &one), TW_OK);
      for (tw_endpoint* one : endpoints) EXPECT_EQ(tw_endpoint_wait(one, kLong), TW_OK) << tw_last_error();
      ++over;
    });
  }
  std::vector<tw_endpoint*> accepted;
  until([&] {
    tw_worker_progress(server_);
    tw_connection_request* request = nullptr;
    while (tw_listener_next(listener_, &request) == TW_OK) {
      accepted.push_back(nullptr);
      EXPECT_EQ(tw_accept(request, nullptr, &accepted.back()), TW_OK);
    }
    return over == 2;
  });
  for (std::thread& user : users) user.join();
  EXPECT_EQ(accepted.size(), size_t{2 * kEach});
}

TEST_F(ConnectByName, ACloseMeanwhileEndsIt) {
  server_is_slow = true;
  tw_endpoint* endpoint = connect();
  ASSERT_TRUE(until([] { return looking == 1; }));
  EXPECT_EQ(tw_endpoint_close(endpoint, TW_CLOSE_FORCE, nullptr), TW_OK);
  server_is_slow = false;
  ASSERT_TRUE(until([] { return looking == 0; }));
  tw_connection_request* request = nullptr;
  for (int i = 0; i < 300; ++i) {
    tw_worker_progress(server_);
    ASSERT_EQ(tw_listener_next(listener_, &request), TW_AGAIN) << "the closed endpoint has connected";
    nap();
  }
}

TEST_F(ConnectByName, ItsTimeBeginsAtOnce) {
  server_is_slow = true;
  tw_endpoint* endpoint = connect(50'000'000);
  EXPECT_EQ(tw_endpoint_wait(endpoint, kLong), TW_ERR_TIMED_OUT);
  EXPECT_EQ(tw_endpoint_state(endpoint), TW_ERR_TIMED_OUT) << "the endpoint's time, not the wait's";
  EXPECT_NE(std::string(tw_last_error()).find("looked up"), std::string::npos) << tw_last_error();
}

}  // namespace
