// SPDX-License-Identifier: Apache-2.0
// Breakpoints of a link from its costs, and the ways of messages that follow from them.
#include "routes/limits.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include "routes/device_messages.hpp"
#include "routes/messages.hpp"
#include "transports/transport.hpp"

namespace thalweg::impl::test {
namespace {

Link shm_link() {
  Link link;
  link.copy_max = 16896;
  link.fragment = 16384;
  link.features = kLinkMaps | kLinkSingleCopy;
  return link;
}

TEST(Limits, FollowFromCosts) {
  const Link link = shm_link();
  LinkCosts costs = CostTable().shm;
  const Limits usual = limits_of(link, costs);
  EXPECT_EQ(usual.eager, 64u << 10);
  EXPECT_EQ(usual.halves, 64u << 10);
  ASSERT_GT(costs.mapped, costs.copy);
  EXPECT_EQ(usual.mapped_from, usual.eager + 1);  // the ring is faster: only where rendezvous is needed anyway
  costs.mapped = costs.copy;
  EXPECT_EQ(limits_of(link, costs).mapped_from, 0u);
  EXPECT_EQ(usual.kernel_from, 2u << 20);
  costs.mapped = costs.copy * 3;
  EXPECT_EQ(limits_of(link, costs).mapped_from, kNever);
  costs.frame = 1;
  EXPECT_EQ(limits_of(link, costs).eager, 64u << 10);
  costs.frame = 1e8;
  EXPECT_EQ(limits_of(link, costs).eager, 256u << 10);
  EXPECT_EQ(limits_of(link, costs).halves, 1u << 20);
}

TEST(Limits, TheKernelCopiesFromWhereItStaysCheaper) {
  Link link = shm_link();
  LinkCosts costs = CostTable().shm;
  costs.kernel = costs.copy / 2;
  const uint64_t from = limits_of(link, costs).kernel_from;
  ASSERT_NE(from, kNever);
  EXPECT_LT(kernel_ns(costs, from), frames_ns(costs, false, from));
  EXPECT_GE(kernel_ns(costs, from / 2), 0.75 * frames_ns(costs, false, from / 2));
  EXPECT_LE(limits_of(link, costs).eager,
            std::max<uint64_t>(from, link.copy_max));  // nothing is sent unasked that it would take
  // Only beyond the caches: dearer up to kLarge, cheaper behind it.
  costs = CostTable().shm;
  costs.copy_large = 4 * costs.kernel;
  costs.kernel_large = costs.kernel;
  const Limits large = limits_of(link, costs);
  EXPECT_GT(large.kernel_from, kLarge);
  EXPECT_NE(large.kernel_from, kNever);
  EXPECT_EQ(large.eager, limits_of(link, CostTable().shm).eager);
  link.features = kLinkMaps;
  EXPECT_EQ(limits_of(link, costs).kernel_from, kNever);
}

TEST(Limits, AForcedWayIsTheOnlyOneBesideFrames) {
  const Link link = shm_link();
  const LinkCosts costs = CostTable().shm;
  Message message{link.features, 1u << 20, false, true, true};
  const auto route = [&](Way way) { return rts_route(limits_of(link, costs, way), message); };
  EXPECT_EQ(route(Way::any), MessageRoute::direct);
  EXPECT_EQ(route(Way::mapped), MessageRoute::direct);
  EXPECT_EQ(route(Way::kernel), MessageRoute::kernel);
  EXPECT_EQ(route(Way::frames), MessageRoute::frames);
  message.library = false;
  EXPECT_EQ(route(Way::mapped), MessageRoute::frames);  // impossible
  EXPECT_EQ(sending_route(limits_of(link, costs, Way::eager), {link.features, 200'000}), MessageRoute::segmented);
  EXPECT_EQ(sending_route(limits_of(link, costs, Way::frames), {link.features, 20'000}), MessageRoute::frames);
  for (uint8_t i = 0; i < static_cast<uint8_t>(Way::count_); ++i) {
    Way way = Way::any;
    EXPECT_TRUE(way_named(name_of(static_cast<Way>(i)), &way));
    EXPECT_EQ(way, static_cast<Way>(i));
  }
  Way way = Way::kernel;
  EXPECT_TRUE(way_named("", &way));
  EXPECT_EQ(way, Way::any);
  EXPECT_FALSE(way_named("magic", &way));
}

/// For each link, buffer and size: one route is chosen, it is possible, and it is what sender and receiver decide.
TEST(Messages, TheTableSaysWhatIsDone) {
  for (const uint32_t features :
       {uint32_t{kLinkMaps} | kLinkSingleCopy, uint32_t{kLinkMaps}, uint32_t{0}, uint32_t{kLinkSameProcess}}) {
    Link link = shm_link();
    link.features = features;
    for (const double kernel : {0.01, 0.3}) {
      LinkCosts costs = CostTable().shm;
      costs.kernel = kernel;
      const Limits limits = limits_of(link, costs);
      for (unsigned bits = 0; bits < 8; ++bits) {
        for (uint64_t length = 1; length <= 64u << 20; length = length * 3 + 1) {
          const Message message{features, length, (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0 && (bits & 2) != 0};
          MessageRoute route = sending_route(limits, message);
          if (route == MessageRoute::frames) route = rts_route(limits, message);
          const auto table = message_routes(limits, costs, message);
          for (size_t i = 0; i < table.size(); ++i) {
            EXPECT_EQ(table[i].chosen, i == static_cast<size_t>(route)) << length << " " << bits << " " << table[i].name;
            EXPECT_TRUE(!table[i].chosen || table[i].why_not == nullptr) << length << " " << bits << " " << table[i].name;
            EXPECT_GT(table[i].predicted_ns, 0);
          }
        }
      }
    }
  }
}

/// The name of a synchronous message's operation takes room in its frame.
TEST(Messages, SynchronousOnesThatJustFitAFrame) {
  const Link link = shm_link();
  const Limits limits = limits_of(link, CostTable().shm, Way::any);
  Message message{link.features, limits.copy, true};
  EXPECT_EQ(sending_route(limits, message), MessageRoute::frames);
  EXPECT_NE(message_routes(limits, CostTable().shm, message)[0].why_not, nullptr);
  message.length -= kSynchronousBytes;
  EXPECT_EQ(sending_route(limits, message), MessageRoute::single);
  message.affordable = false;
  EXPECT_EQ(sending_route(limits, message), MessageRoute::frames);
  EXPECT_NE(message_routes(limits, CostTable().shm, message)[0].why_not, nullptr);
}

TEST(Messages, BothEndsCopyWhereEachKnowsTheOthersBuffer) {
  const Link link = shm_link();
  const Limits limits = limits_of(link, CostTable().shm, Way::any);
  const uint64_t length = 2 * limits.halves + 4321;
  const auto part = [&](MessageRoute route, const ReceiveBuffer& into, uint32_t features = kLinkMaps) {
    return receivers_part(limits, features, route, length, into);
  };
  const uint64_t half = length / 2 / kSplit * kSplit;
  EXPECT_EQ(part(MessageRoute::direct, {true, true}), half);
  EXPECT_EQ(part(MessageRoute::direct, {true, false}), length);
  EXPECT_EQ(part(MessageRoute::kernel, {true, false}), half);
  EXPECT_EQ(part(MessageRoute::kernel, {false, false}), length);
  EXPECT_EQ(part(MessageRoute::direct, {true, true}, kLinkSameProcess), length);
  EXPECT_EQ(receivers_part(limits, kLinkMaps, MessageRoute::direct, limits.halves - 1, {true, true}), limits.halves - 1);
}

TEST(Messages, WhatWasTriedInVainIsNotChosenAgain) {
  const Link link = shm_link();
  const Limits limits = limits_of(link, CostTable().shm, Way::any);
  const Message message{link.features, 1u << 20, false, true, true};
  uint32_t failed = 1u << static_cast<unsigned>(MessageRoute::direct);
  EXPECT_EQ(rts_route(limits, message), MessageRoute::direct);
  EXPECT_EQ(rts_route(limits, message, failed), MessageRoute::frames);
}

DeviceMessage between(MemoryKind from, MemoryKind to) {
  DeviceMessage message;
  message.features = kLinkMaps;
  message.length = 1u << 20;
  message.eager = 128u << 10;
  message.from = {from, true, false, from <= MemoryKind::pinned};
  message.to = {to, to > MemoryKind::pinned, false, false};
  return message;
}

TEST(DeviceMessages, EachPairOfMemoriesHasItsWay) {
  EXPECT_EQ(device_route(between(MemoryKind::vmm, MemoryKind::vmm)), DeviceRoute::push);
  EXPECT_EQ(device_route(between(MemoryKind::vmm, MemoryKind::vmm), bit_of(DeviceRoute::push)), DeviceRoute::pull);
  EXPECT_EQ(device_route(between(MemoryKind::vmm, MemoryKind::pinned)), DeviceRoute::pull);
  EXPECT_EQ(device_route(between(MemoryKind::vmm, MemoryKind::host)), DeviceRoute::frames);
  EXPECT_EQ(device_route(between(MemoryKind::pinned, MemoryKind::vmm)), DeviceRoute::push);
  EXPECT_EQ(device_route(between(MemoryKind::host, MemoryKind::vmm)), DeviceRoute::copy);
  DeviceMessage message = between(MemoryKind::vmm, MemoryKind::vmm);
  message.same_device = true;
  EXPECT_EQ(device_route(message), DeviceRoute::pull);
  message.from.late = true;  // its stream is known to the sender alone
  EXPECT_EQ(device_route(message), DeviceRoute::push);
  message.to.named = false;
  EXPECT_EQ(device_route(message), DeviceRoute::frames);
  message = between(MemoryKind::pool, MemoryKind::pool);
  message.from.named = message.to.named = false;
  EXPECT_EQ(device_route(message), DeviceRoute::frames);
  message.to.bounced = true;  // a chunk of the receiver's takes it
  EXPECT_EQ(device_route(message), DeviceRoute::push_bounce);
  EXPECT_EQ(way_of(DeviceRoute::push_bounce), Way::staging);
  EXPECT_EQ(device_route(message, bit_of(DeviceRoute::push_bounce)), DeviceRoute::frames);
  message.from.named = true;
  EXPECT_EQ(device_route(message), DeviceRoute::pull);
  message.from.named = false;
  message.same_device = true;
  EXPECT_EQ(device_route(message), DeviceRoute::frames);
  message = between(MemoryKind::vmm, MemoryKind::host);
  message.to.library = message.to.named = true;
  EXPECT_EQ(device_route(message), DeviceRoute::push);
  EXPECT_EQ(device_route(message, bit_of(DeviceRoute::push)), DeviceRoute::frames);
  message.length = kNamedFrom - 1;
  EXPECT_EQ(device_route(message), DeviceRoute::frames);
  message = between(MemoryKind::host, MemoryKind::host);
  message.to.library = message.to.named = true;
  EXPECT_NE(device_route(message), DeviceRoute::push);
  message = between(MemoryKind::vmm, MemoryKind::vmm);
  message.features = 0;
  EXPECT_EQ(device_route(message), DeviceRoute::frames);
  message.features = kLinkSameProcess;
  EXPECT_EQ(device_route(message), DeviceRoute::in_process);
  message = between(MemoryKind::vmm, MemoryKind::vmm);
  for (const auto& [way, route] : {std::pair{Way::push, DeviceRoute::push}, std::pair{Way::pull, DeviceRoute::pull},
                                   std::pair{Way::staging, DeviceRoute::frames}}) {
    message.forced = way;
    EXPECT_EQ(device_route(message), route) << name_of(way);
  }
}

TEST(Distances, APairsCostsAreThoseOfItsDistance) {
  CostTable table;
  Link link;
  link.features = kLinkMaps;
  link.peer.pid = getpid();
  EXPECT_EQ(distance_to(table, link), CpuDistance::count_);  // no distance was measured: no query
  EXPECT_EQ(&costs_of(table, link, CpuDistance::far), &table.shm);
  table.shm_far = table.shm;
  table.shm_far.copy *= 2;
  EXPECT_EQ(&costs_of(table, link, CpuDistance::far), &table.shm_far);
  EXPECT_EQ(&costs_of(table, link, CpuDistance::node), &table.shm);
  EXPECT_EQ(&costs_of(table, link), &table.shm);
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  EXPECT_EQ(distance_to(table, link) == CpuDistance::count_, CPU_COUNT(&allowed) == 1);
  link.peer.pid = 0;  // not to be seen from here
  EXPECT_EQ(distance_to(table, link), CpuDistance::count_);
  link.peer.pid = getpid();
  link.features = kLinkSameProcess;
  EXPECT_EQ(distance_to(table, link), CpuDistance::count_);
  link.features = kLinkByReference;
  EXPECT_EQ(&costs_of(table, link, CpuDistance::far), &table.tcp);
}

}  // namespace
}  // namespace thalweg::impl::test
