// SPDX-License-Identifier: Apache-2.0
// The ways of a transfer of blocks chosen by index: one table, from which its initiator takes the way of all of it, and
// explain its text.
#pragma once
#include <array>
#include <cstdint>

#include "routes/accesses.hpp"

namespace thalweg::impl {

/// What is known of one, of all its blocks together.
struct Blocks {
  bool get = false;
  uint64_t length = 0;
  Way forced = Way::any;
  // The local blocks.
  bool device_here = false;  // memory of a device
  bool pinned_here = false;  // host memory that devices reach
  // The peer's.
  bool device_there = false;  // some of them at least are memory of a device
  bool mixed = false;         // ... and others are host memory
  const char* why_not_reached =
      nullptr;          // null: one device of this process reaches all of them by its kernels, or that was not tried
  bool mapped = false;  // this CPU reaches all of them; else some by the kernel's copy
  const char* why_not_direct = nullptr;  // null: this CPU does, or the kernel copies them
  bool fenced = false;                   // what is before a fence travels as frames
};

enum class BlocksRoute : uint8_t {
  device,  // kernels of a device of this process, between the blocks themselves
  window,  // turns of this CPU into pinned memory (or out of it), and that device from there
  loads,   // turns of this CPU, or of the kernel's copy; of local memory of a device through pinned memory
  frames,  // the target's progress
  count_
};
inline constexpr size_t kBlocksRoutes = static_cast<size_t>(BlocksRoute::count_);
constexpr uint32_t bit_of(BlocksRoute route) { return 1u << static_cast<unsigned>(route); }

/// The best one that has not failed (`failed`: bits): ways that need nothing of the target come first, as of other
/// accesses.
BlocksRoute blocks_route(const Blocks& blocks, uint32_t failed = 0);
/// Does it touch memory of a device at either end? Then a device of this process is asked first.
constexpr bool asks_devices(const Blocks& blocks) { return blocks.device_here || blocks.device_there; }
/// Do kernels of a device of this process reach the peer's blocks by this route?
constexpr bool asks_device(BlocksRoute route) { return route == BlocksRoute::device || route == BlocksRoute::window; }
/// As users see it.
Way way_of(const Blocks& blocks, BlocksRoute route);
/// The lines of explain. `device_ns`: predicted, by the device; `staged_ns`: through pinned memory.
std::array<Route, kBlocksRoutes> blocks_routes(const Blocks& blocks, const LinkCosts& costs, double device_ns,
                                               double staged_ns);

}  // namespace thalweg::impl
