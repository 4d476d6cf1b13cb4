// SPDX-License-Identifier: Apache-2.0
// The ways of prepared steps and windows: for each runner and memory the one that is taken, and why the others are not.
#include "routes/prepared.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "routes/peer_places.hpp"
#include "transports/transport.hpp"

namespace thalweg::impl::test {
namespace {

constexpr uint32_t kShm = kLinkMaps | kLinkSingleCopy;
constexpr uint64_t kSegment = 17;
const Uuid kDevice{'d', 1};

Place own(MemoryKind kind) {
  Place place;
  place.kind = kind;
  place.reach = reach_of(kind);
  place.atomics = by_cpu(kind) ? AtomicDomain::cpu : AtomicDomain::device;
  if (by_devices(kind)) place.device = kDevice;
  return place;
}

Prepared mine(bool by_device, MemoryKind kind) {
  Prepared memory;
  memory.by_device = by_device;
  memory.mine = true;
  memory.place = own(kind);
  memory.carriable = true;
  return memory;
}

Prepared peers(bool by_device, MemoryKind kind, uint64_t segment = kSegment, uint32_t features = kShm) {
  Prepared memory;
  memory.by_device = by_device;
  memory.mine = (features & kLinkSameProcess) != 0;
  memory.place = peer_place(kind, kDevice, segment, true, features);
  memory.carriable = true;
  return memory;
}

bool says(const Prepared& memory, const char* part) { return std::strstr(why_not_reached(memory), part) != nullptr; }

TEST(PeerPlaces, SayWhatReachesThem) {
  const auto reach = [](MemoryKind kind, uint64_t segment, bool copies, uint32_t features) {
    return peer_place(kind, kDevice, segment, copies, features).reach;
  };
  EXPECT_EQ(reach(MemoryKind::host, kSegment, true, kShm), kByPort | kByPid | kPinnable);
  EXPECT_EQ(reach(MemoryKind::host, 0, true, kShm), uint32_t{kByPid});
  EXPECT_EQ(reach(MemoryKind::host, 0, false, kShm), 0u);
  EXPECT_EQ(reach(MemoryKind::host, kSegment, true, 0), 0u);
  EXPECT_EQ(reach(MemoryKind::device, kSegment, true, kShm), uint32_t{kByPort}) << "the kernel does not copy device memory";
  EXPECT_EQ(reach(MemoryKind::pool, 0, true, kShm), 0u);
  EXPECT_EQ(reach(MemoryKind::host, 0, true, kLinkSameProcess), kByCpu | kPinnable);
  EXPECT_EQ(reach(MemoryKind::managed, 0, true, kLinkSameProcess), reach_of(MemoryKind::managed));
  KeyBody key{};
  key.kind = static_cast<uint8_t>(MemoryKind::vmm);
  std::memcpy(key.device_uuid, kDevice.data(), kDevice.size());
  key.base = 4096;
  key.length = 77;
  key.segment = kSegment;
  const Place place = peer_place(key, kShm);
  EXPECT_EQ(place.device, kDevice);
  EXPECT_EQ(place.base, 4096u);
  EXPECT_EQ(place.length, 77u);
  EXPECT_EQ(place.atomics, AtomicDomain::device);
  EXPECT_TRUE(place.on_device());
  EXPECT_NE(place.exports, ExportForm::none);
}

TEST(PreparedRoutes, OfTheHost) {
  EXPECT_EQ(prepared_route(mine(false, MemoryKind::host)), PreparedRoute::own);
  EXPECT_EQ(prepared_route(mine(false, MemoryKind::pinned)), PreparedRoute::own);
  EXPECT_EQ(prepared_route(mine(false, MemoryKind::managed)), PreparedRoute::own) << "the CPU may touch it";
  EXPECT_EQ(prepared_route(mine(false, MemoryKind::device)), PreparedRoute::carried);
  EXPECT_EQ(prepared_route(peers(false, MemoryKind::host)), PreparedRoute::mapped);
  EXPECT_EQ(prepared_route(peers(false, MemoryKind::host, 0)), PreparedRoute::carried);
  EXPECT_EQ(prepared_route(peers(false, MemoryKind::host, kSegment, 0)), PreparedRoute::carried);
  EXPECT_TRUE(says(peers(false, MemoryKind::host, 0), "tw_memory_allocate"));
  EXPECT_EQ(prepared_route(peers(false, MemoryKind::device)), PreparedRoute::carried);
  EXPECT_TRUE(says(peers(false, MemoryKind::device), "a queue of that device"));
  EXPECT_EQ(prepared_route(peers(false, MemoryKind::host, 0, kLinkSameProcess)), PreparedRoute::own);
  EXPECT_EQ(prepared_route(peers(false, MemoryKind::managed, 0, kLinkSameProcess)), PreparedRoute::own);
  EXPECT_EQ(prepared_route(peers(false, MemoryKind::managed, 0)), PreparedRoute::carried);
}

TEST(PreparedRoutes, OfADevice) {
  for (const MemoryKind kind : {MemoryKind::pinned, MemoryKind::managed, MemoryKind::device, MemoryKind::pool})
    EXPECT_EQ(prepared_route(mine(true, kind)), PreparedRoute::own) << static_cast<int>(kind);
  EXPECT_EQ(prepared_route(mine(true, MemoryKind::host)), PreparedRoute::carried);
  EXPECT_TRUE(says(mine(true, MemoryKind::host), "pageable"));
  Prepared library = mine(true, MemoryKind::host);
  library.place.reach |= kPinnable;
  EXPECT_EQ(prepared_route(library), PreparedRoute::pinned);
  library.waits = true;
  EXPECT_EQ(prepared_route(library), PreparedRoute::carried) << "no device polls host memory that nobody has made for that";
  EXPECT_EQ(prepared_route(peers(true, MemoryKind::host)), PreparedRoute::pinned);
  EXPECT_EQ(prepared_route(peers(true, MemoryKind::host, 0)), PreparedRoute::carried);
  EXPECT_EQ(prepared_route(peers(true, MemoryKind::host, kSegment, 0)), PreparedRoute::carried);
  EXPECT_TRUE(says(peers(true, MemoryKind::host, kSegment, 0), "machine"));
  EXPECT_EQ(prepared_route(peers(true, MemoryKind::host, 0, kLinkSameProcess)), PreparedRoute::pinned);
  EXPECT_EQ(prepared_route(peers(true, MemoryKind::device)), PreparedRoute::imported);
  EXPECT_EQ(prepared_route(peers(true, MemoryKind::pool, 0)), PreparedRoute::carried);
  EXPECT_TRUE(says(peers(true, MemoryKind::pool, 0), "not shared"));
  Prepared far = peers(true, MemoryKind::device);
  far.access = false;
  EXPECT_EQ(prepared_route(far), PreparedRoute::carried);
  EXPECT_TRUE(says(far, "peer access"));
}

TEST(PreparedRoutes, OfWordsThatAreChanged) {
  for (const bool by_device : {false, true}) {
    Prepared host = peers(by_device, MemoryKind::host), device = peers(by_device, MemoryKind::device);
    Prepared managed = mine(by_device, MemoryKind::managed);
    host.changes = device.changes = managed.changes = true;
    EXPECT_EQ(prepared_route(host), by_device ? PreparedRoute::carried : PreparedRoute::mapped);
    EXPECT_EQ(prepared_route(device), PreparedRoute::carried) << "a device without atomics there";
    device.atomics = managed.atomics = true;
    EXPECT_EQ(prepared_route(device), by_device ? PreparedRoute::imported : PreparedRoute::carried);
    EXPECT_EQ(prepared_route(managed), by_device ? PreparedRoute::own : PreparedRoute::carried);
  }
  Prepared added = peers(true, MemoryKind::host);
  added.changes = true;
  EXPECT_TRUE(says(added, "no atomics on host memory"));
}

TEST(PreparedRoutes, OfWordsThatAreWaitedForAreNeverInManagedMemory) {
  for (const bool by_device : {false, true}) {
    Prepared word = mine(by_device, MemoryKind::managed);
    word.carriable = false;
    EXPECT_EQ(prepared_route(word), PreparedRoute::own);
    word.waits = true;
    EXPECT_EQ(prepared_route(word), PreparedRoute::none);
    EXPECT_TRUE(says(word, "managed memory"));
  }
}

TEST(PreparedRoutes, WhatFailedIsNotTakenAgain) {
  Prepared memory = peers(true, MemoryKind::host);
  EXPECT_EQ(prepared_route(memory, bit_of(PreparedRoute::pinned)), PreparedRoute::carried);
  memory.carriable = false;
  EXPECT_EQ(prepared_route(memory, bit_of(PreparedRoute::pinned)), PreparedRoute::none);
}

TEST(PreparedRoutes, OfShortRowsTheHostPacks) {
  Prepared rows = mine(false, MemoryKind::host);
  rows.row = kCacheLine - 1;
  EXPECT_EQ(prepared_route(rows), PreparedRoute::carried);
  EXPECT_EQ(prepared_route(rows, bit_of(PreparedRoute::carried)), PreparedRoute::own);
  EXPECT_TRUE(says(rows, "a message packs them"));
  const std::string table = prepared_table(rows, 0, "");
  EXPECT_NE(table.find("at its own address: another way needs less"), std::string::npos) << table;
  rows.mapped = true;
  EXPECT_EQ(prepared_route(rows), PreparedRoute::own) << "the channel is used so";
  rows.mapped = false;
  rows.row = kCacheLine;
  EXPECT_EQ(prepared_route(rows), PreparedRoute::own);
  rows.row = 8;
  EXPECT_EQ(prepared_route(rows), PreparedRoute::carried);
  rows.carriable = false;
  EXPECT_EQ(prepared_route(rows), PreparedRoute::own);
  Prepared of_device = mine(true, MemoryKind::device);
  of_device.row = 8;
  EXPECT_EQ(prepared_route(of_device), PreparedRoute::own) << "kernels store rows side by side";
}

TEST(PreparedRoutes, GoWithWhatIsCarried) {
  for (const bool by_device : {false, true}) {
    Prepared memory = mine(by_device, MemoryKind::pinned);
    memory.along = true;
    EXPECT_EQ(prepared_route(memory), PreparedRoute::carried);
    EXPECT_TRUE(says(memory, "another memory of the step"));
  }
}

TEST(PreparedRoutes, TheTableNamesEachOnceAndStarsTheChosen) {
  const Prepared memory = peers(true, MemoryKind::host);
  const std::string first = prepared_table(memory, 0, "");
  EXPECT_EQ(std::count(first.begin(), first.end(), '\n'), static_cast<std::ptrdiff_t>(kPreparedRoutes));
  EXPECT_EQ(std::count(first.begin(), first.end(), '*'), 1);
  EXPECT_NE(first.find("* pinned here"), std::string::npos) << first;
  const std::string then = prepared_table(memory, bit_of(PreparedRoute::pinned), "out of luck");
  EXPECT_NE(then.find("* carried"), std::string::npos) << then;
  EXPECT_NE(then.find("pinned here for the device: impossible: out of luck"), std::string::npos) << then;
}

TEST(PreparedRoutes, EndsOfAChannelAreOfOneSort) {
  for (const bool here : {false, true}) {
    EXPECT_EQ(why_not_paired(here, here), nullptr);
    EXPECT_NE(why_not_paired(here, !here), nullptr);
  }
}

TEST(PreparedRoutes, AChannelOfShortRowsIsCarriedUnlessAKernelIsAtItsOtherEnd) {
  for (const bool kernel : {false, true}) {
    EXPECT_EQ(why_not_mapped_channel(false, kernel), nullptr);
    EXPECT_EQ(why_not_mapped_channel(true, kernel) == nullptr, kernel);
  }
  EXPECT_NE(std::strstr(why_not_mapped_channel(true, false), "a message packs them"), nullptr);
}

TEST(PreparedRoutes, StepsAreCountedByWhoMovesThem) {
  EXPECT_EQ(way_of_step(false, false), Way::mapped);
  EXPECT_EQ(way_of_step(false, true), Way::mapped);
  EXPECT_EQ(way_of_step(true, false), Way::push);
  EXPECT_EQ(way_of_step(true, true), Way::pull);
}

/// The bus and the link one after the other, beside an engine's start.
TEST(Prepared, ShortBytesThatTheHostCarriesAreBounced) {
  const CopyCosts engine{8000, 0.02};
  EXPECT_TRUE(bounced(1, engine, 0.06));
  EXPECT_TRUE(bounced(100'000, engine, 0.06));
  EXPECT_FALSE(bounced(100'001, engine, 0.06));
  EXPECT_TRUE(bounced(400'000, engine, 0));
  EXPECT_FALSE(bounced(1, {0, 0.02}, 0.06));
}

}  // namespace
}  // namespace thalweg::impl::test
