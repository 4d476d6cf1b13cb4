// SPDX-License-Identifier: Apache-2.0
// Where the pieces of a staged payload are named to their receiver.
#include <gtest/gtest.h>

#include "routes/device_messages.hpp"
#include "transports/transport.hpp"

namespace thalweg::impl::test {
namespace {

Pieces between_devices() {
  Pieces pieces;
  pieces.features = kLinkMaps;
  pieces.to_device = pieces.from_device = pieces.reaches = true;
  pieces.length = 1u << 20;
  pieces.shared_from = 8u << 20;
  return pieces;
}

TEST(PieceRoutes, OfDevicesThatReachEachOther) {
  Pieces pieces = between_devices();
  EXPECT_EQ(piece_route(pieces), PieceRoute::in_device);
  EXPECT_EQ(piece_route(pieces, bit_of(PieceRoute::in_device)), PieceRoute::in_host);
  pieces.reaches = false;
  EXPECT_EQ(piece_route(pieces), PieceRoute::in_host);
}

TEST(PieceRoutes, WhileMemoryIsImportedNeedNothingMore) {
  const Pieces pieces = between_devices();
  EXPECT_EQ(piece_route_meanwhile(pieces, true), PieceRoute::in_host);
  EXPECT_EQ(piece_route_meanwhile(pieces, false), PieceRoute::in_frames);
}

TEST(PieceRoutes, WithHostMemoryAtOneEnd) {
  for (bool Pieces::*end : {&Pieces::to_device, &Pieces::from_device}) {
    Pieces pieces = between_devices();
    pieces.*end = false;
    EXPECT_EQ(piece_route(pieces), PieceRoute::in_host);
  }
}

TEST(PieceRoutes, WithHostMemoryAtBothEndsTakeFrames) {
  Pieces pieces = between_devices();
  pieces.to_device = pieces.from_device = pieces.reaches = false;
  EXPECT_EQ(piece_route(pieces), PieceRoute::in_frames);
}

TEST(PieceRoutes, OfTwoProcessesThatShareADevice) {
  Pieces pieces = between_devices();
  pieces.same_device = true;
  EXPECT_EQ(piece_route(pieces), PieceRoute::in_host) << "a copy within the device waits for its process's turn";
  pieces.managed = true;
  EXPECT_EQ(piece_route(pieces), PieceRoute::in_device) << "every copy of managed memory waits";
  pieces.managed = false;
  pieces.length = pieces.shared_from;
  EXPECT_EQ(piece_route(pieces), PieceRoute::in_device);
}

TEST(PieceRoutes, FewBytesAndLinksThatShareNothingTakeFrames) {
  Pieces pieces = between_devices();
  pieces.length = kNamedFrom - 1;
  EXPECT_EQ(piece_route(pieces), PieceRoute::in_frames);
  pieces = between_devices();
  pieces.features = 0;
  EXPECT_EQ(piece_route(pieces), PieceRoute::in_frames);
  pieces.features = kLinkMaps | kLinkSameProcess;
  EXPECT_EQ(piece_route(pieces), PieceRoute::in_frames);
  pieces = between_devices();
  pieces.imports = false;
  EXPECT_EQ(piece_route(pieces), PieceRoute::in_frames);
  pieces = between_devices();
  pieces.forced = Way::push;
  EXPECT_EQ(piece_route(pieces), PieceRoute::in_frames);
  pieces.forced = Way::staging;
  EXPECT_EQ(piece_route(pieces), PieceRoute::in_device);
}

TEST(PieceRoutes, OfPutsIntoOnePieceOfHostMemoryThatIsOutOfReach) {
  Pieces pieces = between_devices();
  pieces.put = true;
  pieces.to_device = false;
  EXPECT_EQ(piece_route(pieces), PieceRoute::in_host);
  EXPECT_EQ(piece_route(pieces, bit_of(PieceRoute::in_host)), PieceRoute::in_frames);
  for (bool Pieces::*otherwise : {&Pieces::to_device, &Pieces::strided, &Pieces::reached}) {
    Pieces other = pieces;
    other.*otherwise = true;
    EXPECT_EQ(piece_route(other), PieceRoute::in_frames);
  }
}

}  // namespace
}  // namespace thalweg::impl::test
