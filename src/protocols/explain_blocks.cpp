// SPDX-License-Identifier: Apache-2.0
// Explains the ways of block transfers, from the table that chooses them.
#include "devices/registry.hpp"
#include "protocols/blocks.hpp"
#include "protocols/explain.hpp"
#include "protocols/one_sided.hpp"
#include "protocols/operation_routes.hpp"

namespace thalweg::impl {
namespace {

/// One region's blocks, as far as is known without trying.
const char* say_table(std::string& text, const OpDesc& given, RemoteRegion& region, SaidWay* way) {
  OpDesc op = given;
  op.remote = &region;
  op.verb = given.verb == Verb::get_blocks ? Verb::get : Verb::put;
  const Access device = said_device_access_of(op);
  Blocks facts;
  facts.get = op.verb == Verb::get;
  facts.length = op.length;
  facts.forced = op.peer->engine->options().way;
  facts.device_here = (op.flags & kOpDevice) != 0;
  facts.pinned_here = !facts.device_here && op.address != nullptr && is_pinned(op.address);
  facts.why_not_reached = device.why_not_reached;
  const bool local = facts.device_here || facts.pinned_here;  // else engines copy, out of pinned memory or into it
  if (local && facts.why_not_reached == nullptr) facts.why_not_reached = why_no_kernels(op);
  facts.mapped = true;
  add_region(facts, region, (op.flags & kOpDevice) != 0 ? op.device : nullptr,
             region.mapped != nullptr || known_here(region) || will_map(region));
  facts.fenced = behind_fence(op) && !asks_devices(facts);  // devices wait for what is before a fence
  *way = said_way(facts);
  const char* chosen = "none";
  for (const Route& line : blocks_routes(facts, costs_of(*op.peer), device.device_ns, device.staged_ns)) {
    say_route(text, line);
    if (line.chosen) chosen = line.name;
  }
  return chosen;
}

}  // namespace

const char* explain_blocks(std::string& text, const OpDesc& op, SaidWay* way) {
  if (op.remote != nullptr) return say_table(text, op, *op.remote, way);
  const char* chosen = "none";
  SaidWay ignored;
  for (const bool library : {false, true}) {
    RemoteRegion region;
    any_target(op, library, &region);
    text += library ? "blocks of tw_memory_allocate:\n" : "blocks registered by tw_memory_register:\n";
    chosen = say_table(text, op, region, &ignored);
    if (!library) text += std::string("  so: ") + chosen + "\n";
  }
  return chosen;
}

}  // namespace thalweg::impl
