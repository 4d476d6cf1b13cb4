// SPDX-License-Identifier: Apache-2.0
// The ways of operations with device memory, said aloud. A message's way is the receiver's choice, so there is a line for each
// kind of memory that may receive it.
#include <cstdio>

#include "devices/registry.hpp"
#include "memory/registry.hpp"
#include "protocols/bounce.hpp"
#include "protocols/engine.hpp"
#include "protocols/explain.hpp"
#include "protocols/one_sided.hpp"
#include "protocols/reach_device.hpp"
#include "protocols/select.hpp"

namespace thalweg::impl {
namespace {

constexpr DeviceCosts kCosts = kDeviceCosts;

/// Would the resident kernel of the local side's device copy it, while it runs?
bool by_resident(const OpDesc& op) {
  const unsigned blocks = op.peer->engine->options().resident.blocks;
  return blocks != 0 && (op.flags & kOpDevice) != 0 && op.layout == nullptr && op.remote_layout == nullptr &&
         op.length <= resident_most(kCosts, blocks);
}

/// One write by the local side's device.
double write_ns(const OpDesc& op) {
  if (by_resident(op)) return resident_ns(kCosts, op.peer->engine->options().resident.blocks, op.length);
  return kCosts.write + kCosts.link * static_cast<double>(op.length);
}

void say(std::string& text, bool chosen, const char* name, double ns, const char* why_not, const char* note) {
  char line[256];
  if (why_not != nullptr) {
    std::snprintf(line, sizeof line, "  %-24s impossible: %s\n", name, why_not);
  } else {
    std::snprintf(line, sizeof line, "%s %-24s %12.0f ns  %s\n", chosen ? "*" : " ", name, ns, note);
  }
  text += line;
}

/// Through pinned memory: into it, over the link, out of it, all at the same time.
double staged(const OpDesc& op) {
  const LinkCosts costs = link_costs(op);
  return kCosts.write + 3 * costs.frame + (costs.copy + kCosts.pinned) * static_cast<double>(op.length);
}

/// The same through a bounce buffer that both processes reach, of host memory: no copy through the link.
bool named(const OpDesc& op) {
  const uint32_t features = link_features(op);
  return op.length >= kNamedFrom && (features & kLinkMaps) != 0 && (features & kLinkSameProcess) == 0;
}
constexpr char kNamed[] = "through a bounce buffer that both processes reach";

double to_host(const OpDesc& op) {
  const LinkCosts costs = link_costs(op);
  if (!named(op)) return staged(op);
  return kCosts.write + 3 * costs.frame + bytes_ns(costs.mapped, costs.mapped_large, op.length);
}

/// ... of device memory, from which the receiver's device copies.
double to_device_staged(const OpDesc& op) {
  if (!named(op)) return 2 * staged(op);
  return kCosts.write + kCosts.read + 4 * link_costs(op).frame + kCosts.link * static_cast<double>(op.length);
}

const char* message_ways(std::string& text, const OpDesc& op) {
  const double bytes = static_cast<double>(op.length), asking = 3 * link_costs(op).frame;
  const bool maps = (link_features(op) & (kLinkMaps | kLinkSameProcess)) != 0;
  const char* const no_link = maps ? nullptr : "this link shares no device memory";
  const char* const not_shared = op.layout != nullptr ? "it is not one piece" : why_not_shared(op);
  const bool same_process = (link_features(op) & kLinkSameProcess) != 0;
  const DeviceRoute to_device = device_route(device_message(op, MemoryKind::vmm, true));
  const DeviceRoute to_pool = device_route(device_message(op, MemoryKind::pool, same_process));
  const DeviceRoute to_pinned = device_route(device_message(op, MemoryKind::pinned, false));
  const auto written = [](DeviceRoute route) { return route == DeviceRoute::push || route == DeviceRoute::in_process; };
  const char* const at_both = named(op) ? kNamed : "through pinned memory of both ends";
  const char* const at_one = named(op) ? kNamed : "through pinned memory here";
  text += "into memory of a device of the peer:\n";
  const char* const push = by_resident(op) ? "push by this device, resident" : "push by this device";
  say(text, written(to_device), push, write_ns(op) + asking, no_link, "written over the devices' link");
  say(text, to_device == DeviceRoute::pull, "pull by its device", kCosts.read + asking + kCosts.link * bytes, not_shared,
      "where its memory cannot be shared or is strided");
  say(text, to_device == DeviceRoute::frames, "staging", to_device_staged(op), nullptr, at_both);
  text += "into its pool or managed memory:\n";
  say(text, written(to_pool), push, write_ns(op) + asking, same_process ? nullptr : "this memory cannot be shared",
      "written over the devices' link");
  say(text, to_pool == DeviceRoute::pull, "pull by its device", kCosts.read + asking + kCosts.link * bytes, not_shared,
      "read over the devices' link");
  say(text, to_pool == DeviceRoute::frames, "staging", to_device_staged(op), nullptr, at_both);
  text += "into its pinned memory:\n";
  const bool here = to_pinned == DeviceRoute::pull || written(to_pinned);
  say(text, here, "pull by this device", kCosts.read + asking + kCosts.pinned * bytes, not_shared, "a queue of the peer");
  say(text, !here, "staging", to_host(op), nullptr, at_one);
  text += "into its other host memory:\n";
  say(text, true, "staging", to_host(op), nullptr, at_one);
  return written(to_device) ? push : to_device == DeviceRoute::pull ? "pull by its device" : "staging";
}

const char* one_sided_ways(std::string& text, const OpDesc& op, Way* way) {
  const bool target = op.remote != nullptr && of_device(*op.remote), local = (op.flags & kOpDevice) != 0;
  const double bytes = static_cast<double>(op.length);
  const char* why_not = nullptr;
  const Way forced = op.peer->engine->options().way;
  if (!allowed(forced, op.verb == Verb::put ? Way::push : Way::pull)) {
    why_not = "another way is forced (THALWEG_WAY)";
  } else if (!target) {
    why_not = op.remote != nullptr && local ? why_not_reached_by_devices(*op.remote) : "the target is host memory";
  } else if (in_process(*op.remote) && !known_here(*op.remote)) {
    why_not = "it is device memory of another context of this process";
  } else if (!in_process(*op.remote) && (link_features(op) & kLinkMaps) == 0) {
    why_not = "this link shares no device memory";
  } else if (op.remote->unmappable || (!in_process(*op.remote) && op.remote->key.segment == 0)) {
    why_not = "the target cannot be imported: pool or managed memory, or no access between the devices";
  }
  const bool direct = why_not == nullptr;
  const bool put = op.verb == Verb::put, resident = by_resident(op);
  const char* const name = resident ? "direct, resident" : "direct";
  const double idle = put ? kCosts.write : kCosts.read;
  say(text, direct && local, name, resident || put ? write_ns(op) : idle + kCosts.link * bytes,
      local ? why_not : "the local side is host memory", "by this device; pinned memory too");
  say(text, direct && !local, "window", idle + kCosts.pinned * bytes, why_not, "through pinned memory here");
  say(text, !direct && local, "relay", put && !target ? to_host(op) : staged(op),
      local ? nullptr : "the local side is host memory", "through pinned memory here, then as host memory");
  say(text, !direct && !local, "frames", staged(op), nullptr, "applied by the target's progress");
  *way = !direct ? Way::staging : put ? Way::push : Way::pull;
  return direct ? (local ? name : "window") : (local ? "relay" : "frames");
}

const char* atomic_ways(std::string& text, const OpDesc& op, Way* way) {
  Cost here{};
  const bool direct = kAtomicDevice.probe(op, here);
  say(text, direct, "atomic_device", here.fixed_ns, here.why_not, "by a kernel of the word's device, started here");
  say(text, !direct, "atomic_frames", 2000 + 2 * link_costs(op).frame + kCosts.write, nullptr,
      "by a kernel of the word's device, started by the target's progress");
  *way = direct ? Way::push : Way::staging;
  return direct ? "atomic_device" : "atomic_frames";
}

}  // namespace

std::string explain_device(const OpDesc& op) {
  char head[160];
  std::snprintf(head, sizeof head, "%llu bytes with device memory over %s (* = chosen; predicted, from costs of one machine)\n",
                static_cast<unsigned long long>(op.length), op.peer->link->port->name());
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
      chosen = one_sided_ways(text, op, &way);
      break;
    case Verb::atomic:
      chosen = atomic_ways(text, op, &way);
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
