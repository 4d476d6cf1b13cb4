// SPDX-License-Identifier: Apache-2.0
// Stores whose server has a name: of several addresses, and of a name server that does not always answer.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <netdb.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "bootstrap/store.hpp"
#include "bootstrap/store_server.hpp"

namespace {

constexpr char kName[] = "store.test";
std::vector<const char*> addresses;  // of that name
std::atomic<int> fails{0};           // as many times the name server is out of order
int asked = 0;

}  // namespace

/// A name server for one name; the others are looked up as ever.
extern "C" int getaddrinfo(const char* node, const char* service, const addrinfo* hints, addrinfo** found) {
  using Function = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
  static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "getaddrinfo"));
  const bool numeric = hints != nullptr && (hints->ai_flags & AI_NUMERICHOST) != 0;
  if (node == nullptr || numeric || std::strcmp(node, kName) != 0) return real(node, service, hints, found);
  ++asked;
  if (fails > 0) {
    --fails;
    return EAI_AGAIN;
  }
  for (const char* address : addresses) {
    const int result = real(address, service, hints, found);
    if (result != 0) return result;
    found = &(*found)->ai_next;
  }
  return 0;
}

namespace thalweg::impl {
namespace {

constexpr char kSecret[] = "a secret for the tests of stores' names";
constexpr char kOther[] = "another job's secret of its own stores";

JobKey key_of(const char* secret) {
  JobKey key;
  EXPECT_EQ(JobKey::load(secret, std::strlen(secret), nullptr, &key), TW_OK);
  return key;
}

std::unique_ptr<StoreServer> serve(const char* host, const char* secret, uint16_t port = 0) {
  StoreServerOptions options;
  options.linger_ns = 50 * kMillisecond;
  std::unique_ptr<StoreServer> server;
  EXPECT_EQ(StoreServer::start({.host = host, .port = port}, key_of(secret), options, &server), TW_OK) << last_error();
  return server;
}

Status open_by_name(uint16_t port, std::unique_ptr<Store>* out, uint64_t timeout_ns = 30 * kSecond) {
  StoreOptions options;
  options.key = key_of(kSecret);
  options.timeout_ns = timeout_ns;
  return Store::open("tcp:" + std::string(kName) + ":" + std::to_string(port), options, out);
}

/// At the name's first address another job's store has the same port.
TEST(StoreNames, AnotherJobsStoreAtOneAddressHidesNoneAtTheNextOne) {
  const auto other = serve("127.0.0.2", kOther);
  ASSERT_NE(other, nullptr);
  const auto ours = serve("127.0.0.3", kSecret, other->port());
  ASSERT_NE(ours, nullptr);
  addresses = {"127.0.0.2", "127.0.0.3"};
  std::unique_ptr<Store> store;
  ASSERT_EQ(open_by_name(other->port(), &store), TW_OK) << last_error();
  EXPECT_EQ(store->put("key", "value", 5), TW_OK) << last_error();
}

/// The refusal is told, and not that nobody is at the other address.
TEST(StoreNames, ARefusalIsToldAtOnceWhereNoAddressLeadsToTheStore) {
  const auto other = serve("127.0.0.2", kOther);
  ASSERT_NE(other, nullptr);
  addresses = {"127.0.0.2", "127.0.0.3"};
  std::unique_ptr<Store> store;
  const uint64_t begin = monotonic_ns();
  EXPECT_EQ(open_by_name(other->port(), &store), TW_ERR_AUTHENTICATION);
  EXPECT_NE(std::string(last_error()).find("key"), std::string::npos) << last_error();
  EXPECT_LT(monotonic_ns() - begin, 10 * kSecond);
}

TEST(StoreNames, ALookUpThatFailsIsTriedAgain) {
  const auto server = serve("127.0.0.1", kSecret);
  ASSERT_NE(server, nullptr);
  addresses = {"127.0.0.1"};
  fails = 2;
  asked = 0;
  std::unique_ptr<Store> store;
  ASSERT_EQ(open_by_name(server->port(), &store), TW_OK) << last_error();
  EXPECT_EQ(asked, 3);
}

TEST(StoreNames, OneThatIsNeverFoundIsToldWhenTheTimeHasPassed) {
  fails = 1000;
  std::unique_ptr<Store> store;
  EXPECT_EQ(open_by_name(1, &store, 200 * kMillisecond), TW_ERR_TIMED_OUT);
  EXPECT_NE(std::string(last_error()).find("has no address"), std::string::npos) << last_error();
  fails = 0;
}

/// A server that has ended and begun again takes all connections with it. Not at 127.0.0.1, from where a client whose kernel
/// chooses the port that it asks for would find itself.
TEST(StoreNames, LaterConnectionsNeedNoNameServer) {
  auto server = serve("127.0.0.2", kSecret);
  ASSERT_NE(server, nullptr);
  const uint16_t port = server->port();
  addresses = {"127.0.0.2"};
  asked = 0;
  std::unique_ptr<Store> store;
  ASSERT_EQ(open_by_name(port, &store), TW_OK) << last_error();
  server.reset();
  server = serve("127.0.0.2", kSecret, port);
  ASSERT_NE(server, nullptr);
  fails = 1000;
  EXPECT_EQ(store->put("key", "value", 5), TW_OK) << last_error();
  EXPECT_EQ(asked, 1);
  server.reset();  // nobody is there: the name is looked up, in vain, until another one is
  std::thread later([&] {
    while (fails > 998) std::this_thread::yield();
    server = serve("127.0.0.2", kSecret, port);
  });
  EXPECT_EQ(store->put("key", "value", 5), TW_OK) << last_error();
  later.join();
  fails = 0;
}

}  // namespace
}  // namespace thalweg::impl
