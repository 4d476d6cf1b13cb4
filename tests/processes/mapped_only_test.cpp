// SPDX-License-Identifier: Apache-2.0
// A process that only uses mapped memory and never progresses still sees that the peer died, closed its endpoint, or
// released the memory; and a sleeping one is woken by a signal that another process stores into mapped memory.
#include <gtest/gtest.h>
#include <poll.h>

#include <functional>
#include <string>
#include <utility>

#include "../fixtures/rooms.hpp"
#include "process.hpp"

using namespace thalweg::test;

namespace {

constexpr size_t kArea = 4096;
constexpr uint64_t kLimit = 20'000'000'000;

std::string key_of(tw_memory* memory) {
  char key[kKeyRoom];
  size_t length = sizeof key;
  return tw_memory_export(memory, key, &length) == TW_OK ? std::string(key, length) : "";
}
std::string key_of(tw_signal* signal) {
  char key[kKeyRoom];
  size_t length = sizeof key;
  return tw_signal_export(signal, key, &length) == TW_OK ? std::string(key, length) : "";
}

/// Connects to the address it is told, keys out; then does what it is told, and never progresses.
const Role kOwner("mapped owner", [](Pipe& pipe) {
  Side side;
  tw_memory* memory = nullptr;
  tw_signal* signal = nullptr;
  if (tw_memory_allocate(side.context, kArea, nullptr, &memory) != TW_OK) return 1;
  if (tw_signal_create(side.worker, nullptr, &signal) != TW_OK) return 2;
  pipe.send(side.address());
  tw_endpoint* endpoint = side.connect(pipe.receive(), "shm");
  if (endpoint == nullptr || tw_endpoint_wait(endpoint, kLimit) != TW_OK) return 3;
  pipe.send(key_of(memory));
  pipe.send(key_of(signal));
  for (std::string order = pipe.receive(); order != "" && order != "end"; order = pipe.receive()) {
    tw_status status = TW_ERR_INVALID;
    if (order == "release") status = tw_memory_release(std::exchange(memory, nullptr));
    if (order == "close") status = tw_endpoint_close(endpoint, TW_CLOSE_GRACEFUL, nullptr);
    pipe.send(tw_status_name(status));
  }
  if (tw_signal_destroy(signal) != TW_OK) return 4;
  return memory == nullptr || tw_memory_release(memory) == TW_OK ? 0 : 5;
});

/// Connected to an owner that sits in a call of its own; its memory and signal are mapped here.
class MappedOnly : public testing::Test {
 protected:
  void SetUp() override {
    const std::string address = child.receive();
    child.send(side.address());
    endpoint = side.connect(address, "shm");
    ASSERT_EQ(tw_endpoint_wait(endpoint, kLimit), TW_OK) << tw_last_error();
    const std::string key = child.receive(), signal_key = child.receive();
    ASSERT_EQ(tw_memory_import(endpoint, key.data(), key.size(), &remote), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_signal_import(endpoint, signal_key.data(), signal_key.size(), &signal), TW_OK) << tw_last_error();
    void* mapped = nullptr;
    ASSERT_EQ(tw_remote_memory_map(remote, &mapped), TW_OK) << tw_last_error();
    tw_request request = TW_REQUEST_NONE;
    const tw_status posted = tw_signal_post(signal, 1, nullptr, &request);
    ASSERT_EQ(finish(posted, request), TW_OK);
    ASSERT_EQ(put(), TW_OK);
    ASSERT_EQ(post(), TW_OK) << explain();
  }
  void TearDown() override {
    tw_remote_memory_release(remote);
    tw_remote_signal_release(signal);
  }

  std::string explain() {
    char text[4096];
    size_t size = sizeof text;
    const tw_status status = tw_endpoint_explain(endpoint, "signal", 8, text, &size);
    return status == TW_OK ? text : tw_last_error();
  }
  tw_status put() { return tw_put(endpoint, &value, sizeof value, remote, 8, nullptr, nullptr); }
  tw_status put_with_signal() {
    tw_op_options options = TW_OP_OPTIONS_INIT;
    options.signal = signal;
    options.signal_op = TW_SIGNAL_SET;
    options.signal_value = 2;
    return tw_put(endpoint, &value, sizeof value, remote, 8, &options, nullptr);
  }
  tw_status get() { return tw_get(endpoint, &value, sizeof value, remote, 8, nullptr, nullptr); }
  tw_status atomic() { return tw_atomic(endpoint, TW_ATOMIC_ADD, remote, 16, 8, 1, 0, &value, nullptr, nullptr); }
  tw_status post() { return tw_signal_post(signal, 3, nullptr, nullptr); }
  tw_status flush() { return tw_endpoint_flush(endpoint, nullptr); }

  /// The first answer that is not TW_OK. Without progress.
  static tw_status first_failure(const std::function<tw_status()>& operation) {
    const uint64_t end = now_ns() + kLimit;
    tw_status status;
    do status = operation();
    while (status == TW_OK && now_ns() < end);
    return status;
  }

  Side side;
  Child child{"mapped owner"};
  tw_endpoint* endpoint = nullptr;
  tw_remote_memory* remote = nullptr;
  tw_remote_signal* signal = nullptr;
  uint64_t value = 5;
};

TEST_F(MappedOnly, EveryOperationOnADeadPeerFailsWithoutProgress) {
  child.kill();
  EXPECT_EQ(first_failure([&] { return put(); }), TW_ERR_PEER_LOST) << tw_last_error();
  EXPECT_EQ(put_with_signal(), TW_ERR_PEER_LOST) << tw_last_error();
  EXPECT_EQ(get(), TW_ERR_PEER_LOST) << tw_last_error();
  EXPECT_EQ(atomic(), TW_ERR_PEER_LOST) << tw_last_error();
  EXPECT_EQ(first_failure([&] { return post(); }), TW_ERR_PEER_LOST) << tw_last_error();
  EXPECT_EQ(tw_endpoint_state(endpoint), TW_OK) << "nobody has progressed";
  EXPECT_TRUE(progress_until(side.worker, [&] { return tw_endpoint_state(endpoint) == TW_ERR_PEER_LOST; }));
  EXPECT_EQ(put(), TW_ERR_PEER_LOST);
}

TEST_F(MappedOnly, AFlushProgressesAndTellsOfALoss) {
  child.kill();
  EXPECT_EQ(first_failure([&] { return flush(); }), TW_ERR_PEER_LOST) << tw_last_error();
  EXPECT_EQ(tw_endpoint_state(endpoint), TW_ERR_PEER_LOST);
}

TEST_F(MappedOnly, TheOwnersReleaseIsStaleWithoutProgress) {
  child.send("release");
  ASSERT_EQ(child.receive(), "ok");
  EXPECT_EQ(first_failure([&] { return put(); }), TW_ERR_STALE) << tw_last_error();
  EXPECT_EQ(get(), TW_ERR_STALE);
  EXPECT_EQ(atomic(), TW_ERR_STALE);
  EXPECT_EQ(post(), TW_OK) << "the signal is not what was released";
  child.send("end");
  EXPECT_EQ(child.join(), 0);
}

TEST_F(MappedOnly, APeerThatClosesIsNotOneThatCrashes) {
  child.send("close");
  ASSERT_EQ(child.receive(), "ok");
  EXPECT_EQ(first_failure([&] { return put(); }), TW_ERR_CLOSED) << tw_last_error();
  EXPECT_NE(std::string(tw_last_error()).find("the peer closed"), std::string::npos) << tw_last_error();
  EXPECT_TRUE(progress_until(side.worker, [&] { return tw_endpoint_state(endpoint) != TW_OK; }));
  EXPECT_EQ(tw_endpoint_state(endpoint), TW_ERR_CLOSED);
  child.send("end");
  EXPECT_EQ(child.join(), 0);
}

// ------------------------------------------------------------------------------------------------ a target that does nothing

/// Says its address and a key, and never calls the library until it is asked what its memory holds.
const Role kAbsent("absent target", [](Pipe& pipe) {
  Side side;
  tw_memory* memory = nullptr;
  if (tw_memory_allocate(side.context, kArea, nullptr, &memory) != TW_OK) return 1;
  pipe.send(side.address());
  pipe.send(key_of(memory));
  if (pipe.receive() != "end") return 2;
  return *static_cast<const uint64_t*>(tw_memory_address(memory)) == 3 ? 0 : 3;
});

TEST(Connected, MeansThatMappedOperationsNeedNoProgressOfTheTarget) {
  Child child("absent target");
  Side side;
  tw_endpoint* endpoint = side.connect(child.receive(), "shm");
  ASSERT_EQ(tw_endpoint_wait(endpoint, kLimit), TW_OK) << tw_last_error();
  const std::string key = child.receive();
  tw_remote_memory* remote = nullptr;
  ASSERT_EQ(tw_memory_import(endpoint, key.data(), key.size(), &remote), TW_OK) << tw_last_error();
  uint64_t old = 77, one = 1, back = 0;
  tw_request request = TW_REQUEST_NONE;
  tw_status status = tw_put(endpoint, &one, sizeof one, remote, 0, nullptr, &request);
  ASSERT_EQ(finish(status, request), TW_OK);
  status = tw_atomic(endpoint, TW_ATOMIC_ADD, remote, 0, 8, 2, 0, &old, nullptr, &request);
  ASSERT_EQ(finish(status, request), TW_OK);
  EXPECT_EQ(old, 1u);
  status = tw_get(endpoint, &back, sizeof back, remote, 0, nullptr, &request);
  ASSERT_EQ(finish(status, request), TW_OK);
  EXPECT_EQ(back, 3u);
  child.send("end");
  EXPECT_EQ(child.join(), 0);
  // It died before its worker had taken the link.
  EXPECT_TRUE(progress_until(side.worker, [&] { return tw_endpoint_state(endpoint) != TW_OK; }));
  tw_remote_memory_release(remote);
}

// ------------------------------------------------------------------------------------------------ signals and sleep

/// Imports what it is told, then posts when it is told, in the way it is told.
const Role kPoster("mapped poster", [](Pipe& pipe) {
  Side side;
  pipe.send(side.address());
  tw_endpoint* endpoint = side.connect(pipe.receive(), "shm");
  if (endpoint == nullptr || tw_endpoint_wait(endpoint, kLimit) != TW_OK) return 1;
  const std::string key = pipe.receive(), signal_key = pipe.receive();
  tw_remote_memory* remote = nullptr;
  tw_remote_signal* signal = nullptr;
  if (tw_memory_import(endpoint, key.data(), key.size(), &remote) != TW_OK) return 2;
  if (tw_signal_import(endpoint, signal_key.data(), signal_key.size(), &signal) != TW_OK) return 3;
  void* mapped = nullptr;
  if (tw_remote_memory_map(remote, &mapped) != TW_OK) return 4;
  tw_request request = TW_REQUEST_NONE;
  const tw_status posted = tw_signal_post(signal, 1, nullptr, &request);
  if (finish(posted, request) != TW_OK) return 5;
  pipe.send("ready");
  for (std::string order = pipe.receive(); order != "" && order != "end"; order = pipe.receive()) {
    uint64_t value = 7;
    tw_op_options options = TW_OP_OPTIONS_INIT;
    options.signal = signal;
    options.signal_op = TW_SIGNAL_ADD;
    options.signal_value = 1;
    const tw_status status = order == "put" ? tw_put(endpoint, &value, sizeof value, remote, 8, &options, nullptr)
                                            : tw_signal_post(signal, 1, nullptr, nullptr);
    if (status != TW_OK) return 6;
  }
  tw_remote_memory_release(remote);
  tw_remote_signal_release(signal);
  return 0;
});

class SleepingForSignals : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(tw_memory_allocate(side.context, kArea, nullptr, &memory), TW_OK);
    tw_signal_options options = TW_SIGNAL_OPTIONS_INIT;
    options.kind = TW_SIGNAL_ADD;
    ASSERT_EQ(tw_signal_create(side.worker, &options, &signal), TW_OK);
    ASSERT_EQ(tw_worker_fd(side.worker, &fd), TW_OK);
    const std::string address = child.receive();
    child.send(side.address());
    tw_endpoint* endpoint = side.connect(address, "shm");
    ASSERT_EQ(tw_endpoint_wait(endpoint, kLimit), TW_OK) << tw_last_error();
    child.send(key_of(memory));
    child.send(key_of(signal));
    ASSERT_TRUE(progress_until(side.worker, [&] { return child.readable(); }));
    ASSERT_EQ(child.receive(), "ready");
    ASSERT_EQ(tw_signal_wait(signal, 1, TW_COMPARE_GE, kLimit), TW_OK);
  }
  void TearDown() override {
    child.send("end");
    EXPECT_TRUE(progress_until(side.worker, [&] { return child.readable(); })) << "the other side's end shows";
    EXPECT_EQ(child.join(), 0);
    EXPECT_EQ(tw_signal_destroy(signal), TW_OK);
    EXPECT_EQ(tw_memory_release(memory), TW_OK);
  }
  /// Armed, with nothing left to do.
  void sleep() {
    tw_status status;
    while ((status = tw_worker_arm(side.worker)) == TW_ERR_BUSY) tw_worker_progress(side.worker);
    ASSERT_EQ(status, TW_OK);
  }
  bool readable(int timeout_ms) {
    pollfd one{fd, POLLIN, 0};
    return poll(&one, 1, timeout_ms) == 1;
  }

  Side side;
  Child child{"mapped poster"};
  tw_memory* memory = nullptr;
  tw_signal* signal = nullptr;
  int fd = -1;
};

TEST_F(SleepingForSignals, AMappedStoreMakesTheArmedDescriptorReadable) {
  uint64_t value = 1;
  for (const char* way : {"put", "post", "put", "post"}) {
    ASSERT_NO_FATAL_FAILURE(sleep());
    ASSERT_FALSE(readable(0)) << way;
    ASSERT_EQ(tw_signal_test(signal, ++value, TW_COMPARE_GE), TW_IN_PROGRESS);
    child.send(way);
    ASSERT_TRUE(readable(20'000)) << way;
    unsigned events = 0;
    while (tw_signal_test(signal, value, TW_COMPARE_GE) == TW_IN_PROGRESS) {  // 100 ms without any: readable, too
      events += tw_worker_progress(side.worker);
      if (tw_worker_arm(side.worker) == TW_OK) {
        ASSERT_TRUE(readable(20'000)) << way;
      }
    }
    EXPECT_GT(events + tw_worker_progress(side.worker), 0u) << "it counts as an event";
  }
}

TEST_F(SleepingForSignals, TheSleepOfAWorkerEndsWithIt) {
  for (uint64_t value = 2; value < 50; ++value) {
    child.send(value % 2 == 0 ? "put" : "post");
    // Sooner or later than the look: none is slept through.
    while (tw_signal_test(signal, value, TW_COMPARE_GE) != TW_OK) ASSERT_EQ(tw_worker_wait(side.worker, kLimit), TW_OK);
  }
}

}  // namespace
