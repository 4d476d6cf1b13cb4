// SPDX-License-Identifier: Apache-2.0
// The ways of operations with device memory, said aloud. A message's way is the receiver's choice, so there is a line for each
// kind of memory that may receive it.
#include <algorithm>
#include <cstdio>

#include "devices/registry.hpp"
#include "memory/registry.hpp"
#include "protocols/bounce.hpp"
#include "protocols/engine.hpp"
#include "protocols/explain.hpp"
#include "protocols/one_sided.hpp"
#include "protocols/reach_device.hpp"
#include "protocols/select.hpp"
#include "routes/device_table.hpp"

namespace thalweg::impl {
namespace {

/// What this operation's copies cost: of the local side's device, else of the target's, else of any.
struct Costs : DeviceCosts {
  DeviceLink link = DeviceLink::unknown;  // to the other end's device: of a message the nearest one, its receiver is not known
  double write_ns(uint64_t bytes) const { return write(link).ns(bytes); }
  double read_ns(uint64_t bytes) const { return read(link).ns(bytes); }
};

Device* device_of(const OpDesc& op) {
  if ((op.flags & kOpDevice) != 0) return op.device;
  if (op.remote != nullptr && of_device(*op.remote)) return device_of(*op.remote);
  BufferInfo info;
  return find_device(reinterpret_cast<uint64_t>(op.address), &info) == TW_OK ? info.device : nullptr;
}

Costs costs_of_copies(const OpDesc& op) {
  Costs costs;
  Device* const device = device_of(op);
  DeviceTable* const table = op.peer->engine->options().device_costs;
  if (device == nullptr) return costs;
  // Not measured for this: who asks may have a kernel that waits for the caller, and to measure takes memory.
  if (table != nullptr) static_cast<DeviceCosts&>(costs) = table->known(*device).costs;
  const bool known = op.remote != nullptr && of_device(*op.remote);
  costs.link = known ? device->peer(uuid_of(op.remote->key.device_uuid)).link : nearest_link(*device, costs);
  return costs;
}

/// Would the resident kernel of the local side's device copy it, while it runs?
bool by_resident(const OpDesc& op, const Costs& costs) {
  const unsigned blocks = op.peer->engine->options().resident.blocks;
  return blocks != 0 && (op.flags & kOpDevice) != 0 && op.layout == nullptr && op.remote_layout == nullptr &&
         op.length <= resident_most(costs, nearest_link(*op.device, costs), blocks);
}

/// One write by the local side's device.
double write_ns(const OpDesc& op, const Costs& costs) {
  if (by_resident(op, costs)) return resident_ns(costs, op.peer->engine->options().resident.blocks, op.length);
  return costs.write_ns(op.length);
}

void say(std::string& text, bool chosen, const char* name, double ns, const char* why_not, const char* note) {
  say_route(text, {name, ns, why_not, note, chosen});
}

/// Through pinned memory: into it, over the link, out of it, all at the same time.
double staged(const OpDesc& op, const Costs& copies) {
  const LinkCosts costs = link_costs(op);
  return copies.out.ns(op.length) + 3 * costs.frame + costs.copy * static_cast<double>(op.length);
}

/// The same through a bounce buffer that both processes reach, of host memory: no copy through the link.
bool named(const OpDesc& op) {
  const uint32_t features = link_features(op);
  return op.length >= op.peer->engine->options().bounces.from && (features & kLinkMaps) != 0 &&
         (features & kLinkSameProcess) == 0;
}
constexpr char kNamed[] = "through a bounce buffer that both processes reach";

double to_host(const OpDesc& op, const Costs& copies) {
  const LinkCosts costs = link_costs(op);
  if (!named(op)) return staged(op, copies);
  return copies.out.fixed + 3 * costs.frame + bytes_ns(costs.mapped, costs.mapped_large, op.length);
}

/// ... of device memory, from which the receiver's device copies.
double to_device_staged(const OpDesc& op, const Costs& copies) {
  if (!named(op)) return 2 * staged(op, copies);
  // Chunks: one is written while the one before it is taken.
  const uint64_t chunk = std::min(op.length, op.peer->engine->options().bounces.device);
  const double rest = static_cast<double>(op.length - chunk) * std::max(copies.write(copies.link).byte, copies.local.byte);
  return copies.write_ns(chunk) + copies.local.ns(chunk) + rest + 4 * link_costs(op).frame;
}

const char* message_ways(std::string& text, const OpDesc& op) {
  const Costs costs = costs_of_copies(op);
  const double asking = 3 * link_costs(op).frame, read = costs.read_ns(op.length) + asking;
  const bool maps = (link_features(op) & (kLinkMaps | kLinkSameProcess)) != 0;
  const char* const no_link = maps ? nullptr : "this link shares no device memory";
  const char* const not_shared = op.layout != nullptr ? "it is not one piece" : why_not_shared(op);
  const bool same_process = (link_features(op) & kLinkSameProcess) != 0;
  const DeviceRoute to_device = device_route(device_message(op, MemoryKind::vmm, true));
  const DeviceRoute to_pool = device_route(device_message(op, MemoryKind::pool, same_process));
  const DeviceRoute to_pinned = device_route(device_message(op, MemoryKind::pinned, false));
  DeviceMessage into_library = device_message(op, MemoryKind::host, true);
  into_library.to.library = true;
  const DeviceRoute to_library = device_route(into_library),
                    to_other = device_route(device_message(op, MemoryKind::host, false));
  const auto through = [](DeviceRoute route) { return way_of(route) == Way::staging; };
  const auto written = [](DeviceRoute route) { return route == DeviceRoute::push || route == DeviceRoute::in_process; };
  const char* const at_both = named(op) ? kNamed : "through pinned memory of both ends";
  const char* const at_one = named(op) ? kNamed : "through pinned memory here";
  text += "into memory of a device of the peer:\n";
  const char* const push = by_resident(op, costs) ? "push by this device, resident" : "push by this device";
  say(text, written(to_device), push, write_ns(op, costs) + asking, no_link, "written over the devices' link");
  say(text, to_device == DeviceRoute::pull, "pull by its device", read, not_shared,
      "where its memory cannot be shared or is strided");
  say(text, through(to_device), "staging", to_device_staged(op, costs), nullptr, at_both);
  text += "into its pool or managed memory:\n";
  say(text, written(to_pool), push, write_ns(op, costs) + asking, same_process ? nullptr : "this memory cannot be shared",
      "written over the devices' link");
  say(text, to_pool == DeviceRoute::pull, "pull by its device", read, not_shared, "read over the devices' link");
  say(text, through(to_pool), "staging", to_device_staged(op, costs), nullptr, at_both);
  text += "into its pinned memory:\n";
  const bool here = to_pinned == DeviceRoute::pull || written(to_pinned);
  say(text, here, "pull by this device", costs.out.ns(op.length) + asking, not_shared, "a queue of the peer");
  say(text, !here, "staging", to_host(op, costs), nullptr, at_one);
  const bool device = (op.flags & kOpDevice) != 0;
  const char* const relayed = device ? "staging" : "frames";
  text += "into its library memory:\n";
  say(text, written(to_library), "push by this device", costs.out.ns(op.length) + asking,
      written(to_library) ? nullptr : "small, late or not device memory, or this link shares none",
      "once it is mapped and pinned here");
  say(text, !written(to_library), relayed, to_host(op, costs), nullptr, at_one);
  text += "into its other host memory:\n";
  say(text, !written(to_other), relayed, to_host(op, costs), nullptr, at_one);
  return written(to_device) ? push : to_device == DeviceRoute::pull ? "pull by its device" : "staging";
}

/// Of a put, get or atomic.
const char* access_ways(std::string& text, const OpDesc& op, Way* way) {
  const char* chosen = "none";
  text += explain_device_target(op, device_access_of(op), way, &chosen);
  return chosen;
}

}  // namespace

Access device_access_of(const OpDesc& op) {
  const bool target = op.remote != nullptr && of_device(*op.remote), local = (op.flags & kOpDevice) != 0;
  Access access = access_of(op, false);
  access.fenced = false;  // devices wait for what is before a fence
  access.devices = true;
  access.staged = local;
  access.local = local || is_pinned(op.address);
  const Costs costs = costs_of_copies(op);
  access.resident = by_resident(op, costs);
  if (!target) {
    access.why_not_reached =
        op.remote != nullptr && local ? why_not_reached_by_devices(*op.remote) : "the target is host memory";
  } else if (in_process(*op.remote)) {
    access.why_not_reached = known_here(*op.remote) ? nullptr : "it is device memory of another context of this process";
  } else if ((link_features(op) & kLinkMaps) == 0) {
    access.why_not_reached = "this link shares no device memory";
  } else if (op.remote->unmappable || op.remote->key.segment == 0) {
    access.why_not_reached = "the target cannot be imported: pool or managed memory, or no access between the devices";
  }
  constexpr double kKernel = 7500;  // two H200: from the launch until the host knows
  const bool put = op.verb == Verb::put;
  access.device_ns = op.verb == Verb::atomic ? kKernel
                     : local                 ? (put ? write_ns(op, costs) : costs.read_ns(op.length))
                                             : (put ? costs.in : costs.out).ns(op.length);
  access.staged_ns = put && !target ? to_host(op, costs) : staged(op, costs);
  return access;
}

std::string explain_device(const OpDesc& op) {
  char head[160];
  const Costs costs = costs_of_copies(op);
  const char* const from = costs.measured != 0 ? "measured" : "default";
  std::snprintf(head, sizeof head, "%llu bytes with device memory over %s (* = chosen; predicted, from %s costs)\n",
                static_cast<unsigned long long>(op.length), op.peer->link->port->name(), from);
  std::string text = head;
  const char* chosen = "refused";
  Way way = Way::any;
  switch (op.verb) {
    case Verb::send:
    case Verb::am:
      chosen = message_ways(text, op);
      break;
    case Verb::put:
    case Verb::get:
    case Verb::atomic:
      chosen = access_ways(text, op, &way);
      break;
    default:
      text += "  byte streams and signals are host memory only\n";
  }
  text += std::string("chosen: ") + chosen + "\n";
  if (op.verb == Verb::send || op.verb == Verb::am) say_ways(text, op);
  if (way != Way::any) say_way(text, way);
  return text;
}

}  // namespace thalweg::impl
