// SPDX-License-Identifier: Apache-2.0
// The ways of block transfers from what is known of their two sides.
#include "routes/blocks.hpp"

#include <gtest/gtest.h>

#include <cstring>

namespace thalweg::impl::test {
namespace {

Blocks host(bool mapped) {
  Blocks blocks;
  blocks.length = 1u << 20;
  blocks.mapped = mapped;
  blocks.why_not_reached = "it is host memory";
  return blocks;
}
Blocks devices(bool here, bool there, bool reached = true) {
  Blocks blocks;
  blocks.length = 1u << 20;
  blocks.device_here = here;
  blocks.device_there = there;
  blocks.why_not_reached = reached && there ? nullptr : "it is not reached";
  blocks.why_not_direct = there ? "it is memory of a device" : nullptr;
  return blocks;
}

TEST(BlocksRoutes, OfHostMemory) {
  EXPECT_EQ(blocks_route(host(true)), BlocksRoute::loads);
  EXPECT_EQ(way_of(host(true), BlocksRoute::loads), Way::mapped);
  EXPECT_EQ(way_of(host(false), BlocksRoute::loads), Way::kernel);
  Blocks far = host(false);
  far.why_not_direct = "another machine";
  EXPECT_EQ(blocks_route(far), BlocksRoute::frames);
  EXPECT_EQ(way_of(far, BlocksRoute::frames), Way::frames);
  Blocks fenced = host(true);
  fenced.fenced = true;
  EXPECT_EQ(blocks_route(fenced), BlocksRoute::frames);
}

TEST(BlocksRoutes, OfDevices) {
  for (const bool get : {false, true}) {
    Blocks both = devices(true, true);
    both.get = get;
    EXPECT_EQ(blocks_route(both), BlocksRoute::device);
    EXPECT_EQ(way_of(both, BlocksRoute::device), get ? Way::pull : Way::push);
  }
  EXPECT_EQ(blocks_route(devices(true, true, false)), BlocksRoute::frames);
  EXPECT_EQ(way_of(devices(true, true, false), BlocksRoute::frames), Way::staging);
  EXPECT_EQ(blocks_route(devices(false, true)), BlocksRoute::window) << "pageable memory here";
  Blocks pinned = devices(false, true);
  pinned.pinned_here = true;
  EXPECT_EQ(blocks_route(pinned), BlocksRoute::device);
  EXPECT_EQ(blocks_route(pinned, bit_of(BlocksRoute::device)), BlocksRoute::frames) << "a build without kernels";
  EXPECT_EQ(blocks_route(devices(true, false)), BlocksRoute::loads) << "out of pinned memory";
  EXPECT_EQ(way_of(devices(true, false), BlocksRoute::loads), Way::staging);
}

TEST(BlocksRoutes, OneMayBeForced) {
  Blocks mapped = host(true), both = devices(true, true);
  mapped.forced = both.forced = Way::frames;
  EXPECT_EQ(blocks_route(mapped), BlocksRoute::frames);
  EXPECT_EQ(blocks_route(both), BlocksRoute::frames);
  mapped.forced = Way::mapped;
  both.forced = Way::push;
  EXPECT_EQ(blocks_route(mapped), BlocksRoute::loads);
  EXPECT_EQ(blocks_route(both), BlocksRoute::device);
  both.get = true;
  EXPECT_EQ(blocks_route(both), BlocksRoute::frames);
}

TEST(BlocksRoutes, TheTableStarsWhatIsTaken) {
  for (const Blocks& blocks : {host(true), host(false), devices(true, true), devices(false, true), devices(true, false)}) {
    const auto lines = blocks_routes(blocks, LinkCosts{}, 1, 2);
    const auto chosen = static_cast<size_t>(blocks_route(blocks));
    for (size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(lines[i].chosen, i == chosen) << lines[i].name;
    EXPECT_EQ(lines[chosen].why_not, nullptr);
    for (size_t better = 0; better < chosen; ++better) EXPECT_NE(lines[better].why_not, nullptr) << lines[better].name;
  }
}

}  // namespace
}  // namespace thalweg::impl::test
