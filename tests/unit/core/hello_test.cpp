// SPDX-License-Identifier: Apache-2.0
// What peers say of their plans' proxies is kept with the endpoint, as far as it is one.
#include "core/hello.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "../../fixtures/rooms.hpp"
#include "core/worker.hpp"
#include "protocols/active.hpp"

namespace thalweg::impl {
namespace {

constexpr uint64_t kLong = 20'000'000'000;

/// Two workers, connected.
class Hellos : public testing::Test {
 protected:
  struct Side {
    tw_context* context = nullptr;
    tw_worker* worker = nullptr;
    tw_endpoint* endpoint = nullptr;
  };
  void SetUp() override {
    for (Side* side : {&a, &b}) {
      ASSERT_EQ(tw_context_create(nullptr, &side->context), TW_OK) << tw_last_error();
      ASSERT_EQ(tw_worker_create(side->context, nullptr, &side->worker), TW_OK) << tw_last_error();
    }
    connect(a, b);
    connect(b, a);
    for (Side* side : {&a, &b}) {
      const auto up = [&] { return tw_endpoint_state(side->endpoint) != TW_IN_PROGRESS; };
      ASSERT_TRUE(progress_until(up));
      ASSERT_EQ(tw_endpoint_state(side->endpoint), TW_OK);
    }
  }
  void TearDown() override {
    for (Side* side : {&a, &b}) {
      if (side->endpoint != nullptr) (void)tw_endpoint_close(side->endpoint, TW_CLOSE_FORCE, nullptr);
      tw_worker_destroy(side->worker);
      tw_context_destroy(side->context);
    }
  }
  static void connect(Side& from, Side& to) {
    unsigned char address[kAddressRoom];
    size_t length = sizeof address;
    ASSERT_EQ(tw_worker_address(to.worker, address, &length), TW_OK);
    ASSERT_EQ(tw_connect(from.worker, address, length, nullptr, &from.endpoint), TW_OK) << tw_last_error();
  }
  template <class Done>
  bool progress_until(const Done& done) {
    const Deadline limit(kLong);
    while (!done() && !limit.passed()) {
      tw_worker_progress(a.worker);
      tw_worker_progress(b.worker);
    }
    return done();
  }
  void say(const std::vector<std::byte>& bytes) {
    OpDesc op;
    op.verb = Verb::am;
    op.tag = ActiveTable::kHello;
    op.peer = &*a.endpoint->peer;
    op.header = bytes.data();
    op.header_length = static_cast<uint32_t>(bytes.size());
    ASSERT_FALSE(is_error(a.worker->engine->start(op, {}))) << tw_last_error();
  }
  static std::vector<std::byte> random_bytes(size_t length) {
    std::mt19937_64 random(std::random_device{}());
    std::vector<std::byte> bytes(length);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() | 1);
    return bytes;
  }
  Side a, b;
};

TEST_F(Hellos, AreKept) {
  const std::vector<std::byte> bytes = random_bytes(TW_AM_HEADER_SHORT);
  say(bytes);
  uint64_t token = 0, expected = 0;
  std::vector<std::byte> proxy;
  ASSERT_TRUE(progress_until([&] { return hello_of(*b.endpoint, &token, &proxy); }));
  std::memcpy(&expected, bytes.data(), sizeof expected);
  EXPECT_EQ(token, expected);
  EXPECT_TRUE(std::equal(proxy.begin(), proxy.end(), bytes.begin() + sizeof expected, bytes.end()));
  EXPECT_EQ(tw_endpoint_state(b.endpoint), TW_OK);
}

/// No budget counts what is kept of them, so there is an end to their length.
TEST_F(Hellos, OfMoreThanAnybodySaysEndTheLink) {
  say(random_bytes(TW_AM_HEADER_SHORT + 1));
  ASSERT_TRUE(progress_until([&] { return is_error(tw_endpoint_state(b.endpoint)); }));
  EXPECT_EQ(tw_endpoint_state(b.endpoint), TW_ERR_PROTOCOL);
  uint64_t token = 0;
  std::vector<std::byte> proxy;
  EXPECT_FALSE(hello_of(*b.endpoint, &token, &proxy));
  EXPECT_TRUE(proxy.empty());
}

}  // namespace
}  // namespace thalweg::impl
