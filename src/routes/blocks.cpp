// SPDX-License-Identifier: Apache-2.0
#include "routes/blocks.hpp"

namespace thalweg::impl {
namespace {

constexpr char kFenced[] = "operations before a fence still travel as frames";
constexpr char kForced[] = "another way is forced (THALWEG_WAY)";
constexpr char kNoDevice[] = "there is no memory of a device at either end";

Way by_device(const Blocks& blocks) { return blocks.get ? Way::pull : Way::push; }
Way by_host(const Blocks& blocks) { return blocks.mapped ? Way::mapped : Way::kernel; }

const char* why_not_device(const Blocks& blocks) {
  if (!asks_devices(blocks)) return kNoDevice;
  if (!allowed(blocks.forced, by_device(blocks))) return kForced;
  if (!blocks.device_there) return "the peer's blocks are host memory";
  if (blocks.mixed) return "some of the peer's blocks are host memory: prepare them apart";
  return blocks.why_not_reached;
}

/// Null: possible.
const char* why_not(const Blocks& blocks, BlocksRoute route) {
  const bool local = blocks.device_here || blocks.pinned_here;
  switch (route) {
    case BlocksRoute::device:
      if (const char* const why = why_not_device(blocks); why != nullptr) return why;
      return local ? nullptr : "the local blocks are pageable memory, which no kernel reaches";
    case BlocksRoute::window:
      if (const char* const why = why_not_device(blocks); why != nullptr) return why;
      return local ? "kernels reach both sides" : nullptr;
    case BlocksRoute::loads:
      if (blocks.device_there) return "the peer's blocks are memory of a device";
      if (!blocks.device_here && !allowed(blocks.forced, by_host(blocks))) return kForced;
      return blocks.fenced ? kFenced : blocks.why_not_direct;
    default:
      return nullptr;
  }
}

constexpr BlocksRoute route_at(size_t i) { return static_cast<BlocksRoute>(i); }

}  // namespace

BlocksRoute blocks_route(const Blocks& blocks, uint32_t failed) {
  for (size_t i = 0; i < kBlocksRoutes; ++i) {
    if ((failed & bit_of(route_at(i))) == 0 && why_not(blocks, route_at(i)) == nullptr) return route_at(i);
  }
  return BlocksRoute::frames;
}

Way way_of(const Blocks& blocks, BlocksRoute route) {
  switch (route) {
    case BlocksRoute::device:
    case BlocksRoute::window:
      return by_device(blocks);
    case BlocksRoute::loads:
      return blocks.device_here ? Way::staging : by_host(blocks);
    default:
      return asks_devices(blocks) ? Way::staging : Way::frames;
  }
}

std::array<Route, kBlocksRoutes> blocks_routes(const Blocks& blocks, const LinkCosts& costs, double device_ns,
                                               double staged_ns) {
  constexpr double kTarget = 2000;  // as of other accesses
  const double direct = blocks.mapped ? bytes_ns(costs.mapped, costs.mapped_large, blocks.length)
                                      : 2 * costs.kernel_fixed + bytes_ns(costs.kernel, costs.kernel_large, blocks.length);
  const double framed = kTarget + costs.frame + bytes_ns(costs.copy, costs.copy_large, blocks.length);
  std::array<Route, kBlocksRoutes> lines = {{
      {"kernels of a device", device_ns, nullptr, "between the blocks themselves", false},
      {"window", staged_ns, nullptr, "by a device of this process, through pinned memory here", false},
      {blocks.mapped ? "direct copies" : "kernel copies", blocks.device_here ? staged_ns : direct, nullptr,
       blocks.device_here ? "through pinned memory here" : "needs no CPU of the target", false},
      {"frames", asks_devices(blocks) ? staged_ns : framed, nullptr, "applied by the target's progress", false},
  }};
  const BlocksRoute chosen = blocks_route(blocks);
  for (size_t i = 0; i < kBlocksRoutes; ++i) {
    lines[i].why_not = why_not(blocks, route_at(i));
    lines[i].chosen = route_at(i) == chosen;
  }
  Route& frames = lines[static_cast<size_t>(BlocksRoute::frames)];
  if (!frames.chosen) frames.note = "needs the target's progress; the chosen one does not";
  return lines;
}

}  // namespace thalweg::impl
