// SPDX-License-Identifier: Apache-2.0
// One-sided operations on one machine need no CPU of the target. It connects, and from then on makes no call of the library at
// all: it polls its own words. Whether the other side imports and posts after it is connected or before, everything arrives.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "../fixtures/rooms.hpp"
#include "process.hpp"

using namespace thalweg::test;

namespace {

constexpr size_t kArea = 6'000'000, kLarge = 5'000'000, kCounter = 5'500'000, kFlag = 5'600'000;
constexpr uint64_t kLimit = 20'000'000'000;

std::string key_of(tw_memory* memory) {
  char key[kKeyRoom];
  size_t length = sizeof key;
  return tw_memory_export(memory, key, &length) == TW_OK ? std::string(key, length) : "";
}

/// Listens; keys out. Accepts one connection, progresses until it stands, then only looks at `flag` and `signal`. Says what the
/// memory holds, a piece at a time.
const Role kTarget("passive target", [](Pipe& pipe) {
  Side side;
  tw_listener* listener = nullptr;
  tw_memory* memory = nullptr;
  tw_signal* signal = nullptr;
  tw_signal_options options = TW_SIGNAL_OPTIONS_INIT;
  options.kind = TW_SIGNAL_ADD;
  if (tw_listen(side.worker, "127.0.0.1:0", nullptr, &listener) != TW_OK) return 1;
  if (tw_memory_allocate(side.context, kArea, nullptr, &memory) != TW_OK) return 2;
  if (tw_signal_create(side.worker, &options, &signal) != TW_OK) return 3;
  char key[kKeyRoom];
  size_t length = sizeof key;
  if (tw_signal_export(signal, key, &length) != TW_OK) return 4;
  pipe.send(std::to_string(tw_listener_port(listener)));
  pipe.send(key_of(memory));
  pipe.send({key, length});
  tw_connection_request* request = nullptr;
  if (!progress_until(side.worker, [&] { return tw_listener_next(listener, &request) == TW_OK; })) return 5;
  if (pipe.receive() != "accept") return 6;
  tw_endpoint* endpoint = nullptr;
  if (tw_accept(request, nullptr, &endpoint) != TW_OK) return 7;
  if (!progress_until(side.worker, [&] { return tw_endpoint_state(endpoint) == TW_OK; })) return 8;
  pipe.send("passive");
  const char* at = static_cast<const char*>(tw_memory_address(memory));
  const uint64_t* flag = reinterpret_cast<const uint64_t*>(at + kFlag);
  const uint64_t end = now_ns() + kLimit;
  while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) != 7 || tw_signal_read(signal) != 3) {  // a load each
    if (now_ns() > end) return 9;
    usleep(100);
  }
  for (size_t done = 0; done < kArea; done += 8000) pipe.send({at + done, 8000});
  if (pipe.receive() != "end") return 10;
  return tw_signal_destroy(signal) == TW_OK && tw_memory_release(memory) == TW_OK ? 0 : 11;
});

class PassiveTarget : public testing::TestWithParam<bool> {};

TEST_P(PassiveTarget, NeedsNoCallOfTheLibraryFromTheFirstOperationOn) {
  const bool connected_first = GetParam();
  Child child("passive target");
  Side side;
  tw_endpoint_options only_shm = TW_ENDPOINT_OPTIONS_INIT;
  only_shm.transport = "shm";
  tw_endpoint* endpoint = nullptr;
  const std::string at = "127.0.0.1:" + child.receive(), key = child.receive(), signal_key = child.receive();
  ASSERT_EQ(tw_connect_to(side.worker, at.c_str(), &only_shm, &endpoint), TW_OK) << tw_last_error();
  if (connected_first) {
    child.send("accept");
    ASSERT_EQ(tw_endpoint_wait(endpoint, kLimit), TW_OK) << tw_last_error();
    ASSERT_EQ(child.receive(), "passive");
  }
  tw_remote_memory* remote = nullptr;
  tw_remote_signal* signal = nullptr;
  ASSERT_EQ(tw_memory_import(endpoint, key.data(), key.size(), &remote), TW_OK);
  ASSERT_EQ(tw_signal_import(endpoint, signal_key.data(), signal_key.size(), &signal), TW_OK);

  const std::string large = random_bytes(kLarge), word = random_bytes(8);
  std::string back(large.size() + 16, '\x5a');
  tw_op_options with_signal = TW_OP_OPTIONS_INIT;
  with_signal.signal = signal;
  with_signal.signal_op = TW_SIGNAL_ADD;
  with_signal.signal_value = 1;
  uint64_t old[2] = {77, 77};
  const uint64_t added = 41, seven = 7;
  struct Operation {
    const char* name;
    tw_status status;
    tw_request request;
  };
  std::vector<Operation> all;
  const auto post = [&](const char* name, auto start) {
    tw_request request = TW_REQUEST_NONE;
    const tw_status status = start(&request);
    all.push_back({name, status, request});
  };
  post("put", [&](auto* r) { return tw_put(endpoint, large.data(), kLarge, remote, 1, &with_signal, r); });
  post("atomic",
       [&](auto* r) { return tw_atomic(endpoint, TW_ATOMIC_ADD, remote, kCounter, 8, added, 0, &old[0], nullptr, r); });
  ASSERT_EQ(tw_endpoint_fence(endpoint), TW_OK);
  post("get", [&](auto* r) { return tw_get(endpoint, back.data() + 8, kLarge, remote, 1, nullptr, r); });
  post("atomic again",
       [&](auto* r) { return tw_atomic(endpoint, TW_ATOMIC_ADD, remote, kCounter, 8, 1, 0, &old[1], nullptr, r); });
  ASSERT_EQ(tw_endpoint_fence(endpoint), TW_OK);
  with_signal.flags = TW_OP_AFTER_ALL;
  post("put over it", [&](auto* r) { return tw_put(endpoint, word.data(), 8, remote, 100, &with_signal, r); });
  post("signal", [&](auto* r) { return tw_signal_post(signal, 1, nullptr, r); });
  post("flush", [&](auto* r) { return tw_endpoint_flush(endpoint, r); });
  if (!connected_first) child.send("accept");
  for (const Operation& one : all) EXPECT_EQ(finish(one.status, one.request), TW_OK) << one.name << ": " << tw_last_error();
  ASSERT_FALSE(HasFailure());
  EXPECT_EQ(old[0], 0u);
  EXPECT_EQ(old[1], added);
  EXPECT_TRUE(back == std::string(8, '\x5a') + large + std::string(8, '\x5a'));

  tw_request request = TW_REQUEST_NONE;
  const tw_status last = tw_put(endpoint, &seven, 8, remote, kFlag, nullptr, &request);
  ASSERT_EQ(finish(last, request), TW_OK);
  std::string expected(kArea, '\0'), arrived;
  expected.replace(1, kLarge, large);
  expected.replace(100, 8, word);
  const uint64_t sum = added + 1;
  std::memcpy(expected.data() + kCounter, &sum, 8);
  std::memcpy(expected.data() + kFlag, &seven, 8);
  if (!connected_first) {
    ASSERT_EQ(child.receive(), "passive");
  }
  while (arrived.size() < kArea) {
    const std::string piece = child.receive();
    ASSERT_FALSE(piece.empty());
    arrived += piece;
  }
  EXPECT_TRUE(arrived == expected);
  child.send("end");
  EXPECT_EQ(child.join(), 0);
  tw_remote_memory_release(remote);
  tw_remote_signal_release(signal);
}

INSTANTIATE_TEST_SUITE_P(When, PassiveTarget, testing::Bool(),
                         [](const auto& info) { return info.param ? "connected" : "not_connected_yet"; });

}  // namespace
