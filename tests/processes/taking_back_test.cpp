// SPDX-License-Identifier: Apache-2.0
// Memory that its owner takes back while a peer is in the middle of it: after tw_memory_release, and after the forced close
// of the connection that a message travels over, the peer neither writes to it nor delivers what the owner stores there
// next.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "../fixtures/rooms.hpp"
#include "process.hpp"

using namespace thalweg::test;

namespace {

constexpr size_t kLength = 24u << 20;
constexpr int kRounds = 12;
constexpr char kOwn = '\x3c';

/// Bytes that a peer writes, never kOwn.
char theirs_at(uint64_t seed, size_t i) {
  const char byte = char((seed * 0x9E3779B97F4A7C15ull + i * 0xBF58476D1CE4E5B9ull) >> 56);
  return byte == kOwn ? char(kOwn + 1) : byte;
}

void fill(char* to, uint64_t seed) {
  for (size_t i = 0; i < kLength; ++i) to[i] = theirs_at(seed, i);
}

size_t not_own(const char* at, size_t length) {
  size_t wrong = 0;
  for (size_t i = 0; i < length; ++i) wrong += at[i] != kOwn;
  return wrong;
}

void spin_a_little(tw_worker* worker) {
  static std::mt19937 random(std::random_device{}());
  const uint64_t until = now_ns() + random() % 3'000'000;
  while (now_ns() < until) tw_worker_progress(worker);
}

/// Puts the whole region again and again until that fails; says how.
const Role kWriter("writer", [](Pipe& pipe) {
  Side side;
  const std::string transport = pipe.receive();
  tw_endpoint* endpoint = side.connect(pipe.receive(), transport.c_str());
  if (tw_endpoint_wait(endpoint, 20'000'000'000) != TW_OK) return 1;
  std::unique_ptr<char[]> data(new char[kLength]);
  fill(data.get(), uint64_t(getpid()));
  for (std::string key = pipe.receive(); key != "end"; key = pipe.receive()) {
    tw_remote_memory* remote = nullptr;
    if (tw_memory_import(endpoint, key.data(), key.size(), &remote) != TW_OK) return 2;
    tw_op_options options = TW_OP_OPTIONS_INIT;
    options.flags = TW_OP_REMOTE;
    tw_status status = TW_OK;
    while (status == TW_OK) {
      tw_request request = TW_REQUEST_NONE;
      status = tw_put(endpoint, data.get(), kLength, remote, 0, &options, &request);
      if (status == TW_IN_PROGRESS) status = tw_request_finish(request);
      tw_worker_progress(side.worker);
    }
    tw_remote_memory_release(remote);
    pipe.send(tw_status_name(status));
  }
  return 0;
});

struct Case {
  const char* name;
  const char* transport;
  bool library;
};
class Release : public testing::TestWithParam<Case> {};

TEST_P(Release, APutUnderWayLandsBeforeOrFailsByName) {
  Side side;
  Child child("writer");
  child.send(GetParam().transport);
  child.send(side.address());
  std::unique_ptr<char[]> plain(new char[kLength]);
  for (int round = 0; round < kRounds; ++round) {
    tw_memory *memory = nullptr, *next = nullptr;
    if (GetParam().library) {
      ASSERT_EQ(tw_memory_allocate(side.context, kLength, nullptr, &memory), TW_OK);
    } else {
      ASSERT_EQ(tw_memory_register(side.context, plain.get(), kLength, nullptr, &memory), TW_OK);
    }
    char* at = static_cast<char*>(tw_memory_address(memory));
    std::memset(at, kOwn, kLength);
    char key[kKeyRoom];
    size_t length = sizeof key;
    ASSERT_EQ(tw_memory_export(memory, key, &length), TW_OK);
    child.send({key, length});
    const volatile char* first = at;
    ASSERT_TRUE(progress_until(side.worker, [&] { return *first != kOwn; })) << "nothing is written";
    spin_a_little(side.worker);
    ASSERT_EQ(tw_memory_release(memory), TW_OK) << tw_last_error();
    if (GetParam().library) {  // what the owner gets next, perhaps at the same address
      ASSERT_EQ(tw_memory_allocate(side.context, kLength, nullptr, &next), TW_OK);
      at = static_cast<char*>(tw_memory_address(next));
    }
    std::memset(at, kOwn, kLength);
    ASSERT_TRUE(progress_until(side.worker, [&] { return child.readable(); })) << "the writer goes on";
    EXPECT_EQ(child.receive(), tw_status_name(TW_ERR_STALE));
    EXPECT_EQ(not_own(at, kLength), 0u) << "round " << round;
    if (next != nullptr) {
      EXPECT_EQ(tw_memory_release(next), TW_OK);
    }
  }
  child.send("end");
  EXPECT_EQ(child.join(), 0);
}

INSTANTIATE_TEST_SUITE_P(Memory, Release,
                         testing::Values(Case{"shm_plain", "shm", false}, Case{"shm_library", "shm", true},
                                         Case{"tcp_plain", "tcp", false}),
                         [](const auto& info) { return std::string(info.param.name); });

constexpr int kWarm = 4;  // messages after which both sides have mapped each other's buffer
constexpr uint64_t kHello = 9, kMessage = 1;

/// Address out; the sender of hello is the other side. Both have library memory.
struct Partner {
  Side side;
  tw_memory* memory = nullptr;
  tw_endpoint* endpoint = nullptr;
  explicit Partner(Pipe& pipe) {
    pipe.send(side.address());
    char byte = 0;
    tw_recv_info info{};
    if (tw_recv_blocking(side.worker, &byte, 1, kHello, UINT64_MAX, &info) == TW_OK) endpoint = info.endpoint;
    if (tw_memory_allocate(side.context, kLength, nullptr, &memory) != TW_OK) endpoint = nullptr;
  }
  char* buffer() const { return static_cast<char*>(tw_memory_address(memory)); }
};

/// Sends until that fails; says how.
const Role kSender("large sender", [](Pipe& pipe) {
  Partner partner(pipe);
  if (partner.endpoint == nullptr) return 1;
  fill(partner.buffer(), uint64_t(getpid()));
  tw_status status = TW_OK;
  for (int i = 0; i <= kWarm && status == TW_OK; ++i) {
    status = tw_send_blocking(partner.endpoint, partner.buffer(), kLength, kMessage);
  }
  pipe.send(tw_status_name(status));
  return 0;
});

/// Receives into plain memory, which it fills by itself, until that fails; says how, or that a message was wrong.
const Role kReceiver("large receiver", [](Pipe& pipe) {
  Partner partner(pipe);
  if (partner.endpoint == nullptr) return 1;
  std::unique_ptr<char[]> wanted(new char[kLength]), buffer(new char[kLength]);
  fill(wanted.get(), uint64_t(getppid()));
  for (;;) {
    tw_op_options options = TW_OP_OPTIONS_INIT;
    options.source = partner.endpoint;
    tw_request receive = TW_REQUEST_NONE;
    tw_status status = tw_recv(partner.side.worker, buffer.get(), kLength, kMessage, UINT64_MAX, &options, &receive);
    if (status == TW_IN_PROGRESS) status = tw_request_finish(receive);
    if (status != TW_OK) {
      pipe.send(tw_status_name(status));
      return 0;
    }
    if (std::memcmp(wanted.get(), buffer.get(), kLength) != 0) {
      pipe.send("a wrong message was delivered");
      return 0;
    }
  }
});

class ForcedClose : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(tw_memory_allocate(side.context, kLength, nullptr, &memory), TW_OK); }
  char* buffer() const { return static_cast<char*>(tw_memory_address(memory)); }
  void meet(Child& child) {
    endpoint = side.connect(child.receive(), "shm");
    ASSERT_EQ(tw_send_blocking(endpoint, "h", 1, kHello), TW_OK) << tw_last_error();
  }
  tw_request receive() {
    tw_op_options options = TW_OP_OPTIONS_INIT;
    options.source = endpoint;
    tw_request request = TW_REQUEST_NONE;
    EXPECT_EQ(tw_recv(side.worker, buffer(), kLength, kMessage, UINT64_MAX, &options, &request), TW_IN_PROGRESS);
    return request;
  }
  Side side;
  tw_memory* memory = nullptr;
  tw_endpoint* endpoint = nullptr;
};

TEST_F(ForcedClose, AReceiveIsNotWrittenToAfterwards) {
  int interrupted = 0;
  for (int round = 0; round < kRounds; ++round) {
    Child child("large sender");
    meet(child);
    for (int i = 0; i < kWarm; ++i) ASSERT_EQ(tw_request_finish(receive()), TW_OK) << tw_last_error();
    std::memset(buffer(), kOwn, kLength);
    const tw_request last = receive();
    const volatile char *first = buffer(), *middle = buffer() + kLength / 2;  // the sender's half
    ASSERT_TRUE(progress_until(side.worker, [&] { return *first != kOwn || *middle != kOwn; }));
    for (int turns = round * 2; turns > 0; --turns) tw_worker_progress(side.worker);
    EXPECT_EQ(tw_endpoint_close(endpoint, TW_CLOSE_FORCE, nullptr), TW_OK);
    const tw_status status = tw_request_finish(last);
    EXPECT_TRUE(status == TW_OK || status == TW_ERR_CLOSED) << tw_status_name(status);
    interrupted += status == TW_ERR_CLOSED;
    std::memset(buffer(), kOwn, kLength);
    EXPECT_NE(child.receive(), "");  // it knows by now
    EXPECT_EQ(child.join(), 0);
    EXPECT_EQ(not_own(buffer(), kLength), 0u) << "round " << round;
  }
  EXPECT_GT(interrupted, 0);
}

TEST_F(ForcedClose, WhatTheSenderStoresNextIsNotDelivered) {
  int interrupted = 0;
  for (int round = 0; round < kRounds; ++round) {
    Child child("large receiver");
    meet(child);
    fill(buffer(), uint64_t(getpid()));
    for (int i = 0; i < kWarm; ++i) ASSERT_EQ(tw_send_blocking(endpoint, buffer(), kLength, kMessage), TW_OK);
    tw_request last = TW_REQUEST_NONE;
    ASSERT_EQ(tw_send(endpoint, buffer(), kLength, kMessage, nullptr, &last), TW_IN_PROGRESS);
    spin_a_little(side.worker);
    EXPECT_EQ(tw_endpoint_close(endpoint, TW_CLOSE_FORCE, nullptr), TW_OK);
    const tw_status status = tw_request_finish(last);
    EXPECT_TRUE(status == TW_OK || status == TW_ERR_CLOSED) << tw_status_name(status);
    interrupted += status == TW_ERR_CLOSED;
    std::memset(buffer(), kOwn, kLength);
    EXPECT_EQ(child.receive(), tw_status_name(TW_ERR_PEER_LOST)) << "round " << round;
    EXPECT_EQ(child.join(), 0);
  }
  EXPECT_GT(interrupted, 0);
}

}  // namespace
