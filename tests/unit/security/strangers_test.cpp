// SPDX-License-Identifier: Apache-2.0
// Which connection a full listening socket drops.
#include "security/strangers.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace thalweg::impl {
namespace {

std::string source(const char* host) {
  SocketAddress address;
  EXPECT_TRUE(parse_numeric(host, 4711, &address)) << host;
  return Strangers::source_of(address, 0);
}

TEST(Strangers, TheOldestOfTheSourceThatHasMostGoesFirst) {
  Strangers door(4);
  uint64_t id = 0;
  EXPECT_FALSE(door.excess(&id));
  door.enter(1, "a");
  door.enter(2, "flood");
  door.enter(3, "flood");
  EXPECT_FALSE(door.excess(&id));
  door.enter(4, "flood");
  ASSERT_TRUE(door.excess(&id));
  EXPECT_EQ(id, 2u);  // and not 1, which is older
  door.leave(2);
  door.leave(2);
  EXPECT_FALSE(door.excess(&id));
  door.enter(5, "b");
  ASSERT_TRUE(door.excess(&id));
  EXPECT_EQ(id, 3u);
}

TEST(Strangers, AmongEqualsTheOldestGoes) {
  Strangers door(3);
  for (uint64_t i = 1; i <= 3; ++i) door.enter(i, std::to_string(i));
  uint64_t id = 0;
  ASSERT_TRUE(door.excess(&id));
  EXPECT_EQ(id, 1u);
}

TEST(Strangers, AFloodNeverPushesOthersOut) {
  Strangers door(64);
  door.enter(1, "client");
  for (uint64_t i = 2; i < 10'000; ++i) {
    uint64_t id = 0;
    if (door.excess(&id)) {
      EXPECT_NE(id, 1u);
      door.leave(id);
    }
    door.enter(i, "flood");
    EXPECT_LE(door.count(), 64u);
  }
}

TEST(Strangers, ASourceIsAMachineOrAProcess) {
  EXPECT_NE(source("192.0.2.1"), source("192.0.2.2"));
  EXPECT_EQ(source("192.0.2.1"), source("::ffff:192.0.2.1"));
  EXPECT_EQ(source("2001:db8::1"), source("2001:db8::ffff:2"));
  EXPECT_NE(source("2001:db8::1"), source("2001:db8:0:1::1"));
  EXPECT_NE(source("192.0.2.1"), source("2001:db8::1"));
  EXPECT_NE(Strangers::source_of(SocketAddress{}, 4), Strangers::source_of(SocketAddress{}, 5));
}

}  // namespace
}  // namespace thalweg::impl
