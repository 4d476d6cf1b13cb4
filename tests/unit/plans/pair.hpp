// SPDX-License-Identifier: Apache-2.0
// Two contexts of this process with a worker each, connected; their own threads for what is done at the same time.
#pragma once
#include <gtest/gtest.h>
#include <thalweg/plans.h>
#include <thalweg/thalweg.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "../../fixtures/rooms.hpp"

namespace thalweg::tests {

using Bytes = std::vector<unsigned char>;

inline Bytes random_bytes(size_t length) {
  static thread_local std::mt19937_64 random(std::random_device{}());
  Bytes bytes(length);
  for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random());
  return bytes;
}

struct Side {
  tw_context* context = nullptr;
  tw_worker* worker = nullptr;
  tw_endpoint* endpoint = nullptr;
  std::vector<tw_memory*> memories;
  std::vector<std::function<void()>> last;  // before the worker goes

  void open(const char* transports) {
    tw_context_options options = TW_CONTEXT_OPTIONS_INIT;
    options.job_key = "thalweg-unit-test-job-key-of-32-b";
    options.job_key_length = 32;
    options.transports = transports;
    ASSERT_EQ(tw_context_create(&options, &context), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_worker_create(context, nullptr, &worker), TW_OK) << tw_last_error();
  }
  void connect(Side& other) {
    unsigned char address[kAddressRoom];
    size_t length = sizeof address;
    ASSERT_EQ(tw_worker_address(other.worker, address, &length), TW_OK);
    ASSERT_EQ(tw_connect(worker, address, length, nullptr, &endpoint), TW_OK) << tw_last_error();
  }
  /// Memory of a place; it lives as long as the side.
  unsigned char* memory(const char* place, size_t length, tw_memory** handle = nullptr) {
    tw_memory_options options = TW_MEMORY_OPTIONS_INIT;
    options.place = place;
    tw_memory* made = nullptr;
    EXPECT_EQ(tw_memory_allocate(context, length, &options, &made), TW_OK) << tw_last_error();
    memories.push_back(made);
    if (handle != nullptr) *handle = made;
    return static_cast<unsigned char*>(tw_memory_address(made));
  }
  void store(unsigned char* to, const Bytes& bytes) {
    ASSERT_EQ(tw_memory_copy(context, to, bytes.data(), bytes.size()), TW_OK) << tw_last_error();
  }
  Bytes load(const unsigned char* from, size_t length) {
    Bytes bytes(length);
    EXPECT_EQ(tw_memory_copy(context, bytes.data(), from, length), TW_OK) << tw_last_error();
    return bytes;
  }
  void close() {
    for (size_t i = last.size(); i-- > 0;) last[i]();
    last.clear();
    if (endpoint != nullptr) (void)tw_endpoint_close(endpoint, TW_CLOSE_FORCE, nullptr);
    tw_worker_destroy(worker);
    for (tw_memory* one : memories) (void)tw_memory_release(one);
    tw_context_destroy(context);
  }
};

/// Memory of a side that the other reaches, and a signal in it.
struct Target {
  unsigned char* address = nullptr;
  tw_remote_memory* remote = nullptr;
  tw_signal* signal = nullptr;
  tw_remote_signal* remote_signal = nullptr;
};

inline void make_target(Side& owner, Side& user, const char* place, size_t length, uint32_t kind, Target* out) {
  tw_memory* memory = nullptr;
  out->address = owner.memory(place, length + 64, &memory);
  unsigned char key[kKeyRoom];
  size_t size = sizeof key;
  ASSERT_EQ(tw_memory_export_range(memory, 0, length, 0, key, &size), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_memory_import(user.endpoint, key, size, &out->remote), TW_OK) << tw_last_error();
  tw_signal_options options = TW_SIGNAL_OPTIONS_INIT;
  options.kind = kind;
  options.memory = memory;
  options.offset = (length + 7) / 8 * 8;
  ASSERT_EQ(tw_signal_create(owner.worker, &options, &out->signal), TW_OK) << tw_last_error();
  size = sizeof key;
  ASSERT_EQ(tw_signal_export(out->signal, key, &size), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_signal_import(user.endpoint, key, size, &out->remote_signal), TW_OK) << tw_last_error();
  owner.last.emplace_back([made = *out] { (void)tw_signal_destroy(made.signal); });
  user.last.emplace_back([made = *out] {
    tw_remote_signal_release(made.remote_signal);
    tw_remote_memory_release(made.remote);
  });
}

/// How two sides reach each other: memory of `place`, over these transports.
struct Way {
  const char* name;
  const char* place;
  const char* transports;
  bool mapped;
};
inline std::ostream& operator<<(std::ostream& out, const Way& way) { return out << way.name; }
inline const Way kWays[] = {{"host", "host", "shm", true},
                            {"device", "emulated:0", "shm", true},
                            {"host_tcp", "host", "tcp", false},
                            {"device_tcp", "emulated:0", "tcp", false}};

class Pair : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    ::setenv("THALWEG_EMULATED", "devices=2", 0);
    a.open(GetParam().transports);
    b.open(GetParam().transports);
    a.connect(b);
    b.connect(a);
    both([&] { ASSERT_EQ(tw_endpoint_wait(a.endpoint, kLong), TW_OK) << tw_last_error(); },
         [&] { ASSERT_EQ(tw_endpoint_wait(b.endpoint, kLong), TW_OK) << tw_last_error(); });
  }
  void TearDown() override {
    a.close();
    b.close();
  }
  static void both(const std::function<void()>& first, const std::function<void()>& second) {
    std::thread other(second);
    first();
    other.join();
  }
  /// Plans of the two sides, which wait for each other.
  static void prepare_both(tw_plan* of_a, tw_plan* of_b) {
    both([&] { ASSERT_EQ(tw_plan_prepare(of_a, kLong), TW_OK) << tw_last_error(); },
         [&] { ASSERT_EQ(tw_plan_prepare(of_b, kLong), TW_OK) << tw_last_error(); });
  }
  unsigned char* memory(Side& side, size_t length, tw_memory** handle = nullptr) {
    return side.memory(GetParam().place, length, handle);
  }
  tw_queue* queue(Side& side, uint32_t waits = TW_WAITS_AUTO) {
    tw_queue* made = nullptr;
    tw_queue_options options = TW_QUEUE_OPTIONS_INIT;
    options.waits = waits;
    EXPECT_EQ(tw_queue_create(side.context, GetParam().place, &options, &made), TW_OK) << tw_last_error();
    side.last.emplace_back([made] { tw_queue_destroy(made); });
    return made;
  }
  tw_plan* plan(Side& side, uint64_t timeout_ns = 0) {
    tw_plan_options options = TW_PLAN_OPTIONS_INIT;
    options.place = GetParam().place;
    options.timeout_ns = timeout_ns;
    tw_plan* made = nullptr;
    EXPECT_EQ(tw_plan_create(side.context, &options, &made), TW_OK) << tw_last_error();
    side.last.emplace_back([made] { EXPECT_EQ(tw_plan_destroy(made), TW_OK) << tw_last_error(); });
    return made;
  }
  static std::string explain(tw_plan* of) {
    size_t size = 0;
    EXPECT_EQ(tw_plan_explain(of, nullptr, &size), TW_OK);
    std::string text(size, '\0');
    EXPECT_EQ(tw_plan_explain(of, text.data(), &size), TW_OK);
    return text;
  }
  static constexpr uint64_t kLong = 20'000'000'000;
  Side a, b;
};

}  // namespace thalweg::tests
