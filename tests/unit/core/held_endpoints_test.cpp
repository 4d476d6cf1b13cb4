// SPDX-License-Identifier: Apache-2.0
// Several holders of one connection, what is released behind its worker, errors' texts by waiting, and waits inside handlers.
#include <gtest/gtest.h>
#include <thalweg/thalweg.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr char kKey[] = "a secret of more than sixteen bytes";

thalweg::ContextOptions options_of(const char* transports) {
  thalweg::ContextOptions options;
  options.job_key = kKey;
  options.job_key_length = sizeof kKey;
  options.transports = transports;
  return options;
}

/// Two workers, as of two processes, that have tcp only: without TLS what they say travels in clear.
class Held : public testing::Test {
 protected:
  template <class Done>
  bool reach(Done done) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!done()) {
      if (std::chrono::steady_clock::now() > end) return false;
      a.progress();
      b.progress();
    }
    return true;
  }
  bool connected(const thalweg::Endpoint& endpoint) {
    return reach([&] { return endpoint.state() != TW_IN_PROGRESS; }) && endpoint.state() == TW_OK;
  }
  thalweg::Context context_a{options_of("self,tcp")}, context_b{options_of("self,tcp")};
  thalweg::Worker a{context_a}, b{context_b};
};

TEST_F(Held, AConnectionInClearIsNotGivenToWhoAsksForTls) {
  const thalweg::Endpoint from_b = b.connect(a.address());
  ASSERT_TRUE(connected(from_b));
  // The peer's connection is here when a receive from it has ended.
  std::byte sent{0x5a}, got{};
  thalweg::Request send, receive;
  ASSERT_EQ(a.recv({&got, 1}, 1, receive), TW_IN_PROGRESS);
  ASSERT_GE(from_b.send({&sent, 1}, 1, send), TW_OK);
  ASSERT_TRUE(reach([&] { return receive.done(); }));
  thalweg::EndpointOptions tls;
  tls.tls = 1;
  tw_endpoint* made = nullptr;
  const std::string to = b.address();
  EXPECT_EQ(tw_connect(a.get(), to.data(), to.size(), &tls, &made), TW_ERR_AUTHENTICATION);
  EXPECT_EQ(made, nullptr);
  EXPECT_NE(std::strstr(tw_last_error(), "without TLS"), nullptr) << tw_last_error();
  const thalweg::Endpoint plain = a.connect(to);  // who does not ask for it gets it
  EXPECT_EQ(plain.state(), TW_OK);
  EXPECT_FALSE(plain.is_protected());
}

TEST_F(Held, TlsThatIsAskedForWhileConnectingIsDemanded) {
  const thalweg::Endpoint plain = a.connect(b.address());
  thalweg::EndpointOptions tls;
  tls.tls = 1;
  const thalweg::Endpoint second = a.connect(b.address(), tls);
  EXPECT_EQ(second.get(), plain.get());
  ASSERT_TRUE(reach([&] { return second.state() != TW_IN_PROGRESS; }));
  EXPECT_TRUE(second.state() == TW_ERR_AUTHENTICATION || second.is_protected()) << second.state();
}

TEST_F(Held, AnotherTransportThanTheConnectionsIsRefused) {
  thalweg::Context both_a(options_of("self,shm,tcp")), both_b(options_of("self,shm,tcp"));
  thalweg::Worker here(both_a), there(both_b);
  const thalweg::Endpoint first = here.connect(there.address());
  first.wait(std::chrono::seconds(20));
  const std::string has(first.transport());
  thalweg::EndpointOptions other;
  other.transport = has == "shm" ? "tcp" : "shm";
  try {
    (void)here.connect(there.address(), other);
    FAIL() << "by " << has;
  } catch (const thalweg::Error& error) {
    EXPECT_EQ(error.status(), TW_ERR_INVALID);
    EXPECT_NE(std::strstr(error.what(), other.transport), nullptr) << error.what();
  }
  other.transport = has.c_str();
  EXPECT_EQ(here.connect(there.address(), other).get(), first.get());
}

TEST_F(Held, TheFirstHolderIsToldOfTheLossOnce) {
  int told[2] = {};
  const auto on_lost = [](void* arg, tw_endpoint*, tw_status why) {
    EXPECT_LT(why, TW_OK);
    ++*static_cast<int*>(arg);
  };
  thalweg::EndpointOptions options;
  options.on_lost = on_lost;
  std::optional<thalweg::Worker> peer(std::in_place, context_b);
  std::vector<thalweg::Endpoint> held;
  for (const int which : {0, 1, 0}) {
    options.arg = &told[which];
    held.push_back(a.connect(peer->address(), options));
  }
  ASSERT_TRUE(reach([&] { return peer->progress(), held[0].state() != TW_IN_PROGRESS; }));
  ASSERT_EQ(held[0].state(), TW_OK);
  peer.reset();
  ASSERT_TRUE(reach([&] { return told[0] != 0; }));
  EXPECT_EQ(told[0], 1);
  EXPECT_EQ(told[1], 0) << "one that is closed first may have nothing left to be told by";
}

TEST_F(Held, RemoteMemoryMayBeReleasedBehindItsWorker) {
  thalweg::Memory memory = context_b.allocate(4096);
  thalweg::Signal signal = b.signal();
  std::optional<thalweg::Worker> worker(std::in_place, context_a);
  tw_remote_memory* remote = nullptr;
  tw_remote_signal* word = nullptr;
  tw_endpoint* endpoint = nullptr;
  const std::string to = b.address(), key = memory.key(), signal_key = signal.key();
  ASSERT_EQ(tw_connect(worker->get(), to.data(), to.size(), nullptr, &endpoint), TW_OK);
  ASSERT_EQ(tw_memory_import(endpoint, key.data(), key.size(), &remote), TW_OK);
  ASSERT_EQ(tw_signal_import(endpoint, signal_key.data(), signal_key.size(), &word), TW_OK);
  worker.reset();
  EXPECT_EQ(tw_signal_post(word, 1, nullptr, nullptr), TW_ERR_STALE);
  void* address = nullptr;
  EXPECT_EQ(tw_remote_memory_map(remote, &address), TW_ERR_CLOSED);
  tw_remote_memory_release(remote);
  tw_remote_signal_release(word);
}

/// Another thread sees the loss while this one maps: what is mapped stays, and what is not is an error.
TEST(Maps, StayThoughAnotherThreadSeesTheLoss) {
  constexpr size_t kMemories = 16, kLength = 4096;
  const thalweg::Context here(options_of("self,shm")), there(options_of("self,shm"));
  thalweg::WorkerOptions progresses;
  progresses.progress = TW_PROGRESS_THREAD;
  const thalweg::Worker worker(here, progresses);
  std::vector<thalweg::Memory> memories;
  for (size_t i = 0; i < kMemories; ++i) memories.push_back(there.allocate(kLength));
  for (unsigned round = 0; round < 20; ++round) {
    std::optional<thalweg::Worker> owner(std::in_place, there, progresses);
    const thalweg::Endpoint endpoint = worker.connect(owner->address());
    endpoint.wait(std::chrono::seconds(20));
    std::vector<tw_remote_memory*> remotes(kMemories);
    for (size_t i = 0; i < kMemories; ++i) {
      const std::string key = memories[i].key();
      ASSERT_EQ(tw_memory_import(endpoint.get(), key.data(), key.size(), &remotes[i]), TW_OK) << tw_last_error();
    }
    std::thread ends([&] { owner.reset(); });
    for (tw_remote_memory* const remote : remotes) {
      void* address = nullptr;
      const tw_status status = tw_remote_memory_map(remote, &address);
      EXPECT_EQ(status == TW_OK, address != nullptr) << status;
      if (status != TW_OK) continue;
      EXPECT_EQ(static_cast<const volatile unsigned char*>(address)[kLength - 1], 0);
    }
    ends.join();
    for (tw_remote_memory* const remote : remotes) tw_remote_memory_release(remote);
  }
}

TEST(Maps, NeedTheRightToRead) {
  const thalweg::Context here(options_of("self,shm")), there(options_of("self,shm"));
  thalweg::WorkerOptions progresses;
  progresses.progress = TW_PROGRESS_THREAD;
  const thalweg::Worker worker(here, progresses), owner(there, progresses);
  const thalweg::Memory memory = there.allocate(4096);
  const thalweg::Endpoint endpoint = worker.connect(owner.address());
  endpoint.wait(std::chrono::seconds(20));
  for (const uint32_t access :
       {uint32_t{TW_MEMORY_READ}, uint32_t{TW_MEMORY_WRITE}, uint32_t{TW_MEMORY_WRITE} | uint32_t{TW_MEMORY_ATOMIC}}) {
    const std::string key = memory.key(0, 0, access);
    tw_remote_memory* remote = nullptr;
    ASSERT_EQ(tw_memory_import(endpoint.get(), key.data(), key.size(), &remote), TW_OK) << tw_last_error();
    const bool reads = (access & TW_MEMORY_READ) != 0;
    void* address = &remote;
    EXPECT_EQ(tw_remote_memory_map(remote, &address), reads ? TW_OK : TW_ERR_PERMISSION) << tw_last_error();
    EXPECT_EQ(address != nullptr, reads);
    if (!reads) {
      EXPECT_NE(std::strstr(tw_last_error(), "TW_MEMORY_READ"), nullptr) << tw_last_error();
    }
    tw_remote_memory_release(remote);
  }
}

TEST_F(Held, AWaitForAnOperationThatFailedSaysWhy) {
  const thalweg::Endpoint self = a.connect(a.address());
  self.wait();
  for (const bool waits : {true, false}) {
    char message[70] = {}, buffer[30];
    thalweg::Request receive, send;
    ASSERT_EQ(a.recv(buffer, 1, receive), TW_IN_PROGRESS);
    ASSERT_GE(self.send(message, 1, send), TW_OK);
    while (!receive.done()) a.progress();
    EXPECT_EQ(tw_connect(a.get(), "rubbish", 7, nullptr, nullptr), TW_ERR_INVALID);  // another text
    EXPECT_EQ(waits ? tw_request_wait(receive.number(), TW_FOREVER) : receive.test(), TW_ERR_TRUNCATED);
    EXPECT_NE(std::strstr(tw_last_error(), "70 bytes for a buffer of 30"), nullptr) << tw_last_error();
    ASSERT_EQ(a.recv(buffer, 2, receive), TW_IN_PROGRESS);  // ends within the wait
    ASSERT_GE(self.send(message, 2, send), TW_OK);
    EXPECT_EQ(receive.wait(), TW_ERR_TRUNCATED);
    EXPECT_NE(std::strstr(tw_last_error(), "70 bytes for a buffer of 30"), nullptr) << tw_last_error();
  }
}

struct Handled {
  tw_worker* worker;
  tw_endpoint* endpoint;
  tw_signal* signal;
  std::vector<tw_status> statuses;
  std::string text;
  tw_request receive = TW_REQUEST_NONE;
  char got[8] = {};
};

tw_status wait_in_handler(void* arg, const tw_am_message*) {
  auto& all = *static_cast<Handled*>(arg);
  char byte = 0;
  all.statuses.push_back(tw_recv_blocking(all.worker, &byte, 1, 99, ~0ull, nullptr));
  all.text = tw_last_error();
  all.statuses.push_back(tw_signal_wait(all.signal, 1, TW_COMPARE_GE, TW_FOREVER));
  EXPECT_EQ(tw_recv(all.worker, all.got, sizeof all.got, 7, ~0ull, nullptr, &all.receive), TW_IN_PROGRESS);
  all.statuses.push_back(tw_request_wait(all.receive, TW_FOREVER));
  all.statuses.push_back(tw_request_finish(all.receive));
  std::vector<char> large(8u << 20);
  all.statuses.push_back(tw_send_blocking(all.endpoint, large.data(), large.size(), 98));
  return TW_OK;
}

TEST_F(Held, AHandlerCannotWaitAndIsToldSo) {
  const thalweg::Endpoint self = a.connect(a.address());
  self.wait();
  const thalweg::Signal signal = a.signal();
  Handled all{a.get(), self.get(), signal.get(), {}, {}};
  a.am_register(3, wait_in_handler, &all);
  thalweg::Request sent;
  ASSERT_GE(self.am_send(3, {}, {}, sent), TW_OK);
  ASSERT_TRUE(reach([&] { return all.statuses.size() == 5; }));
  EXPECT_EQ(all.statuses, std::vector<tw_status>(5, TW_ERR_BUSY));
  EXPECT_NE(all.text.find("handler"), std::string::npos) << all.text;
  // What it posted goes on, and its request is alive.
  const uint64_t value = std::random_device()();
  ASSERT_EQ(self.send_blocking({&value, sizeof value}, 7), TW_OK);
  EXPECT_EQ(tw_request_finish(all.receive), TW_OK) << tw_last_error();
  EXPECT_EQ(std::memcmp(all.got, &value, sizeof value), 0);
}

struct Ended {
  thalweg::Endpoint idle;
  tw_endpoint* self;
  tw_status closed = TW_ERR_INVALID, sent = TW_ERR_INVALID;
};

/// What needs no wait is as elsewhere.
TEST_F(Held, AHandlerMayCloseWhatIsIdleAndSendWhatGoesAtOnce) {
  const thalweg::Endpoint self = a.connect(a.address());
  self.wait();
  Ended ended{a.connect(b.address()), self.get()};
  ASSERT_TRUE(connected(ended.idle));
  a.am_register(
      3,
      [](void* arg, const tw_am_message*) {
        auto& all = *static_cast<Ended*>(arg);
        if (all.sent != TW_OK) all.sent = tw_send_blocking(all.self, nullptr, 0, 9);  // one: nobody takes it
        EXPECT_EQ(tw_send_blocking(all.self, nullptr, 1, 9), TW_ERR_INVALID);
        all.closed = all.idle.close();
        return tw_status{TW_OK};
      },
      &ended);
  // It is idle once its own greeting is there: until then it has to wait, and is kept.
  ASSERT_TRUE(reach([&] {
    if (ended.closed == TW_OK) return true;
    EXPECT_TRUE(ended.closed == TW_ERR_INVALID || ended.closed == TW_ERR_BUSY) << tw_last_error();
    thalweg::Request sent;
    EXPECT_GE(self.am_send(3, {}, {}, sent), TW_OK);
    while (!sent.done()) a.progress();
    return false;
  }));
  EXPECT_EQ(ended.sent, TW_OK);
  EXPECT_EQ(ended.closed, TW_OK) << tw_last_error();
}

}  // namespace
