// SPDX-License-Identifier: Apache-2.0
// Completion queues, counters, records and signals as sinks of completions; notifications of puts and signals.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "../../fixtures/rooms.hpp"
#include "device_order.hpp"
#include "thalweg/thalweg.h"

namespace thalweg::impl {
namespace {

constexpr uint64_t kLong = 20'000'000'000;
constexpr size_t kRoom = (2u << 20) + 64;
enum Sink { kQueue, kCounter, kRecord, kDone, kSinks };

/// A worker, and a peer of its own thread behind this transport.
class Completions : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    ::setenv("THALWEG_EMULATED", "devices=2", 0);
    ASSERT_EQ(tw_context_create(nullptr, &context_), TW_OK);
    ASSERT_EQ(tw_worker_create(context_, nullptr, &worker_), TW_OK) << tw_last_error();
    const bool self = std::string(GetParam()) == "self";
    if (!self) {
      ASSERT_EQ(tw_context_create(nullptr, &other_), TW_OK);
      tw_worker_options options = TW_WORKER_OPTIONS_INIT;
      options.progress = TW_PROGRESS_THREAD;
      ASSERT_EQ(tw_worker_create(other_, &options, &peer_), TW_OK) << tw_last_error();
    } else {
      peer_ = worker_;
      other_ = context_;
    }
    there_ = connect(worker_, peer_);
    back_ = self ? there_ : connect(peer_, worker_);
    from_.resize(kRoom);
    for (size_t i = 0; i < kRoom; i += 8) {
      const uint64_t word = random_();
      std::memcpy(&from_[i], &word, 8);
    }
    tw_completion_queue_options options = TW_COMPLETION_QUEUE_OPTIONS_INIT;
    ASSERT_EQ(tw_completion_queue_create(worker_, &options, &queue_), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_counter_create(worker_, &counter_), TW_OK) << tw_last_error();
    tw_signal_options add = TW_SIGNAL_OPTIONS_INIT;
    add.kind = TW_SIGNAL_ADD;
    ASSERT_EQ(tw_signal_create(worker_, &add, &done_), TW_OK) << tw_last_error();
    target_ = new_memory(other_, nullptr);
    remote_ = import(target_);
  }
  void TearDown() override {
    if (queue_ != nullptr) EXPECT_EQ(tw_completion_queue_destroy(queue_), TW_OK) << tw_last_error();
    if (counter_ != nullptr) EXPECT_EQ(tw_counter_destroy(counter_), TW_OK) << tw_last_error();
    EXPECT_EQ(tw_signal_destroy(done_), TW_OK) << tw_last_error();
    tw_remote_memory_release(remote_);
    if (peer_ != worker_) tw_worker_destroy(peer_);
    if (worker_ != nullptr) tw_worker_destroy(worker_);
    EXPECT_EQ(tw_memory_release(target_), TW_OK);
    if (other_ != context_) tw_context_destroy(other_);
    tw_context_destroy(context_);
  }
  static tw_endpoint* connect(tw_worker* from, tw_worker* to) {
    unsigned char address[kAddressRoom];
    size_t length = sizeof address;
    EXPECT_EQ(tw_worker_address(to, address, &length), TW_OK);
    tw_endpoint_options options = TW_ENDPOINT_OPTIONS_INIT;
    options.transport = GetParam();
    tw_endpoint* endpoint = nullptr;
    EXPECT_EQ(tw_connect(from, address, length, &options, &endpoint), TW_OK) << tw_last_error();
    EXPECT_EQ(tw_endpoint_wait(endpoint, kLong), TW_OK) << tw_last_error();
    return endpoint;
  }
  static tw_memory* new_memory(tw_context* context, const char* place) {
    tw_memory_options options = TW_MEMORY_OPTIONS_INIT;
    options.place = place;
    tw_memory* memory = nullptr;
    EXPECT_EQ(tw_memory_allocate(context, kRoom, &options, &memory), TW_OK) << tw_last_error();
    return memory;
  }
  tw_remote_memory* import(tw_memory* memory) const {
    unsigned char key[kKeyRoom];
    size_t length = sizeof key;
    EXPECT_EQ(tw_memory_export(memory, key, &length), TW_OK) << tw_last_error();
    tw_remote_memory* remote = nullptr;
    EXPECT_EQ(tw_memory_import(there_, key, length, &remote), TW_OK) << tw_last_error();
    return remote;
  }
  unsigned char* target() const { return static_cast<unsigned char*>(tw_memory_address(target_)); }
  /// Options of the next operation, which completes to `sink`.
  tw_op_options options_for(int sink) {
    tw_op_options options = TW_OP_OPTIONS_INIT;
    options.arg = &from_[static_cast<size_t>(++posted_)];
    if (sink == kQueue) options.queue = queue_;
    if (sink == kCounter) options.counter = counter_;
    if (sink == kRecord) options.record = &record_;
    if (sink == kDone) {
      options.done = done_;
      options.done_value = 3;
    }
    return options;
  }
  void* last_arg() { return &from_[static_cast<size_t>(posted_)]; }
  /// Waits until the operation has reported its completion; its status.
  tw_completion end_of(int sink, tw_status posted) {
    tw_completion end{};
    EXPECT_GE(posted, TW_OK) << tw_last_error();
    if (posted < TW_OK) return end;
    size_t taken = 0;
    uint64_t failed = 0;
    switch (sink) {
      case kQueue:
        EXPECT_EQ(posted, TW_IN_PROGRESS) << "its entry tells";
        EXPECT_EQ(tw_completion_queue_wait(queue_, &end, 1, kLong, &taken), TW_OK) << tw_last_error();
        EXPECT_EQ(taken, 1u);
        return end;
      case kCounter:
        EXPECT_EQ(tw_counter_wait(counter_, ++counted_, kLong), TW_OK) << tw_last_error();
        EXPECT_EQ(tw_counter_read(counter_, nullptr, &failed), TW_OK);
        EXPECT_EQ(failed, 0u);
        return end;
      case kRecord:
        while (tw_completion_test(&record_) == TW_IN_PROGRESS) tw_worker_progress(worker_);
        return record_;
      default:
        EXPECT_EQ(tw_signal_wait(done_, 3 * ++raised_, TW_COMPARE_EQ, kLong), TW_OK) << tw_last_error();
        return end;
    }
  }
  void expect_end(int sink, const tw_completion& end, uint32_t kind, size_t length) {
    EXPECT_EQ(end.status, TW_OK);
    if (sink != kQueue && sink != kRecord) return;
    EXPECT_EQ(end.kind, kind);
    EXPECT_EQ(end.arg, last_arg());
    EXPECT_EQ(end.info.length, length);
    EXPECT_EQ(end.message, nullptr);
  }
  tw_request receive_there(void* to, size_t length, uint64_t tag) const {
    tw_request request = TW_REQUEST_NONE;
    EXPECT_EQ(tw_recv(peer_, to, length, tag, ~0ull, nullptr, &request), TW_IN_PROGRESS) << tw_last_error();
    return request;
  }

  tw_context *context_ = nullptr, *other_ = nullptr;
  tw_worker *worker_ = nullptr, *peer_ = nullptr;
  tw_endpoint *there_ = nullptr, *back_ = nullptr;
  tw_completion_queue* queue_ = nullptr;
  tw_counter* counter_ = nullptr;
  tw_completion record_{};
  tw_signal* done_ = nullptr;
  tw_memory* target_ = nullptr;
  tw_remote_memory* remote_ = nullptr;
  std::vector<unsigned char> from_;
  int posted_ = 0;
  uint64_t counted_ = 0, raised_ = 0;
  std::mt19937_64 random_{std::random_device{}()};
};
INSTANTIATE_TEST_SUITE_P(Over, Completions, testing::Values("self", "shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

constexpr size_t kSizes[] = {1, 8, 4099, 65537, (1u << 20) + 3};

TEST_P(Completions, MessagesTellWhateverIsNamed) {
  std::vector<unsigned char> to(kRoom);
  uint64_t tag = 0;
  for (int sink = 0; sink < kSinks; ++sink) {
    for (const size_t length : kSizes) {
      tw_request other = receive_there(to.data(), length, ++tag);
      tw_op_options options = options_for(sink);
      expect_end(sink, end_of(sink, tw_send(there_, &from_[tag], length, tag, &options, nullptr)), TW_COMPLETION_SEND, length);
      ASSERT_EQ(tw_request_finish(other), TW_OK);
      ASSERT_EQ(std::memcmp(to.data(), &from_[tag], length), 0);

      options = options_for(sink);
      const tw_status posted = tw_recv(worker_, to.data() + 1, length, ++tag, ~0ull, &options, nullptr);
      ASSERT_GE(tw_send(back_, &from_[tag], length, tag, nullptr, &other), TW_OK) << tw_last_error();
      const tw_completion end = end_of(sink, posted);
      expect_end(sink, end, TW_COMPLETION_RECV, length);
      if (sink == kQueue || sink == kRecord) EXPECT_EQ(end.info.tag, tag);
      ASSERT_EQ(std::memcmp(to.data() + 1, &from_[tag], length), 0);
      ASSERT_EQ(tw_request_finish(other), TW_OK);
    }
  }
}

TEST_P(Completions, OneSidedOperationsTellWhateverIsNamed) {
  ASSERT_EQ(tw_am_register(peer_, 5, [](void*, const tw_am_message*) -> tw_status { return TW_OK; }, nullptr), TW_OK);
  std::vector<unsigned char> to(kRoom);
  for (int sink = 0; sink < kSinks; ++sink) {
    for (const size_t length : kSizes) {
      tw_op_options options = options_for(sink);
      const unsigned char* const source = &from_[static_cast<size_t>(posted_)];
      options.flags = TW_OP_REMOTE;
      expect_end(sink, end_of(sink, tw_put(there_, source, length, remote_, 5, &options, nullptr)), TW_COMPLETION_PUT, length);
      ASSERT_EQ(std::memcmp(target() + 5, source, length), 0);
      options = options_for(sink);
      expect_end(sink, end_of(sink, tw_get(there_, to.data(), length, remote_, 5, &options, nullptr)), TW_COMPLETION_GET,
                 length);
      ASSERT_EQ(std::memcmp(to.data(), source, length), 0);
      options = options_for(sink);
      expect_end(sink, end_of(sink, tw_am_send(there_, 5, nullptr, 0, source, length, &options, nullptr)), TW_COMPLETION_AM,
                 length);
    }
    uint64_t old = 0, before = 0;
    std::memcpy(&before, target(), sizeof before);
    tw_op_options options = options_for(sink);
    const tw_status posted = tw_atomic(there_, TW_ATOMIC_ADD, remote_, 0, 8, 7, 0, &old, &options, nullptr);
    expect_end(sink, end_of(sink, posted), TW_COMPLETION_ATOMIC, 8);
    EXPECT_EQ(old, before);
  }
}

TEST_P(Completions, SeveralEntriesComeInTheOrderOfTheirEnds) {
  constexpr size_t kCount = 300;
  std::vector<uint64_t> to(kCount);
  tw_op_options options = TW_OP_OPTIONS_INIT;
  options.queue = queue_;
  for (size_t i = 0; i < kCount; ++i) {
    options.arg = &to[i];
    ASSERT_EQ(tw_recv(worker_, &to[i], 8, i, ~0ull, &options, nullptr), TW_IN_PROGRESS);
  }
  std::vector<uint64_t> values(kCount);
  for (size_t i = kCount; i-- > 0;) {
    values[i] = i * 3;
    tw_request request = TW_REQUEST_NONE;
    ASSERT_GE(tw_send(back_, &values[i], 8, i, nullptr, &request), TW_OK);
    ASSERT_EQ(tw_request_release(request), TW_OK);
  }
  size_t next = kCount;
  while (next > 0) {
    tw_completion entries[64];
    size_t taken = 0;
    ASSERT_EQ(tw_completion_queue_wait(queue_, entries, 64, kLong, &taken), TW_OK) << tw_last_error();
    for (size_t i = 0; i < taken; ++i) {
      --next;
      EXPECT_EQ(entries[i].arg, &to[next]);
      EXPECT_EQ(entries[i].info.tag, next);
      EXPECT_EQ(to[next], next * 3);
    }
  }
  tw_completion none;
  size_t taken = 9;
  EXPECT_EQ(tw_completion_queue_poll(queue_, &none, 1, &taken), TW_OK);
  EXPECT_EQ(taken, 0u);
  EXPECT_EQ(tw_completion_queue_wait(queue_, &none, 1, 1'000'000, &taken), TW_ERR_TIMED_OUT);
}

TEST_P(Completions, WhatIsRefusedTellsNobody) {
  for (int sink = 0; sink < kSinks; ++sink) {
    tw_op_options options = options_for(sink);
    EXPECT_EQ(tw_put(there_, from_.data(), 8, remote_, kRoom, &options, nullptr), TW_ERR_OUT_OF_BOUNDS);
    if (sink == kRecord) EXPECT_EQ(tw_completion_test(&record_), TW_ERR_OUT_OF_BOUNDS);
  }
  tw_completion none;
  size_t taken = 9;
  EXPECT_EQ(tw_completion_queue_poll(queue_, &none, 1, &taken), TW_OK);
  EXPECT_EQ(taken, 0u);
  uint64_t completed = 9, failed = 9;
  EXPECT_EQ(tw_counter_read(counter_, &completed, &failed), TW_OK);
  EXPECT_EQ(completed + failed, 0u);
  EXPECT_EQ(tw_signal_read(done_), 0u);
  tw_op_options two = options_for(kQueue);
  two.counter = counter_;
  EXPECT_EQ(tw_put(there_, from_.data(), 8, remote_, 0, &two, nullptr), TW_ERR_INVALID);
  if (peer_ == worker_) return;
  tw_op_options others = options_for(kQueue);
  EXPECT_EQ(tw_recv(peer_, from_.data(), 8, 1, ~0ull, &others, nullptr), TW_ERR_INVALID) << "of another worker";
}

TEST_P(Completions, FailuresAreToldWithTheirText) {
  std::vector<unsigned char> to(8);
  for (int sink = 0; sink < kSinks; ++sink) {
    tw_op_options options = options_for(sink);
    tw_request request = TW_REQUEST_NONE, sent = TW_REQUEST_NONE;
    ASSERT_EQ(tw_recv(worker_, to.data(), 8, 70, ~0ull, &options, &request), TW_IN_PROGRESS);
    ASSERT_GE(tw_send(back_, from_.data(), 9, 70, nullptr, &sent), TW_OK);
    ASSERT_EQ(tw_request_finish(sent), TW_OK);
    ASSERT_EQ(tw_request_wait(request, kLong), TW_ERR_TRUNCATED);
    if (sink == kQueue) {
      EXPECT_EQ(tw_request_release(request), TW_ERR_HANDLE) << "its entry does";
      tw_completion end;
      size_t taken = 0;
      ASSERT_EQ(tw_completion_queue_poll(queue_, &end, 1, &taken), TW_OK);
      ASSERT_EQ(taken, 1u);
      EXPECT_EQ(end.status, TW_ERR_TRUNCATED);
      EXPECT_EQ(end.info.length, 9u);
      ASSERT_NE(end.message, nullptr);
      EXPECT_NE(std::string(end.message).find("9 bytes for a buffer of 8"), std::string::npos) << end.message;
      EXPECT_EQ(tw_request_test(request), TW_ERR_HANDLE);
      continue;
    }
    if (sink == kRecord) EXPECT_EQ(record_.status, TW_ERR_TRUNCATED);
    EXPECT_EQ(tw_request_release(request), TW_OK);
  }
  uint64_t completed = 0, failed = 0;
  EXPECT_EQ(tw_counter_read(counter_, &completed, &failed), TW_OK);
  EXPECT_EQ(completed, 0u);
  EXPECT_EQ(failed, 1u);
  EXPECT_EQ(tw_signal_read(done_), 0u) << "a failure must not raise it";
}

TEST_P(Completions, RequestsTellWhatIsNamedLater) {
  for (int sink = 0; sink < kSinks; ++sink) {
    for (const bool ended : {false, true}) {
      std::vector<unsigned char> to(4099);
      tw_request request = TW_REQUEST_NONE, sent = TW_REQUEST_NONE;
      ASSERT_EQ(tw_recv(worker_, to.data(), to.size(), 90, ~0ull, nullptr, &request), TW_IN_PROGRESS);
      const auto send = [&] {
        EXPECT_GE(tw_send(back_, &from_[sink], to.size(), 90, nullptr, &sent), TW_OK);
        EXPECT_EQ(tw_request_finish(sent), TW_OK);
      };
      if (ended) {
        send();
        ASSERT_EQ(tw_request_wait(request, kLong), TW_OK);
      }
      const tw_op_options options = options_for(sink);
      ASSERT_EQ(tw_request_tell(request, &options), TW_OK) << tw_last_error();
      if (!ended) EXPECT_EQ(tw_request_tell(request, &options), TW_ERR_INVALID) << "twice";
      if (!ended) send();
      expect_end(sink, end_of(sink, TW_IN_PROGRESS), TW_COMPLETION_RECV, to.size());
      EXPECT_EQ(std::memcmp(to.data(), &from_[sink], to.size()), 0);
      if (sink != kQueue) EXPECT_EQ(tw_request_finish(request), TW_OK);
      if (sink == kQueue) EXPECT_EQ(tw_request_test(request), TW_ERR_HANDLE);
    }
    if (sink == kRecord) continue;
    const tw_op_options options = options_for(sink);
    ASSERT_EQ(tw_request_tell(TW_REQUEST_NONE, &options), TW_OK) << tw_last_error();
    expect_end(sink, end_of(sink, TW_IN_PROGRESS), TW_COMPLETION_ENDED, 0);
  }
  EXPECT_EQ(tw_request_tell(TW_REQUEST_NONE, nullptr), TW_ERR_INVALID);
}

/// The progress thread ends operations between two looks of the waiting one: no entry is lost.
TEST_P(Completions, WaitingLosesNoEntry) {
  tw_worker* worker = nullptr;
  tw_worker_options threaded = TW_WORKER_OPTIONS_INIT;
  threaded.progress = TW_PROGRESS_THREAD;
  ASSERT_EQ(tw_worker_create(context_, &threaded, &worker), TW_OK) << tw_last_error();
  tw_endpoint* endpoint = connect(worker, worker);
  tw_completion_queue* queue = nullptr;
  ASSERT_EQ(tw_completion_queue_create(worker, nullptr, &queue), TW_OK);
  constexpr uintptr_t kCount = 600;
  std::thread poster([&] {
    tw_op_options options = TW_OP_OPTIONS_INIT;
    options.queue = queue;
    uint64_t word = 0;
    for (uintptr_t i = 1; i <= kCount; ++i) {
      options.arg = reinterpret_cast<void*>(i);
      EXPECT_EQ(tw_recv(worker, &word, 8, i, ~0ull, &options, nullptr), TW_IN_PROGRESS);
      EXPECT_EQ(tw_send_blocking(endpoint, &i, 8, i), TW_OK);
      std::this_thread::sleep_for(std::chrono::microseconds(i % 3 == 0 ? 3500 : 300));
    }
  });
  for (uintptr_t i = 1; i <= kCount; ++i) {
    tw_completion entry{};
    size_t taken = 0;
    ASSERT_EQ(tw_completion_queue_wait(queue, &entry, 1, kLong, &taken), TW_OK) << i;
    ASSERT_EQ(entry.arg, reinterpret_cast<void*>(i));
  }
  poster.join();
  EXPECT_EQ(tw_completion_queue_destroy(queue), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_endpoint_close(endpoint, TW_CLOSE_FORCE, nullptr), TW_OK);
  tw_worker_destroy(worker);
}

/// Put and its notification end as one where the end means there.
TEST_P(Completions, APutThatNotifiesEndsAsAPut) {
  for (const uint32_t flags : {0u, uint32_t{TW_OP_REMOTE}}) {
    tw_op_options options = options_for(kQueue);
    options.flags = flags;
    options.notify = TW_NOTIFY_HANDLER;
    options.handler = 6;
    expect_end(kQueue, end_of(kQueue, tw_put(there_, &from_[1], 4099, remote_, 0, &options, nullptr)), TW_COMPLETION_PUT, 4099);
  }
}

TEST_P(Completions, EndOnlyWithoutOperationsUnderWay) {
  std::vector<unsigned char> to(8);
  tw_request requests[kSinks] = {};
  for (int sink = 0; sink < kSinks; ++sink) {
    tw_op_options options = options_for(sink);
    ASSERT_EQ(tw_recv(worker_, to.data(), 8, 80, ~0ull, &options, &requests[sink]), TW_IN_PROGRESS);
  }
  EXPECT_EQ(tw_completion_queue_destroy(queue_), TW_ERR_BUSY);
  EXPECT_EQ(tw_counter_destroy(counter_), TW_ERR_BUSY);
  EXPECT_EQ(tw_signal_destroy(done_), TW_ERR_BUSY);
  for (const tw_request request : requests) EXPECT_EQ(tw_request_cancel(request), TW_OK) << tw_last_error();
  EXPECT_EQ(record_.status, TW_ERR_CANCELED);
  EXPECT_EQ(tw_completion_queue_destroy(queue_), TW_OK) << "with an entry that nobody took";
  queue_ = nullptr;
  EXPECT_EQ(tw_request_test(requests[kQueue]), TW_ERR_HANDLE);
}

TEST_P(Completions, NameNoEndpointThatIsGone) {
  if (back_ == there_) GTEST_SKIP() << "an endpoint that leads to its own worker sends nothing once it is closed";
  std::vector<unsigned char> to(3 * 8);
  tw_request request = TW_REQUEST_NONE;
  tw_op_options queued = TW_OP_OPTIONS_INIT;
  queued.queue = queue_;
  ASSERT_EQ(tw_recv(worker_, &to[0], 8, 1, ~0ull, nullptr, &request), TW_IN_PROGRESS);
  ASSERT_EQ(tw_recv(worker_, &to[8], 8, 2, ~0ull, &queued, nullptr), TW_IN_PROGRESS);
  for (const uint64_t tag : {1u, 2u}) ASSERT_GE(tw_send(back_, from_.data(), 8, tag, nullptr, nullptr), TW_OK);
  const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(kLong);
  while (tw_request_test(request) == TW_IN_PROGRESS && std::chrono::steady_clock::now() < end) tw_worker_progress(worker_);
  tw_recv_info info{};
  ASSERT_EQ(tw_request_info(request, &info), TW_OK);
  EXPECT_EQ(info.endpoint, there_);
  for (int i = 0; i < 1000; ++i) tw_worker_progress(worker_);
  tw_remote_memory_release(std::exchange(remote_, nullptr));
  ASSERT_EQ(tw_endpoint_close(there_, TW_CLOSE_FORCE, nullptr), TW_OK);
  tw_completion entry{};
  size_t taken = 0;
  ASSERT_EQ(tw_completion_queue_wait(queue_, &entry, 1, kLong, &taken), TW_OK) << tw_last_error();
  EXPECT_EQ(entry.info.endpoint, nullptr);
  ASSERT_EQ(tw_request_info(request, &info), TW_OK);
  EXPECT_EQ(info.endpoint, nullptr);
  EXPECT_EQ(info.tag, 1u);
  EXPECT_EQ(tw_request_release(request), TW_OK);
  EXPECT_EQ(std::memcmp(to.data(), from_.data(), 8), 0);
  EXPECT_EQ(std::memcmp(&to[8], from_.data(), 8), 0);
}

TEST_P(Completions, OutliveTheirWorker) {
  std::vector<unsigned char> to(8);
  for (int sink = 0; sink < kSinks; ++sink) {
    tw_op_options options = options_for(sink);
    ASSERT_EQ(tw_recv(worker_, to.data(), 8, 80, ~0ull, &options, nullptr), TW_IN_PROGRESS);
  }
  tw_remote_memory_release(std::exchange(remote_, nullptr));
  if (peer_ == worker_) peer_ = nullptr;
  tw_worker_destroy(std::exchange(worker_, nullptr));
  tw_completion end;
  size_t taken = 0;
  EXPECT_EQ(tw_completion_queue_poll(queue_, &end, 1, &taken), TW_ERR_CLOSED);
  uint64_t failed = 0;
  EXPECT_EQ(tw_counter_read(counter_, nullptr, &failed), TW_OK);
  EXPECT_EQ(failed, 1u);
  EXPECT_EQ(tw_counter_wait(counter_, 2, kLong), TW_ERR_CLOSED);
  EXPECT_EQ(tw_completion_test(&record_), TW_ERR_CLOSED);
  const uint64_t value = tw_signal_read(done_);
  EXPECT_EQ(tw_signal_wait(done_, value, TW_COMPARE_EQ, kLong), TW_OK) << "it holds already";
  EXPECT_EQ(tw_signal_wait(done_, value, TW_COMPARE_NE, kLong), TW_ERR_CLOSED);
  tw_op_options options = TW_OP_OPTIONS_INIT;
  options.done = done_;
  EXPECT_EQ(tw_request_tell(TW_REQUEST_NONE, &options), TW_ERR_CLOSED);
  // Where the worker was there may be another one.
  ASSERT_EQ(tw_worker_create(context_, nullptr, &worker_), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_recv(worker_, to.data(), 8, 80, ~0ull, &options, nullptr), TW_ERR_INVALID);
  EXPECT_EQ(tw_signal_reset(done_, 3), TW_OK);
  EXPECT_EQ(tw_signal_test(done_, 3, TW_COMPARE_EQ), TW_OK);
}

// ------------------------------------------------------------------------------------------------ notifications

struct Heard {
  std::vector<uint64_t> immediates;
  const unsigned char* expected = nullptr;
  const unsigned char* target = nullptr;
  size_t length = 0;
  bool there = true;
};
tw_status hear(void* arg, const tw_am_message* message) {
  auto* heard = static_cast<Heard*>(arg);
  uint64_t immediate = 0;
  if (message->header_length == sizeof immediate) std::memcpy(&immediate, message->header, sizeof immediate);
  heard->there = heard->there && std::memcmp(heard->target, heard->expected, heard->length) == 0;
  heard->immediates.push_back(immediate);
  return TW_OK;
}

/// The peer is progressed by this thread.
class Notifications : public Completions {
 protected:
  void SetUp() override {
    Completions::SetUp();
    if (peer_ == worker_) return;
    tw_remote_memory_release(remote_);
    tw_worker_destroy(peer_);
    ASSERT_EQ(tw_worker_create(other_, nullptr, &peer_), TW_OK);
    connect_both();
    remote_ = import(target_);
  }
  void connect_both() {
    unsigned char address[kAddressRoom];
    size_t length = sizeof address;
    ASSERT_EQ(tw_worker_address(peer_, address, &length), TW_OK);
    tw_endpoint_options options = TW_ENDPOINT_OPTIONS_INIT;
    options.transport = GetParam();
    ASSERT_EQ(tw_connect(worker_, address, length, &options, &there_), TW_OK) << tw_last_error();
    for (tw_status state = TW_IN_PROGRESS; (state = tw_endpoint_state(there_)) == TW_IN_PROGRESS;) turn();
    ASSERT_EQ(tw_endpoint_state(there_), TW_OK);
  }
  void turn() const {
    tw_worker_progress(worker_);
    if (peer_ != worker_) tw_worker_progress(peer_);
  }
  tw_notification next() const {
    tw_notification got{};
    for (int i = 0; i < 2'000'000 && tw_worker_next_notification(peer_, &got) == TW_AGAIN; ++i) turn();
    return got;
  }
  static uint64_t immediate_of(const tw_notification& notification) {
    uint64_t value = 0;
    EXPECT_EQ(notification.length, sizeof value);
    std::memcpy(&value, notification.data, sizeof value);
    return value;
  }
  void wait(tw_request request) const {
    while (request != TW_REQUEST_NONE && tw_request_test(request) == TW_IN_PROGRESS) turn();
    if (request != TW_REQUEST_NONE) EXPECT_EQ(tw_request_finish(request), TW_OK) << tw_last_error();
  }
};
INSTANTIATE_TEST_SUITE_P(Over, Notifications, testing::Values("self", "shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(Notifications, ComeBehindTheDataOfTheirPuts) {
  for (const size_t length : {size_t{0}, size_t{1}, size_t{8}, size_t{4099}, size_t{65537}, size_t{(1u << 20) + 3}}) {
    const unsigned char* const source = &from_[random_() % 60];
    tw_op_options options = TW_OP_OPTIONS_INIT;
    options.notify = TW_NOTIFY_QUEUE;
    options.immediate = random_();
    tw_request request = TW_REQUEST_NONE;
    ASSERT_GE(tw_put(there_, source, length, remote_, 9, &options, &request), TW_OK) << tw_last_error();
    EXPECT_EQ(immediate_of(next()), options.immediate);
    EXPECT_EQ(std::memcmp(target() + 9, source, length), 0) << length;
    wait(request);
  }
}

TEST_P(Notifications, RunHandlersBehindTheData) {
  Heard heard;
  heard.target = target() + 9;
  ASSERT_EQ(tw_am_register(peer_, 17, hear, &heard), TW_OK);
  std::vector<uint64_t> sent;
  for (const size_t length : {size_t{8}, size_t{65537}, size_t{(1u << 20) + 3}}) {
    heard.expected = &from_[random_() % 60];
    heard.length = length;
    tw_op_options options = TW_OP_OPTIONS_INIT;
    options.notify = TW_NOTIFY_HANDLER;
    options.handler = 17;
    options.immediate = random_();
    sent.push_back(options.immediate);
    tw_request request = TW_REQUEST_NONE;
    ASSERT_GE(tw_put(there_, heard.expected, length, remote_, 9, &options, &request), TW_OK) << tw_last_error();
    for (int i = 0; i < 2'000'000 && heard.immediates.size() < sent.size(); ++i) turn();
    wait(request);
  }
  EXPECT_EQ(heard.immediates, sent);
  EXPECT_TRUE(heard.there);
}

TEST_P(Notifications, TravelWithASignal) {
  tw_signal_options add = TW_SIGNAL_OPTIONS_INIT;
  add.kind = TW_SIGNAL_ADD;
  tw_signal* signal = nullptr;
  ASSERT_EQ(tw_signal_create(peer_, &add, &signal), TW_OK) << tw_last_error();
  unsigned char key[kKeyRoom];
  size_t length = sizeof key;
  ASSERT_EQ(tw_signal_export(signal, key, &length), TW_OK);
  tw_remote_signal* remote = nullptr;
  ASSERT_EQ(tw_signal_import(there_, key, length, &remote), TW_OK) << tw_last_error();
  tw_op_options options = TW_OP_OPTIONS_INIT;
  options.notify = TW_NOTIFY_QUEUE;
  options.signal = remote;
  options.signal_op = TW_SIGNAL_ADD;
  options.signal_value = 5;
  options.immediate = random_();
  tw_request request = TW_REQUEST_NONE;
  ASSERT_GE(tw_put(there_, &from_[3], 4099, remote_, 9, &options, &request), TW_OK) << tw_last_error();
  EXPECT_EQ(immediate_of(next()), options.immediate);
  EXPECT_EQ(tw_signal_read(signal), 5u) << "it is touched before the peer is notified";
  wait(request);
  options.signal = nullptr;
  options.signal_op = 0;
  options.signal_value = 0;
  for (const uint32_t flags : {0u, uint32_t{TW_OP_REMOTE}, uint32_t{TW_OP_AFTER_ALL}}) {
    options.flags = flags;
    options.immediate = random_();
    const uint64_t before = tw_signal_read(signal);
    ASSERT_GE(tw_signal_post(remote, 6, &options, &request), TW_OK) << tw_last_error();
    EXPECT_EQ(immediate_of(next()), options.immediate);
    EXPECT_EQ(tw_signal_read(signal), before + 6);
    wait(request);
  }
  tw_remote_signal_release(remote);
  EXPECT_EQ(tw_signal_destroy(signal), TW_OK);
}

TEST_P(Notifications, WaitForCreditAndLoseNone) {
  constexpr uint64_t kCount = 5000;  // more than the peer grants at once
  tw_op_options options = TW_OP_OPTIONS_INIT;
  options.notify = TW_NOTIFY_QUEUE;
  for (uint64_t i = 0; i < kCount; ++i) {
    options.immediate = i;
    tw_request request = TW_REQUEST_NONE;
    ASSERT_GE(tw_put(there_, &from_[i], 8, remote_, i * 8, &options, &request), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_request_release(request), TW_OK);
  }
  for (uint64_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(immediate_of(next()), i);
    ASSERT_EQ(std::memcmp(target() + i * 8, &from_[i], 8), 0);
  }
}

TEST_P(Notifications, AreEntriesOfAQueueThatAsksForThem) {
  tw_completion_queue_options wanted = TW_COMPLETION_QUEUE_OPTIONS_INIT;
  wanted.notifications = 1;
  tw_completion_queue* queue = nullptr;
  ASSERT_EQ(tw_completion_queue_create(peer_, &wanted, &queue), TW_OK) << tw_last_error();
  tw_op_options options = TW_OP_OPTIONS_INIT;
  options.notify = TW_NOTIFY_QUEUE;
  options.immediate = random_();
  tw_request request = TW_REQUEST_NONE;
  ASSERT_GE(tw_put(there_, &from_[1], 65537, remote_, 0, &options, &request), TW_OK) << tw_last_error();
  tw_completion entry{};
  size_t taken = 0;
  for (int i = 0; i < 2'000'000 && taken == 0; ++i) {
    turn();
    ASSERT_EQ(tw_completion_queue_poll(queue, &entry, 1, &taken), TW_OK) << tw_last_error();
  }
  EXPECT_EQ(entry.kind, uint32_t{TW_COMPLETION_NOTIFICATION});
  EXPECT_EQ(entry.info.immediate, options.immediate);
  ASSERT_EQ(entry.info.length, 8u);
  EXPECT_EQ(std::memcmp(entry.data, &options.immediate, 8), 0);
  EXPECT_EQ(std::memcmp(target(), &from_[1], 65537), 0);
  wait(request);
  tw_completion_queue* second = nullptr;
  EXPECT_EQ(tw_completion_queue_create(peer_, &wanted, &second), TW_ERR_INVALID) << "one takes them all";
  tw_notification got;
  ASSERT_GE(tw_put(there_, &from_[1], 8, remote_, 0, &options, &request), TW_OK);
  for (int i = 0; i < 1000; ++i) turn();
  EXPECT_EQ(tw_worker_next_notification(peer_, &got), TW_AGAIN) << "they are the queue's";
  wait(request);
  EXPECT_EQ(tw_completion_queue_destroy(queue), TW_OK);
  EXPECT_EQ(immediate_of(next()), options.immediate) << "until it ends";
}

TEST_P(Notifications, TellNothingOfAPutThatFailed) {
  tw_op_options options = TW_OP_OPTIONS_INIT;
  options.notify = TW_NOTIFY_QUEUE;
  options.immediate = 1;
  const auto fails = [this](const tw_op_options* how) {
    tw_request request = TW_REQUEST_NONE, flush = TW_REQUEST_NONE;
    const tw_status posted = tw_put(there_, &from_[1], 100, remote_, 0, how, &request);
    while (request != TW_REQUEST_NONE && tw_request_test(request) == TW_IN_PROGRESS) turn();
    if (request != TW_REQUEST_NONE) (void)tw_request_finish(request);
    tw_status flushed = tw_endpoint_flush(there_, &flush);
    while (flush != TW_REQUEST_NONE && (flushed = tw_request_test(flush)) == TW_IN_PROGRESS) turn();
    (void)tw_request_release(flush);
    return posted < TW_OK || flushed < TW_OK;
  };
  EXPECT_EQ(tw_memory_release(target_), TW_OK);
  // What is stored before the release is told is lost, and goes well.
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!fails(nullptr)) ASSERT_LT(std::chrono::steady_clock::now(), limit);
  EXPECT_TRUE(fails(&options)) << "the put cannot have gone well";
  for (int i = 0; i < 1000; ++i) turn();
  tw_notification got;
  EXPECT_EQ(tw_worker_next_notification(peer_, &got), TW_AGAIN);
  target_ = new_memory(other_, nullptr);
}

TEST_P(Notifications, FollowWhatDevicesMove) {
  tw_memory* here = new_memory(context_, "emulated:0");
  tw_memory* there = new_memory(other_, "emulated:1");
  tw_remote_memory* remote = import(there);
  ASSERT_EQ(tw_memory_copy(context_, tw_memory_address(here), from_.data(), kRoom), TW_OK) << tw_last_error();
  tw_signal_options word = TW_SIGNAL_OPTIONS_INIT;
  word.kind = TW_SIGNAL_ADD;
  word.memory = here;
  tw_signal* done = nullptr;
  ASSERT_EQ(tw_signal_create(worker_, &word, &done), TW_OK) << tw_last_error();
  std::vector<unsigned char> got(kRoom);
  uint64_t raised = 0;
  for (const size_t length : {size_t{8}, size_t{65537}, size_t{(1u << 20) + 3}}) {
    tw_op_options options = TW_OP_OPTIONS_INIT;
    options.notify = TW_NOTIFY_QUEUE;
    options.immediate = random_();
    options.done = done;
    options.done_value = 2;
    const auto* source = static_cast<const unsigned char*>(tw_memory_address(here)) + 8 + length % 5;
    ASSERT_GE(tw_put(there_, source, length, remote, 1, &options, nullptr), TW_OK) << tw_last_error();
    EXPECT_EQ(immediate_of(next()), options.immediate);
    ASSERT_EQ(tw_memory_copy(context_, got.data(), tw_memory_address(there), kRoom), TW_OK) << tw_last_error();
    EXPECT_EQ(std::memcmp(&got[1], &from_[8 + length % 5], length), 0) << length;
    raised += 2;
    for (int i = 0; i < 2'000'000 && tw_signal_test(done, raised, TW_COMPARE_EQ) == TW_IN_PROGRESS; ++i) turn();
    EXPECT_EQ(tw_signal_read(done), raised) << "in device memory";
  }
  EXPECT_EQ(tw_signal_destroy(done), TW_OK) << tw_last_error();
  tw_remote_memory_release(remote);
  EXPECT_EQ(tw_memory_release(here), TW_OK);
  EXPECT_EQ(tw_memory_release(there), TW_OK);
}

}  // namespace
}  // namespace thalweg::impl
