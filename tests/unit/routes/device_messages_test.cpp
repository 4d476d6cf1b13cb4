// SPDX-License-Identifier: Apache-2.0
// The ways of messages with device memory by which side posts first, and whose progress they need.
#include "routes/device_messages.hpp"

#include <gtest/gtest.h>

#include <string>

#include "transports/transport.hpp"

namespace thalweg::test {
namespace {

using namespace thalweg::impl;

/// Between two devices of two processes that share their memory.
DeviceMessage shared(uint64_t length) {
  DeviceMessage m;
  m.features = kLinkMaps | kLinkSingleCopy;
  m.length = length;
  m.from = {MemoryKind::vmm, true, false, true};
  m.to = {MemoryKind::vmm, true, false, false};
  return m;
}

std::string progress(const DeviceMessage& m) { return progress_of(Limits{}, m, way_of(device_route(m))); }

TEST(DeviceMessages, WhatIsPostedSecondIsPulledFromSomeSizeOn) {
  for (const uint64_t length : {uint64_t{8}, kHiddenFrom - 1, kHiddenFrom, kHiddenFrom * 8}) {
    DeviceMessage m = shared(length);
    EXPECT_EQ(device_route(m), DeviceRoute::push);
    m.second = true;
    EXPECT_EQ(device_route(m), length < kHiddenFrom ? DeviceRoute::push : DeviceRoute::pull) << length;
    EXPECT_EQ(device_route(m, bit_of(DeviceRoute::pull)), DeviceRoute::push) << "what fails is not asked for again";
    DeviceMessage pinned = m;
    pinned.to.kind = MemoryKind::pinned;
    pinned.to.library = true;
    const bool small = length < kNamedFrom;  // not worth pinning at the sender
    EXPECT_EQ(device_route(pinned), small ? DeviceRoute::pull : DeviceRoute::push) << "its receive does nothing in its call";
    m.from.late = true;
    EXPECT_EQ(device_route(m), DeviceRoute::push) << "only its sender knows when it may be read";
    m.from.late = false;
    m.from.named = false;
    EXPECT_EQ(device_route(m), DeviceRoute::push);
    m.from.named = true;
    m.forced = Way::push;
    EXPECT_EQ(device_route(m), DeviceRoute::push);
  }
}

TEST(DeviceMessages, WhatASenderMayPushUnasked) {
  EXPECT_TRUE(pushes_unasked(shared(8)));
  DeviceMessage m = shared(8);
  m.from.late = true;
  EXPECT_FALSE(pushes_unasked(m));
  m = shared(8);
  m.to.named = false;
  EXPECT_FALSE(pushes_unasked(m)) << "pool and managed memory";
  m = shared(8);
  m.from.kind = MemoryKind::pinned;
  EXPECT_FALSE(pushes_unasked(m));
  m = shared(8);
  m.imports = false;
  EXPECT_FALSE(pushes_unasked(m));
  m = shared(8);
  m.active = true;
  EXPECT_FALSE(pushes_unasked(m)) << "nobody posts its receive before it comes";
  m = shared(8);
  m.features = kLinkSameProcess | kLinkMaps;
  EXPECT_FALSE(pushes_unasked(m));
  m = shared(8);
  m.features = 0;
  EXPECT_FALSE(pushes_unasked(m));
  m = shared(8);
  m.forced = Way::pull;
  EXPECT_FALSE(pushes_unasked(m));
}

TEST(DeviceMessages, WhoseProgressTheyNeed) {
  EXPECT_EQ(progress(shared(kHiddenFrom)), "nobody, once both sides have posted and imported");
  EXPECT_EQ(progress(shared(8)), "nobody where the receive is posted first, else both sides");
  DeviceMessage m = shared(kHiddenFrom);
  m.to.named = false;
  EXPECT_EQ(progress(m), "nobody where the receive is posted second, else both sides") << "its device pulls";
  m.from.named = false;
  EXPECT_EQ(progress(m), "both sides") << "staged";
  EXPECT_EQ(std::string(progress_of(Limits{}, DeviceMessage{}, Way::frames)), "both sides");
  EXPECT_NE(std::string(progress_of(Limits{}, DeviceMessage{}, Way::eager)).find("the receiver; "), std::string::npos);
}

TEST(DeviceMessages, WhoseProgressTheyNeedThatCpusCopy) {
  Limits limits;
  limits.halves = 1u << 20;
  const std::string one = "the receiver, which copies", both = "both sides, which copy a half each";
  for (const uint64_t length : {uint64_t{0}, limits.halves - 1, limits.halves, 8 * limits.halves}) {
    const std::string halves = length < limits.halves ? one : both;
    DeviceMessage m;
    m.features = kLinkMaps | kLinkSingleCopy;
    m.length = length;
    EXPECT_EQ(progress_of(limits, m, Way::kernel), halves) << length;
    EXPECT_EQ(progress_of(limits, m, Way::mapped), one) << "the sender does not reach the receiver's buffer";
    m.to.library = true;
    EXPECT_EQ(progress_of(limits, m, Way::mapped), halves) << length;
    m.features = kLinkSameProcess;
    EXPECT_EQ(progress_of(limits, m, Way::mapped), one) << "within a process the receiver copies all of it";
  }
}

}  // namespace
}  // namespace thalweg::test
