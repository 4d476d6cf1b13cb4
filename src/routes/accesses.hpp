// SPDX-License-Identifier: Apache-2.0
// The ways of a put, get, atomic or signal: one table, from which its initiator takes the way, and explain its text.
#pragma once
#include <array>
#include <cstdint>

#include "routes/messages.hpp"

namespace thalweg::impl {

enum class AccessVerb : uint8_t { put, get, atomic, signal };

/// What is known of it at its initiator.
struct Access {
  AccessVerb verb = AccessVerb::put;
  uint64_t length = 0;
  Way forced = Way::any;                 // of puts and gets; others have no choice
  bool fenced = false;                   // what it comes behind travels as frames (a fence, what a signal covers), so this does
  bool notifies = false;                 // a signal: the peer is notified with it
  const char* why_not_mapped = nullptr;  // null: the target is mapped here, or of this process
  const char* why_not_kernel = nullptr;  // null: the kernel copies between the two processes
  // Memory of a device at one end at least; of a signal never.
  bool devices = false;
  bool local = false;                     // the initiator's buffer is one that its device copies: its own memory, or pinned
  bool staged = false;                    // the initiator's buffer is memory of a device
  const char* why_not_reached = nullptr;  // null: a device of this process reaches the target
  // Said only.
  bool persistent = false;              // by that device's persistent kernel
  double device_ns = 0, staged_ns = 0;  // predicted: by that device; through pinned memory here
};

enum class AccessRoute : uint8_t {
  mapped,  // by this CPU
  kernel,  // by the kernel's copy between the processes
  direct,  // by a device of this process
  window,  // by that device, through pinned memory here
  relay,   // by that device into pinned memory here (or from it), and on as an access of host memory
  frames,  // applied by the target's progress
  count_
};
inline constexpr size_t kAccessRoutes = static_cast<size_t>(AccessRoute::count_);

/// Is a peer's memory mapped at all, for operations of any sort?
constexpr bool may_map(Way forced) { return allowed(forced, Way::mapped); }

constexpr uint32_t bit_of(AccessRoute route) { return 1u << static_cast<unsigned>(route); }

/// The best one that was not tried in vain (`failed`: bits). Whoever needs nothing of the target comes before frames, whatever it costs
/// (docs/decisions/0004); a mapping comes before the kernel.
AccessRoute access_route(const Access& access, uint32_t failed = 0);
/// Does a device of this process reach the target itself by this route?
constexpr bool asks_device(AccessRoute route) { return route == AccessRoute::direct || route == AccessRoute::window; }
/// As users see it.
Way way_of(const Access& access, AccessRoute route);
/// The lines of explain. Those that the verb does not have are left out: no name.
std::array<Route, kAccessRoutes> access_routes(const Access& access, const LinkCosts& costs);

}  // namespace thalweg::impl
