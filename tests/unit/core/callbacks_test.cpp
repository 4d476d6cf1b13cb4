// SPDX-License-Identifier: Apache-2.0
// on_lost and on_request run outside of the worker's lock, so that they may post: ending their object from another thread
// waits for them, and they may end it themselves.
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/worker.hpp"
#include "thalweg/thalweg.h"

namespace {

constexpr uint64_t kLong = 20'000'000'000;

void nap() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

template <class Done>
bool until(Done done) {
  for (int i = 0; i < 20'000 && !done(); ++i) nap();
  return done();
}

/// A worker with a progress thread, and a peer that ends when the test says so.
class Callbacks : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(tw_context_create(nullptr, &context_), TW_OK);
    tw_worker_options options = TW_WORKER_OPTIONS_INIT;
    options.progress = TW_PROGRESS_THREAD;
    ASSERT_EQ(tw_worker_create(context_, &options, &worker_), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_worker_create(context_, &options, &peer_), TW_OK) << tw_last_error();
  }
  void TearDown() override {
    end_peer();
    tw_worker_destroy(worker_);
    tw_context_destroy(context_);
  }
  void end_peer() {
    tw_worker_destroy(peer_);
    peer_ = nullptr;
  }
  /// Its on_lost says that it runs, and stays until it may go on.
  tw_endpoint* connect(void (*on_lost)(void*, tw_endpoint*, tw_status)) {
    size_t length = 0;
    EXPECT_EQ(tw_worker_address(peer_, nullptr, &length), TW_OK);
    std::vector<unsigned char> address(length);
    EXPECT_EQ(tw_worker_address(peer_, address.data(), &length), TW_OK);
    tw_endpoint_options options = TW_ENDPOINT_OPTIONS_INIT;
    options.transport = "tcp";
    options.on_lost = on_lost;
    options.arg = this;
    tw_endpoint* endpoint = nullptr;
    EXPECT_EQ(tw_connect(worker_, address.data(), length, &options, &endpoint), TW_OK) << tw_last_error();
    EXPECT_EQ(tw_endpoint_wait(endpoint, kLong), TW_OK) << tw_last_error();
    return endpoint;
  }
  static void stay(void* arg) {
    auto* self = static_cast<Callbacks*>(arg);
    self->inside_ = true;
    until([self] { return self->go_on_.load(); });
    nap();
    self->inside_ = false;
  }
  static void close_it(void* arg, tw_endpoint* endpoint, tw_status) {
    EXPECT_EQ(tw_endpoint_close(endpoint, TW_CLOSE_FORCE, nullptr), TW_OK);
    static_cast<Callbacks*>(arg)->go_on_ = true;
  }
  /// `end` is called by another thread while a callback runs.
  template <class End>
  void expect_to_wait(End end) {
    ASSERT_TRUE(until([this] { return inside_.load(); }));
    std::atomic<bool> ended{false};
    std::thread other([this, end, &ended] {
      end();
      EXPECT_FALSE(inside_);
      ended = true;
    });
    for (int i = 0; i < 50; ++i) nap();
    EXPECT_FALSE(ended);
    go_on_ = true;
    other.join();
  }

  tw_context* context_ = nullptr;
  tw_worker *worker_ = nullptr, *peer_ = nullptr;
  std::atomic<bool> inside_{false}, go_on_{false};
};

TEST_F(Callbacks, ACloseWaitsForOnLostOfAnotherThread) {
  tw_endpoint* endpoint = connect([](void* arg, tw_endpoint*, tw_status) { stay(arg); });
  end_peer();
  expect_to_wait([endpoint] { EXPECT_EQ(tw_endpoint_close(endpoint, TW_CLOSE_FORCE, nullptr), TW_OK); });
}

TEST_F(Callbacks, OnLostMayCloseItsEndpoint) {
  connect(close_it);
  end_peer();
  EXPECT_TRUE(until([this] { return go_on_.load(); }));
}

/// Both end it: the thread that waits for the callback finds it ended.
TEST_F(Callbacks, ACloseThatWaitsForOnLostFindsItsEndpointClosed) {
  tw_endpoint* endpoint = connect([](void* arg, tw_endpoint* one, tw_status) {
    stay(arg);
    EXPECT_EQ(tw_endpoint_close(one, TW_CLOSE_FORCE, nullptr), TW_OK);
  });
  end_peer();
  expect_to_wait([endpoint] {
    tw_request request = 1;
    EXPECT_EQ(tw_endpoint_close(endpoint, TW_CLOSE_FORCE, &request), TW_ERR_HANDLE);
    EXPECT_EQ(request, TW_REQUEST_NONE);
  });
  // A handle that was released twice would be given out twice.
  for (int round = 0; round < 2; ++round) {
    std::set<tw_endpoint*> made;
    for (int i = 0; i < 200; ++i) {
      tw_endpoint* one = nullptr;
      ASSERT_EQ(tw_connect_to(worker_, "127.0.0.1:1", nullptr, &one), TW_OK) << tw_last_error();
      EXPECT_TRUE(made.insert(one).second);
    }
    for (tw_endpoint* one : made) EXPECT_EQ(tw_endpoint_close(one, TW_CLOSE_FORCE, nullptr), TW_OK);
  }
}

TEST_F(Callbacks, AnEndThatWaitsForOnRequestFindsItsListenerEnded) {
  tw_listener* listener = nullptr;
  tw_listener_options options = TW_LISTENER_OPTIONS_INIT;
  options.on_request = [](void* arg, tw_connection_request* request) {
    stay(static_cast<std::pair<Callbacks*, tw_listener**>*>(arg)->first);
    EXPECT_EQ(tw_reject(request, nullptr, 0), TW_OK);
    tw_listener_close(*static_cast<std::pair<Callbacks*, tw_listener**>*>(arg)->second);
  };
  std::pair<Callbacks*, tw_listener**> both{this, &listener};
  options.arg = &both;
  ASSERT_EQ(tw_listen(worker_, "127.0.0.1:0", &options, &listener), TW_OK) << tw_last_error();
  const std::string address = "127.0.0.1:" + std::to_string(tw_listener_port(listener));
  tw_endpoint* endpoint = nullptr;
  ASSERT_EQ(tw_connect_to(peer_, address.c_str(), nullptr, &endpoint), TW_OK) << tw_last_error();
  expect_to_wait([listener] { tw_listener_close(listener); });  // a second end is seen by a checking allocator
  ASSERT_EQ(tw_listen(worker_, address.c_str(), nullptr, &listener), TW_OK) << tw_last_error();
  tw_listener_close(listener);
}

TEST_F(Callbacks, TheEndOfAListenerWaitsForOnRequestOfAnotherThread) {
  tw_listener_options options = TW_LISTENER_OPTIONS_INIT;
  options.on_request = [](void* arg, tw_connection_request* request) {
    stay(arg);
    EXPECT_EQ(tw_reject(request, nullptr, 0), TW_OK);
  };
  options.arg = this;
  tw_listener* listener = nullptr;
  ASSERT_EQ(tw_listen(worker_, "127.0.0.1:0", &options, &listener), TW_OK) << tw_last_error();
  const std::string address = "127.0.0.1:" + std::to_string(tw_listener_port(listener));
  tw_endpoint* endpoint = nullptr;
  ASSERT_EQ(tw_connect_to(peer_, address.c_str(), nullptr, &endpoint), TW_OK) << tw_last_error();
  expect_to_wait([listener] { tw_listener_close(listener); });
}

/// Requests that reached the worker, and that no progress told anybody of, end with it.
TEST(Requests, EndWithTheirWorker) {
  constexpr size_t kEach = 64;
  const std::vector<char> data(TW_PRIVATE_MAX, 'x');
  const auto round = [&] {
    tw_context* context = nullptr;
    tw_worker *server = nullptr, *client = nullptr;
    ASSERT_EQ(tw_context_create(nullptr, &context), TW_OK);
    ASSERT_EQ(tw_worker_create(context, nullptr, &server), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_worker_create(context, nullptr, &client), TW_OK) << tw_last_error();
    tw_listener_options options = TW_LISTENER_OPTIONS_INIT;
    options.on_request = [](void*, tw_connection_request*) { ADD_FAILURE() << "nobody progresses"; };
    tw_listener* listener = nullptr;
    ASSERT_EQ(tw_listen(server, "127.0.0.1:0", &options, &listener), TW_OK) << tw_last_error();
    const std::string address = "127.0.0.1:" + std::to_string(tw_listener_port(listener));
    tw_endpoint_options how = TW_ENDPOINT_OPTIONS_INIT;
    how.private_data = data.data();
    how.private_length = data.size();
    for (size_t i = 0; i < kEach; ++i) {
      tw_endpoint* endpoint = nullptr;
      ASSERT_EQ(tw_connect_to(client, address.c_str(), &how, &endpoint), TW_OK) << tw_last_error();
    }
    std::vector<thalweg::impl::ConnectionEvent> events;
    EXPECT_TRUE(until([&] {
      for (auto& event : server->inbox.take()) events.push_back(std::move(event));
      return events.size() == kEach;
    }));
    for (auto& event : events) server->inbox.post(std::move(event));
    events.clear();
    tw_worker_destroy(server);
    tw_worker_destroy(client);
    tw_context_destroy(context);
  };
  round();
  const size_t before = mallinfo2().uordblks;  // of a checking allocator nothing: it reports leaks itself
  round();
  round();
  EXPECT_LT(mallinfo2().uordblks, before + kEach * TW_PRIVATE_MAX) << "two rounds leave as many as they made";
}

/// What wakes a progress thread that sleeps.
class Asleep : public Callbacks {
 protected:
  void SetUp() override {
    Callbacks::SetUp();
    const auto handler = [](void* arg, const tw_am_message*) -> tw_status {
      ++*static_cast<std::atomic<int>*>(arg);
      return TW_OK;
    };
    ASSERT_EQ(tw_am_register(worker_, 1, handler, &arrived_), TW_OK);
    size_t length = 0;
    ASSERT_EQ(tw_worker_address(worker_, nullptr, &length), TW_OK);
    std::vector<unsigned char> address(length);
    ASSERT_EQ(tw_worker_address(worker_, address.data(), &length), TW_OK);
    ASSERT_EQ(tw_connect(peer_, address.data(), length, nullptr, &endpoint_), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_endpoint_wait(endpoint_, kLong), TW_OK) << tw_last_error();
    expect_message();
  }
  void expect_message() {
    const int before = arrived_;
    ASSERT_GE(tw_am_send(endpoint_, 1, "h", 1, nullptr, 0, nullptr, nullptr), 0) << tw_last_error();
    EXPECT_TRUE(until([&] { return arrived_ > before; })) << "the progress thread sleeps on";
  }
  static void fall_asleep() {
    for (int i = 0; i < 50; ++i) nap();
  }
  tw_endpoint* endpoint_ = nullptr;
  std::atomic<int> arrived_{0};
};

TEST_F(Asleep, AThreadThatProgressesDoesNotKeepItAsleep) {
  fall_asleep();
  tw_worker_progress(worker_);
  expect_message();
  char byte = 0;
  fall_asleep();
  tw_request request = TW_REQUEST_NONE;
  ASSERT_EQ(tw_recv(worker_, &byte, 1, 77, ~0ull, nullptr, &request), TW_IN_PROGRESS);
  EXPECT_EQ(tw_request_wait(request, 1000), TW_ERR_TIMED_OUT);
  expect_message();
  fall_asleep();
  EXPECT_EQ(tw_worker_wait(worker_, 1000), TW_ERR_TIMED_OUT);
  expect_message();
  tw_completion_queue* queue = nullptr;
  ASSERT_EQ(tw_completion_queue_create(worker_, nullptr, &queue), TW_OK);
  fall_asleep();
  tw_completion entry;
  size_t taken = 0;
  EXPECT_EQ(tw_completion_queue_poll(queue, &entry, 1, &taken), TW_OK);
  expect_message();
  EXPECT_EQ(tw_completion_queue_destroy(queue), TW_OK);
  EXPECT_EQ(tw_request_cancel(request), TW_OK);
  EXPECT_EQ(tw_request_release(request), TW_OK);
}

TEST_F(Asleep, AWakeIsForTheThreadThatWaits) {
  fall_asleep();
  ASSERT_EQ(tw_worker_wake(worker_), TW_OK);
  fall_asleep();
  EXPECT_EQ(tw_worker_wait(worker_, 2'000'000'000), TW_OK) << "the progress thread took it";
  std::thread waker([this] {
    fall_asleep();
    EXPECT_EQ(tw_worker_wake(worker_), TW_OK);
  });
  EXPECT_EQ(tw_worker_wait(worker_, 5'000'000'000), TW_OK);
  waker.join();
  EXPECT_EQ(tw_worker_wait(worker_, 1'000'000), TW_ERR_TIMED_OUT) << "a wake ends one wait";
  expect_message();
}

/// A worker that several threads progress, and none of its own does.
class Shared : public Asleep {
 protected:
  void SetUp() override {
    ASSERT_EQ(tw_context_create(nullptr, &context_), TW_OK);
    tw_worker_options options = TW_WORKER_OPTIONS_INIT;
    options.threads = TW_THREADS_MULTI;
    ASSERT_EQ(tw_worker_create(context_, &options, &worker_), TW_OK) << tw_last_error();
    options.progress = TW_PROGRESS_THREAD;
    ASSERT_EQ(tw_worker_create(context_, &options, &peer_), TW_OK) << tw_last_error();
    const auto handler = [](void* arg, const tw_am_message*) -> tw_status {
      ++*static_cast<std::atomic<int>*>(arg);
      return TW_OK;
    };
    ASSERT_EQ(tw_am_register(worker_, 1, handler, &arrived_), TW_OK);
    size_t length = 0;
    ASSERT_EQ(tw_worker_address(worker_, nullptr, &length), TW_OK);
    std::vector<unsigned char> address(length);
    ASSERT_EQ(tw_worker_address(worker_, address.data(), &length), TW_OK);
    tw_endpoint_options how = TW_ENDPOINT_OPTIONS_INIT;
    how.transport = "tcp";
    ASSERT_EQ(tw_connect(peer_, address.data(), length, &how, &endpoint_), TW_OK) << tw_last_error();
    send();
    for (int i = 0; i < 1000 && arrived_ == 0; ++i) (void)tw_worker_wait(worker_, 20'000'000);
    ASSERT_EQ(arrived_, 1);
  }
  void send() { ASSERT_GE(tw_am_send(endpoint_, 1, "h", 1, nullptr, 0, nullptr, nullptr), 0) << tw_last_error(); }
};

TEST_F(Shared, AThreadThatProgressedAndWentLeavesTheSleepersTheirDoorbells) {
  for (int round = 1; round <= 3; ++round) {
    std::atomic<uint64_t> waited_ms{0};
    std::thread sleeper([&] {
      const auto begin = std::chrono::steady_clock::now();
      while (arrived_ == round && tw_worker_wait(worker_, 10'000'000'000) == TW_OK) continue;
      waited_ms =
          uint64_t(std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin).count());
    });
    fall_asleep();
    for (int i = 0; i < 300; ++i) tw_worker_progress(worker_);
    send();
    sleeper.join();
    EXPECT_EQ(arrived_, round + 1);
    EXPECT_LT(waited_ms, 1'000u) << "it slept on";
  }
}

TEST_F(Shared, AWakeEndsAWaitThatSleepsBesideAnother) {
  char byte = 0;
  tw_request request = TW_REQUEST_NONE;
  ASSERT_EQ(tw_recv(worker_, &byte, 1, 79, ~0ull, nullptr, &request), TW_IN_PROGRESS);
  std::atomic<bool> over{false};
  std::thread other([&] {
    while (!over) EXPECT_EQ(tw_request_wait(request, 20'000'000), TW_ERR_TIMED_OUT);
  });
  for (int round = 0; round < 5; ++round) {
    std::thread waiter([&] { EXPECT_EQ(tw_worker_wait(worker_, 5'000'000'000), TW_OK); });
    fall_asleep();
    EXPECT_EQ(tw_worker_wake(worker_), TW_OK);
    waiter.join();
  }
  over = true;
  other.join();
  EXPECT_EQ(tw_request_cancel(request), TW_OK);
  EXPECT_EQ(tw_request_release(request), TW_OK);
}

struct Called {
  std::mutex mutex;
  std::vector<uint64_t> order;
  std::atomic<bool> inside{false}, go_on{false};
};

TEST_F(Asleep, CallbacksComeInOrderWhoeverProgresses) {
  Called called;
  char bytes[3] = {};
  tw_op_options options = TW_OP_OPTIONS_INIT;
  options.callback = [](void* arg, tw_request, tw_status status, const tw_recv_info* info) {
    auto& self = *static_cast<Called*>(arg);
    EXPECT_EQ(status, TW_OK);
    {
      const std::lock_guard lock(self.mutex);
      self.order.push_back(info->tag);
    }
    if (info->tag != 0) return;
    self.inside = true;
    until([&] { return self.go_on.load(); });
  };
  options.arg = &called;
  for (uint64_t tag = 0; tag < 3; ++tag) {
    tw_request request = TW_REQUEST_NONE;
    ASSERT_EQ(tw_recv(worker_, &bytes[tag], 1, tag, ~0ull, &options, &request), TW_IN_PROGRESS);
  }
  ASSERT_GE(tw_send(endpoint_, "a", 1, 0, nullptr, nullptr), 0);
  ASSERT_TRUE(until([&] { return called.inside.load(); }));
  for (uint64_t tag = 1; tag < 3; ++tag) ASSERT_GE(tw_send(endpoint_, "b", 1, tag, nullptr, nullptr), 0);
  for (int i = 0; i < 50; ++i) {
    tw_worker_progress(worker_);
    nap();
  }
  {
    const std::lock_guard lock(called.mutex);
    EXPECT_EQ(called.order, std::vector<uint64_t>{0}) << "the first one has not returned";
  }
  called.go_on = true;
  EXPECT_TRUE(until([&] {
    const std::lock_guard lock(called.mutex);
    return called.order.size() == 3;
  }));
  EXPECT_EQ(called.order, (std::vector<uint64_t>{0, 1, 2}));
}

TEST_F(Asleep, AKeptPayloadEndsOnce) {
  std::atomic<tw_am_data*> kept{nullptr};
  const auto keep = [](void* arg, const tw_am_message* message) -> tw_status {
    *static_cast<std::atomic<tw_am_data*>*>(arg) = message->descriptor;
    return TW_IN_PROGRESS;
  };
  ASSERT_EQ(tw_am_register(worker_, 2, keep, &kept), TW_OK);
  ASSERT_GE(tw_am_send(endpoint_, 2, nullptr, 0, "bytes", 5, nullptr, nullptr), 0);
  ASSERT_TRUE(until([&] { return kept != nullptr; }));
  EXPECT_EQ(tw_am_release(kept), TW_OK);
  EXPECT_EQ(tw_am_release(kept), TW_ERR_HANDLE);
  char bytes[5];
  tw_request request = TW_REQUEST_NONE;
  EXPECT_EQ(tw_am_recv(kept, bytes, sizeof bytes, nullptr, &request), TW_ERR_HANDLE);
  EXPECT_EQ(request, TW_REQUEST_NONE);
}

TEST_F(Asleep, ACancelWakesItForTheCallback) {
  char byte = 0;
  tw_op_options options = TW_OP_OPTIONS_INIT;
  options.callback = [](void* arg, tw_request, tw_status status, const tw_recv_info*) {
    EXPECT_EQ(status, TW_ERR_CANCELED);
    *static_cast<std::atomic<bool>*>(arg) = true;
  };
  options.arg = &go_on_;
  tw_request request = TW_REQUEST_NONE;
  ASSERT_EQ(tw_recv(worker_, &byte, 1, 78, ~0ull, &options, &request), TW_IN_PROGRESS);
  fall_asleep();
  EXPECT_EQ(tw_request_cancel(request), TW_OK);
  EXPECT_TRUE(until([this] { return go_on_.load(); }));
}

}  // namespace
