// SPDX-License-Identifier: Apache-2.0
// The ways of puts, gets, atomics and signals: which comes first, and which comes behind one that was tried in vain.
#include "routes/accesses.hpp"

#include <gtest/gtest.h>

#include "routes/device_messages.hpp"

namespace thalweg::impl::test {
namespace {

Access host(AccessVerb verb) {
  Access access;
  access.verb = verb;
  access.length = 8;
  return access;
}
Access device(AccessVerb verb) {
  Access access = host(verb);
  access.devices = true;
  access.local = access.staged = verb != AccessVerb::atomic;
  return access;
}

TEST(AccessRoutes, WhatFailsIsNotAskedForAgain) {
  EXPECT_EQ(access_route(device(AccessVerb::atomic)), AccessRoute::direct);
  EXPECT_EQ(access_route(device(AccessVerb::atomic), bit_of(AccessRoute::direct)), AccessRoute::frames);
  const uint32_t reached = bit_of(AccessRoute::direct) | bit_of(AccessRoute::window);
  for (const AccessVerb verb : {AccessVerb::put, AccessVerb::get}) {
    EXPECT_EQ(access_route(device(verb)), AccessRoute::direct);
    EXPECT_EQ(access_route(device(verb), reached), AccessRoute::relay);
    EXPECT_EQ(access_route(host(verb)), AccessRoute::mapped);
    EXPECT_EQ(access_route(host(verb), bit_of(AccessRoute::mapped)), AccessRoute::kernel);
  }
}

TEST(AccessRoutes, BehindFramesOnlyFramesKeepTheOrder) {
  for (const AccessVerb verb : {AccessVerb::put, AccessVerb::get, AccessVerb::atomic, AccessVerb::signal}) {
    Access access = host(verb);
    access.fenced = true;
    EXPECT_EQ(access_route(access), AccessRoute::frames);
  }
}

TEST(AccessRoutes, WhatIsPinnedIsWorthIt) {
  EXPECT_FALSE(worth_pinning(false, 99, 100));
  EXPECT_TRUE(worth_pinning(false, 100, 100));
  EXPECT_TRUE(worth_pinning(true, 0, 100));
}

}  // namespace
}  // namespace thalweg::impl::test
