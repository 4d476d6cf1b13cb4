// SPDX-License-Identifier: Apache-2.0
// Explains the ways of operations with device memory. A message's way is the receiver's choice, so there is a line for each
// kind of memory that may receive it.
#include <algorithm>
#include <cstdio>

#include "devices/registry.hpp"
#include "devices/topology_reach.hpp"
#include "memory/registry.hpp"
#include "protocols/bounce.hpp"
#include "protocols/device_copy.hpp"
#include "protocols/engine.hpp"
#include "protocols/explain.hpp"
#include "protocols/one_sided.hpp"
#include "protocols/operation_routes.hpp"
#include "protocols/reach_device.hpp"
#include "routes/device_copies.hpp"
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
  // Not measured for this: the caller may have a kernel that waits for it, and measuring allocates memory.
  if (table != nullptr) static_cast<DeviceCosts&>(costs) = table->known(*device).costs;
  const bool known = op.remote != nullptr && of_device(*op.remote);
  costs.link = known ? device->peer(uuid_of(op.remote->key.device_uuid)).link : nearest_link(*device, costs);
  return costs;
}

/// Does the local side's device move it? An atomic has no local side.
bool by_local_device(const OpDesc& op) { return (op.flags & kOpDevice) != 0 && op.verb != Verb::atomic; }

/// Whose queue copies in this process: the local side's device, or the target's into or out of pinned memory. Null: none of
/// this process.
Device* copier_of(const OpDesc& op) {
  if (by_local_device(op)) return op.device;
  return op.remote != nullptr && of_device(*op.remote) ? device_of(*op.remote) : nullptr;
}

/// Do kernels of the device reach the target, or can only an import decide? They always reach managed memory.
bool gets_to(const Device& device, const RemoteRegion& target) {
  if (static_cast<MemoryKind>(target.key.kind) == MemoryKind::managed) return true;
  const PeerAccess there = device.peer(uuid_of(target.key.device_uuid));
  return there.access || there.link == DeviceLink::unknown;
}

/// Would that device's persistent kernel copy it, while no engine is under way?
bool by_persistent(const OpDesc& op, const Costs& costs) {
  const unsigned blocks = op.peer->engine->options().persistent.blocks;
  Device* const device = copier_of(op);
  if (blocks == 0 || device == nullptr) return false;
  const CopySide here = copy_side(reinterpret_cast<uintptr_t>(op.address), op.layout), target = copy_side(0, op.remote_layout);
  std::vector<Copy> planned;
  if (is_error(plan_copies(target, here, op.length, 0, op.length, &planned)) || planned.empty()) return false;
  DeviceCopies copies = facts_of(planned, why_no_kernels(op) == nullptr);
  copies.persistent_most = persistent_most(costs, nearest_link(*device, costs), blocks);
  return copy_by(copies, op.peer->engine->options().hidden_from) == CopyBy::persistent;
}

/// Through pinned memory: into it, over the link, out of it, all at the same time.
double staged(const OpDesc& op, const Costs& copies) {
  const LinkCosts costs = link_costs(op);
  return copies.out.ns(op.length) + 3 * costs.frame + bytes_ns(costs.copy, costs.copy_large, op.length);
}

/// The same through a bounce buffer of host memory that both processes reach, out of which the target's CPU copies.
double to_host(const OpDesc& op, const Costs& copies) {
  const LinkCosts costs = link_costs(op);
  return copies.out.fixed + 3 * costs.frame + bytes_ns(costs.mapped, costs.mapped_large, op.length);
}

/// Through a bounce buffer in chunks: one is written while the one before it is taken.
double chunked(const OpDesc& op, const CopyCosts& written, const CopyCosts& taken) {
  const uint64_t chunk = std::min(op.length, op.peer->engine->options().bounces.device);
  const double rest = static_cast<double>(op.length - chunk) * std::max(written.byte, taken.byte);
  return written.ns(chunk) + taken.ns(chunk) + rest + 4 * link_costs(op).frame;
}

/// How the pieces of the payload would be taken, if it was staged.
PieceRoute pieces_into(const OpDesc& op, const DeviceMessage& message) {
  Pieces facts = pieces_to(*op.peer, op.length);
  facts.from_device = message.from.on_device();
  facts.to_device = message.to.on_device();
  facts.same_device = message.same_device;
  facts.reaches = facts.from_device;
  facts.managed = message.from.kind == MemoryKind::managed;
  return piece_route(facts);
}

double staged_into(const OpDesc& op, const Costs& copies, const DeviceMessage& message, PieceRoute through) {
  const bool both = message.from.on_device() && message.to.on_device();
  if (through == PieceRoute::in_device) return chunked(op, copies.write(copies.link), copies.local);
  if (through == PieceRoute::in_host) return message.to.on_device() ? chunked(op, copies.out, copies.in) : to_host(op, copies);
  return both ? 2 * staged(op, copies) : staged(op, copies);
}

/// The table of a message into such memory. Returns the name of what is chosen.
const char* say_message(std::string& text, const OpDesc& op, const Costs& costs, const Into& into) {
  DeviceMessage message = device_message(op, into);
  message.persistent = by_persistent(op, costs);
  const bool device = message.to.on_device(), neither = !device && !message.from.on_device();
  const double asking = 3 * link_costs(op).frame, out = costs.out.ns(op.length) + asking;
  const double write = message.persistent
                           ? persistent_ns(costs, op.peer->engine->options().persistent.blocks, op.length) + asking
                       : device ? costs.write_ns(op.length) + asking
                                : out;
  const PieceRoute through = pieces_into(op, message);
  std::array<double, kDeviceRoutes> ns{};
  const auto set = [&](DeviceRoute route, double value) { ns[static_cast<size_t>(route)] = value; };
  set(DeviceRoute::in_process, write);
  set(DeviceRoute::push, write);
  set(DeviceRoute::push_bounce, chunked(op, costs.write(costs.link), costs.local));
  set(DeviceRoute::pull, device ? costs.read_ns(op.length) + asking : out);
  set(DeviceRoute::copy, mapped_ns(link_costs(op), op.length) + (device ? costs.in.fixed : 0));
  set(DeviceRoute::frames, neither ? frames_ns(link_costs(op), false, op.length) : staged_into(op, costs, message, through));
  text += std::string("into ") + into.name + ":\n";
  return say_routes(text, device_message_routes(message, ns, through));
}

/// Of a message: the name of what is chosen into another device's memory.
const char* message_ways(std::string& text, const OpDesc& op) {
  const Costs costs = costs_of_copies(op);
  const char* first = nullptr;
  for (const Into& into : kinds_into(op)) {
    const char* const chosen = say_message(text, op, costs, into);
    if (first == nullptr) first = chosen;
  }
  return first;
}

/// Of a put, get or atomic: its way, and the name of what is chosen.
const char* access_ways(std::string& text, const OpDesc& op, SaidWay* way) {
  const Access access = said_device_access_of(op);
  *way = said_way(access);
  return say_routes(text, access_routes(access, costs_of(*op.peer)));
}

/// What a first try would find. Within one process engines get everywhere.
const char* why_not_visible(const OpDesc& op) {
  if (copier_of(op) == nullptr) return "the target's device is not visible in this process";
  if (op.verb == Verb::atomic) return why_no_kernels(op);
  if (in_process(*op.remote) || gets_to(*copier_of(op), *op.remote)) return nullptr;
  return why_no_peer_access(*copier_of(op), uuid_of(op.remote->key.device_uuid));
}

/// "link to emulated:1: pcie, as all 6 NVLinks between gpu:0 and gpu:1 are down in FILE", where a saved topology has its part in it, also
/// where it says that some are down: of the target's device, or of all that may receive a message.
void say_links(std::string& text, const OpDesc& op) {
  const Device* const device = device_of(op);
  if (device == nullptr) return;
  const bool known = op.remote != nullptr && of_device(*op.remote);
  for (const Device* other : list_devices(nullptr)) {
    if (other == device || (known && other->uuid() != uuid_of(op.remote->key.device_uuid))) continue;
    const char* const why = why_limited_by_topology(id_of(*device), id_of(*other));
    const char* const down = why == nullptr ? what_is_down_in_topology(id_of(*device), id_of(*other)) : nullptr;
    if (why == nullptr && down == nullptr) continue;
    const PeerAccess reached = device->peer(other->uuid());
    const std::string link = !reached.access                      ? "none, so through host memory"
                             : reached.link == DeviceLink::nvlink ? "nvlink"
                                                                  : "pcie";
    text += std::string("link to ") + other->name() + ":" + std::to_string(other->ordinal()) + ": " + link +
            (why != nullptr ? std::string(", as ") + why : std::string("; ") + down) + "\n";
  }
}

}  // namespace

const char* why_no_kernels(const OpDesc& op) {
  const Device* const device = copier_of(op);
  if (device == nullptr) return nullptr;
  if (!device->has_kernels()) return "this build has no kernels";
  if (op.remote == nullptr || !of_device(*op.remote) || gets_to(*device, *op.remote)) return nullptr;
  return why_no_peer_access(*device, uuid_of(op.remote->key.device_uuid));
}

Access said_device_access_of(const OpDesc& op) {
  Access access = device_access_of(op);
  const bool target = op.remote != nullptr && of_device(*op.remote), local = (op.flags & kOpDevice) != 0;
  if (access.why_not_reached == nullptr) {
    if (!target) access.why_not_reached = why_not_reached_by_devices(*op.remote);
    if (target && in_process(*op.remote) && !known_here(*op.remote))
      access.why_not_reached = "it is device memory of another context of this process";
    if (const char* const why = target ? why_not_visible(op) : nullptr; why != nullptr) access.why_not_reached = why;
  }
  const Costs costs = costs_of_copies(op);
  access.persistent = by_persistent(op, costs);
  const bool put = op.verb == Verb::put;
  access.device_ns = op.verb == Verb::atomic ? costs.local.fixed  // a kernel takes as long as a copy of no bytes
                     : access.persistent     ? persistent_ns(costs, op.peer->engine->options().persistent.blocks, op.length)
                     : local                 ? (put ? costs.write_ns(op.length) : costs.read_ns(op.length))
                                             : (put ? costs.in : costs.out).ns(op.length);
  const bool named = put && local && op.remote != nullptr && piece_route(put_pieces(op)) == PieceRoute::in_host;
  access.staged_ns = named ? to_host(op, costs) : staged(op, costs);
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
  SaidWay way;
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
  say_way(text, way);
  say_links(text, op);
  return text;
}

}  // namespace thalweg::impl
