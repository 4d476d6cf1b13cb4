// SPDX-License-Identifier: Apache-2.0
// What the sender of an active message takes, and what its table says.
#include <gtest/gtest.h>

#include <algorithm>

#include "routes/messages.hpp"
#include "transports/transport.hpp"

namespace thalweg::impl::test {
namespace {

Limits limits() {
  Limits limits;
  limits.copy = 1000;
  limits.single = 4000;
  limits.reference = 2000;
  limits.eager = 8000;
  limits.mapped_from = 0;
  return limits;
}

Message active(uint64_t length, uint32_t header = 0) {
  Message message;
  message.active = true;
  message.length = length;
  message.header = header;
  message.features = kLinkMaps;
  return message;
}

TEST(ActiveRoutes, FollowTheBytesWithTheirHeader) {
  EXPECT_EQ(active_route(limits(), active(1000)), MessageRoute::single);
  EXPECT_EQ(active_route(limits(), active(1000, 1)), MessageRoute::segmented);
  EXPECT_EQ(active_route(limits(), active(2000, 2000)), MessageRoute::single) << "straight from its buffer";
  EXPECT_EQ(active_route(limits(), active(2000, 2001)), MessageRoute::segmented);
  Message strided = active(2000);
  strided.contiguous = false;
  EXPECT_EQ(active_route(limits(), strided), MessageRoute::segmented);
  EXPECT_EQ(active_route(limits(), active(8000)), MessageRoute::segmented);
  EXPECT_EQ(active_route(limits(), active(8001)), MessageRoute::frames);
}

TEST(ActiveRoutes, FollowWhatWasAskedForAndWhatThereIsCreditFor) {
  Message message = active(8001);
  message.unasked = true;
  EXPECT_EQ(active_route(limits(), message), MessageRoute::segmented);
  message.affordable = false;
  EXPECT_EQ(active_route(limits(), message), MessageRoute::segmented) << "it waits for credit";
  message = active(10);
  message.affordable = false;
  EXPECT_EQ(active_route(limits(), message), MessageRoute::frames);
  message.length = 0;
  EXPECT_EQ(active_route(limits(), message), MessageRoute::single) << "there is nothing to announce";
  message = active(10);
  message.rendezvous = true;
  EXPECT_EQ(active_route(limits(), message), MessageRoute::frames);
  message.length = 0;
  EXPECT_EQ(active_route(limits(), message), MessageRoute::single);
}

TEST(ActiveRoutes, PayloadsGoAsIfTheirHeadersWereShort) {
  for (uint64_t length : {0, 1, 999, 1000, 4000, 8000, 8001}) {
    const MessageRoute short_one = active_route(limits(), active(length)),
                       long_one = active_route(limits(), active(length, 100000));
    EXPECT_EQ(long_one == MessageRoute::frames, short_one == MessageRoute::frames) << length;
  }
}

TEST(ActiveRoutes, LongHeadersComeWithinAFrameOrAheadOrAreAskedFor) {
  EXPECT_EQ(header_way(limits(), active(5000, kShortHeader)), HeaderWay::within);
  EXPECT_EQ(header_way(limits(), active(9000, kShortHeader)), HeaderWay::within);
  EXPECT_EQ(header_way(limits(), active(500, 500)), HeaderWay::within) << "all of it in one frame";
  EXPECT_EQ(header_way(limits(), active(501, 500)), HeaderWay::ahead);
  EXPECT_EQ(header_way(limits(), active(9000, 500)), HeaderWay::ahead);
  Message dear = active(500, 500);
  dear.whole_affordable = false;
  EXPECT_EQ(active_route(limits(), dear), MessageRoute::segmented);
  EXPECT_EQ(header_way(limits(), dear), HeaderWay::asked);
  dear.unasked = true;
  EXPECT_EQ(header_way(limits(), dear), HeaderWay::waits);
  Message announced = active(9000, 500);
  announced.whole_affordable = false;
  EXPECT_EQ(header_way(limits(), announced), HeaderWay::ahead) << "there is credit for the header";
  announced.header_affordable = false;
  EXPECT_EQ(header_way(limits(), announced), HeaderWay::asked);
}

TEST(ActiveRoutes, TheTableStarsWhatIsTaken) {
  Message announced = active(10), long_one = active(9000), headed = active(10, 500);
  headed.whole_affordable = false;
  announced.rendezvous = true;
  Message empty = active(0), dear = active(10);
  empty.rendezvous = true;
  dear.affordable = false;
  for (const Message& message : {active(10), active(1500), announced, long_one, empty, dear, headed}) {
    const auto lines = message_routes(limits(), LinkCosts{}, message);
    EXPECT_EQ(std::count_if(lines.begin(), lines.end(), [](const Route& line) { return line.chosen; }), 1);
    const MessageRoute route = active_route(limits(), message);
    const auto& line = lines[static_cast<size_t>(route == MessageRoute::frames ? rts_route(limits(), message) : route)];
    EXPECT_TRUE(line.chosen) << line.name;
    EXPECT_EQ(line.why_not, nullptr) << line.name << ": " << line.why_not;
  }
}

TEST(ActiveRoutes, WhatGoesStraightFromItsBuffer) {
  EXPECT_TRUE(by_reference(limits(), true, 2000));
  EXPECT_FALSE(by_reference(limits(), true, 1999));
  EXPECT_FALSE(by_reference(limits(), false, 2000));
}

}  // namespace
}  // namespace thalweg::impl::test
