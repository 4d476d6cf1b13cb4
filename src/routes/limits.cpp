// SPDX-License-Identifier: Apache-2.0
#include "routes/limits.hpp"

#include <sched.h>

#include <algorithm>
#include <bit>

#include "transports/transport.hpp"

namespace thalweg::impl {
namespace {

// Rendezvous begins where its extra round trip takes less than a twenty-fourth of the transfer, and both
// ends copy from where that exchange takes less than a quarter of what it saves. Whole powers of two, so that noise in
// measured costs changes little; within bounds, because an eager message takes the receiver's memory unasked and a long one
// keeps others waiting.
constexpr double kAskShare = 24, kHalvesShare = 8;
constexpr uint64_t kEagerLeast = 64u << 10, kEagerMost = 256u << 10;
constexpr uint64_t kHalvesLeast = 64u << 10, kHalvesMost = 1u << 20;
constexpr uint32_t kReferenceFrom = 8u << 10;  // below, one copy is cheaper than a second piece for a system call
constexpr uint32_t kSmallest = 512;            // of a fragment: prefixes must fit
// Ways are compared at powers of two between these. What is longer goes as the last one.
constexpr uint64_t kCompareFrom = 16u << 10, kCompareTo = 256u << 20;
// Of the time of frames: above that, a noisy measurement may not move messages to a system call for each page. Up to kLarge
// less, because the kernel's copy is measured within one address space, where it measures better than between two (a Xeon:
// 256 KiB 0.8 of the time of frames, and 1.28 between processes).
constexpr double kClearly = 0.85, kClearlyShort = 0.75;

/// The length of which `share` round trips take as long as the bytes do, as a power of two within bounds.
uint64_t length_worth(double share, double frame, double ns_per_byte, uint64_t least, uint64_t most) {
  const double length = share * 2 * frame / ns_per_byte;
  if (!(length > static_cast<double>(least))) return least;
  return length >= static_cast<double>(most) ? most : std::bit_floor(static_cast<uint64_t>(length));
}

/// From where on the kernel's copy stays cheaper than data frames.
uint64_t kernel_wins_from(const LinkCosts& costs, bool by_reference) {
  uint64_t from = kNever;
  for (uint64_t length = kCompareTo; length >= kCompareFrom; length /= 2) {
    const double share = length > kLarge ? kClearly : kClearlyShort;
    if (kernel_ns(costs, length) >= share * frames_ns(costs, by_reference, length)) break;
    from = length;
  }
  return from;
}

double persistent_fixed(const DeviceCosts& costs, unsigned blocks) {
  return costs.persistent.fixed + costs.persistent_block * (blocks - 1);
}
double persistent_byte(const DeviceCosts& costs, unsigned blocks) { return costs.persistent.byte * (blocks + 2) / 3; }

/// Only one way competes with frames, wherever it is possible.
void force(Limits& limits, const Link& link, Way forced) {
  if (forced == Way::any) return;
  limits.eager = forced == Way::eager ? std::max<uint64_t>(kEagerMost, limits.single) : limits.single;
  limits.mapped_from = forced == Way::mapped && (link.features & kLinkMaps) != 0 ? 0 : kNever;
  limits.kernel_from = forced == Way::kernel && (link.features & kLinkSingleCopy) != 0 && !same_process(link) ? 0 : kNever;
}

}  // namespace

double frames_ns(const LinkCosts& costs, bool by_reference, uint64_t length) {
  const double bytes =
      by_reference ? bytes_ns(costs.reference, costs.reference_large, length) : bytes_ns(costs.copy, costs.copy_large, length);
  return 3 * costs.frame + bytes;
}
double mapped_ns(const LinkCosts& costs, uint64_t length) {
  return 3 * costs.frame + bytes_ns(costs.mapped, costs.mapped_large, length);
}
double kernel_ns(const LinkCosts& costs, uint64_t length) {
  return 3 * costs.frame + costs.kernel_fixed + bytes_ns(costs.kernel, costs.kernel_large, length);
}

const LinkCosts& costs_of(const CostTable& table, const Link& link, CpuDistance distance) {
  if ((link.features & kLinkByReference) != 0) return table.tcp;
  return same_process(link) ? table.self : table.shm_at(distance);
}

CpuDistance distance_to(const CostTable& table, const Link& link) {
  if (!table.distances() || same_process(link) || (link.features & kLinkByReference) != 0) return CpuDistance::count_;
  cpu_set_t here, there;
  CpuDistance distance = CpuDistance::count_;
  if (link.peer.pid <= 0 || sched_getaffinity(0, sizeof here, &here) != 0) return distance;
  if (sched_getaffinity(link.peer.pid, sizeof there, &there) != 0) return distance;
  (void)CpuTopology::current().usual(here, there, &distance);
  return distance;
}

Limits limits_of(const Link& link, const LinkCosts& costs, Way forced) {
  Limits limits;
  limits.copy = link.copy_max;
  limits.fragment = std::clamp(link.fragment, std::min(kSmallest, link.copy_max), link.copy_max);
  limits.single = link.copy_max;
  limits.reference = UINT32_MAX;
  limits.reference_fragment = limits.fragment;
  const bool reference = (link.features & kLinkByReference) != 0 && link.reference_max >= kReferenceFrom;
  if (reference) {
    limits.reference = std::min(kReferenceFrom, link.copy_max + 1);  // what cannot be copied must go by reference
    limits.reference_fragment = std::clamp(link.fragment, limits.reference, link.reference_max);
    limits.single = std::max(limits.single, limits.reference_fragment);
  }
  const double per_byte = reference ? costs.reference : costs.copy;
  limits.eager = std::max<uint64_t>(length_worth(kAskShare, costs.frame, per_byte, kEagerLeast, kEagerMost), limits.single);
  limits.halves = length_worth(kHalvesShare, costs.frame, costs.mapped, kHalvesLeast, kHalvesMost);
  const bool same = same_process(link);
  // Through the ring both ends copy all of it, a mapped source is copied once: by one end, or a half by each. Where the ring
  // is still faster per byte, only rendezvous payloads are copied from there.
  if ((link.features & kLinkMaps) != 0 && costs.mapped < 2 * costs.copy) {
    limits.mapped_from = costs.mapped <= costs.copy ? 0 : limits.eager + 1;
  }
  if (!same && (link.features & kLinkSingleCopy) != 0) limits.kernel_from = kernel_wins_from(costs, reference);
  // The same process: one direct copy beats two through the link as soon as the handshake is paid.
  if (same && !reference) limits.eager = limits.single;
  if (limits.kernel_from < limits.eager) limits.eager = std::max<uint64_t>(limits.kernel_from, limits.single);
  force(limits, link, forced);
  return limits;
}

double persistent_ns(const DeviceCosts& costs, unsigned blocks, uint64_t bytes) {
  return persistent_fixed(costs, blocks) + persistent_byte(costs, blocks) * static_cast<double>(bytes);
}

uint64_t persistent_most(const DeviceCosts& costs, DeviceLink link, unsigned blocks) {
  constexpr double kMost = 1u << 20;  // beyond it others would wait for too long
  const CopyCosts& engine = costs.write(link);
  const double gain = engine.fixed - persistent_fixed(costs, blocks), more = persistent_byte(costs, blocks) - engine.byte;
  return gain <= 0 ? 0 : static_cast<uint64_t>(more <= 0 ? kMost : std::min(gain / more, kMost));
}

}  // namespace thalweg::impl
