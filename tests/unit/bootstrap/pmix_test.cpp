// SPDX-License-Identifier: Apache-2.0
// The launcher of PMIx against a library of our own, which this executable exports: ranks that come, and ranks that do not.
#include <gtest/gtest.h>
#include <thalweg/views.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "bootstrap/launcher.hpp"
#include "bootstrap/pmix_api.hpp"

namespace thalweg::impl {
namespace {

constexpr uint32_t kSize = 2;

/// A server with one other rank, which puts random bytes of the same length under the same names.
struct Server {
  std::mutex mutex;
  std::map<std::pair<uint32_t, std::string>, std::vector<char>> values;
  std::atomic<bool> answers{true};
  std::vector<std::thread> threads;
  std::vector<std::pair<pmix::Ended, void*>> unanswered;
  ~Server() { settle(); }
  void settle() {
    for (std::thread& one : threads) one.join();
    threads.clear();
    for (const auto& [ended, data] : std::exchange(unanswered, {})) ended(0, data);
  }
};
Server server;

pmix::Value* new_value() { return static_cast<pmix::Value*>(std::calloc(1, sizeof(pmix::Value))); }

}  // namespace
}  // namespace thalweg::impl

using namespace thalweg::impl;
#define EXPORTED extern "C" [[gnu::visibility("default"), gnu::used]]

EXPORTED int PMIx_Init(pmix::Proc* self, pmix::Info*, size_t) {
  std::strcpy(self->space, "by hand");
  self->rank = 0;
  return 0;
}
EXPORTED int PMIx_Finalize(const pmix::Info*, size_t) { return 0; }
EXPORTED int PMIx_Commit() { return 0; }
EXPORTED const char* PMIx_Error_string(int) { return "an error"; }
EXPORTED int PMIx_Put(uint8_t, const char* key, pmix::Value* value) {
  const std::lock_guard lock(server.mutex);
  const char* bytes = value->data.object.bytes;
  server.values[{0, key}] = std::vector<char>(bytes, bytes + value->data.object.size);
  std::vector<char>& other = server.values[{1, key}];
  other.resize(value->data.object.size);
  std::random_device random;
  for (char& one : other) one = static_cast<char>(random());
  return 0;
}
EXPORTED int PMIx_Fence_nb(const pmix::Proc*, size_t, const pmix::Info*, size_t, pmix::Ended ended, void* data) {
  if (!server.answers)
    server.unanswered.emplace_back(ended, data);
  else
    server.threads.emplace_back([=] { ended(0, data); });
  return 0;
}
EXPORTED int PMIx_Get(const pmix::Proc* of, const char* key, const pmix::Info*, size_t, pmix::Value** value) {
  *value = new_value();
  if (std::strcmp(key, pmix::kJobSize) == 0) {
    (*value)->type = pmix::kUint32;
    (*value)->data.number = kSize;
    return 0;
  }
  const std::lock_guard lock(server.mutex);
  const std::vector<char>& bytes = server.values.at({of->rank, key});
  (*value)->type = pmix::kByteObject;
  (*value)->data.object = {static_cast<char*>(std::malloc(bytes.size() + 1)), bytes.size()};
  std::memcpy((*value)->data.object.bytes, bytes.data(), bytes.size());
  return 0;
}

namespace thalweg::impl {
namespace {

struct Pmix : ::testing::Test {
  Pmix() {
    setenv("PMIX_NAMESPACE", "by hand", 1);
    setenv("PMIX_RANK", "0", 1);
    server.answers = true;
  }
  ~Pmix() override {
    tw_set_interrupt(nullptr, nullptr);
    server.settle();
    unsetenv("PMIX_NAMESPACE");
    unsetenv("PMIX_RANK");
  }
  Status find(uint64_t timeout_ns) {
    LaunchOptions options{};
    options.timeout_ns = timeout_ns;
    return find_pmix(options, &launcher);
  }
  std::unique_ptr<Launcher> launcher;
};

TEST_F(Pmix, RanksTellEachOther) {
  ASSERT_EQ(find(60 * kSecond), TW_OK) << last_error();
  EXPECT_EQ(launcher->rank, 0u);
  EXPECT_EQ(launcher->size, kSize);
  EXPECT_EQ(launcher->key.size(), 32u);
  std::vector<char> mine(77), all(kSize * mine.size());
  std::random_device random;
  for (char& one : mine) one = static_cast<char>(random());
  ASSERT_EQ(launcher->exchange(mine.data(), mine.size(), all.data()), TW_OK) << last_error();
  EXPECT_EQ(std::memcmp(all.data(), mine.data(), mine.size()), 0);
  bool found = false;
  for (const auto& [name, bytes] : server.values)
    found = found || (name.first == 1 && bytes == std::vector<char>(all.begin() + 77, all.end()));
  EXPECT_TRUE(found);
}

/// They may come when nobody waits any more.
TEST_F(Pmix, RanksThatDoNotComeAreWaitedForWithinTheLimit) {
  server.answers = false;
  const uint64_t begin = monotonic_ns();
  EXPECT_EQ(find(200 * kMillisecond), TW_ERR_TIMED_OUT);
  EXPECT_GE(monotonic_ns() - begin, 200 * kMillisecond);
  EXPECT_NE(std::string(last_error()).find("200 ms"), std::string::npos) << last_error();
  EXPECT_EQ(launcher, nullptr);
  ASSERT_EQ(server.unanswered.size(), 1u);
}

TEST_F(Pmix, AnInterruptEndsTheWait) {
  server.answers = false;
  tw_set_interrupt([](void*) { return 1; }, nullptr);
  EXPECT_EQ(find(UINT64_MAX), TW_ERR_CANCELED);
  EXPECT_EQ(server.unanswered.size(), 1u);
}

}  // namespace
}  // namespace thalweg::impl
