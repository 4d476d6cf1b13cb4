// SPDX-License-Identifier: Apache-2.0
// By which way (routes/ways.hpp) an operation will move, said with the names under which tw_context_counters counts it. A message's
// is the receiver's choice: a line for each kind of memory that may receive it, from the functions that the receiver asks.
#include "devices/registry.hpp"
#include "memory/registry.hpp"
#include "protocols/engine.hpp"
#include "protocols/explain.hpp"
#include "protocols/one_sided.hpp"
#include "protocols/select.hpp"

namespace thalweg::impl {
namespace {

bool on_device(const OpDesc& op) { return (op.flags & kOpDevice) != 0; }
bool late(const OpDesc& op) { return (op.flags & kOpLate) != 0; }
bool in_process(const OpDesc& op) { return (link_features(op) & kLinkSameProcess) != 0; }

constexpr uint32_t kNoMapping = 1u << static_cast<unsigned>(MessageRoute::direct);

Way way_of(MessageRoute route) {
  return route == MessageRoute::direct ? Way::mapped : route == MessageRoute::kernel ? Way::kernel : Way::frames;
}

/// `failed`: what the receiver tries in vain of announced_route().
Way way_into(const OpDesc& op, MemoryKind kind, bool named, bool same_device, uint32_t failed) {
  Message message = message_of(op);
  const MessageRoute sent = message.active ? active_route(op.peer->limits, message) : sending_route(op.peer->limits, message);
  if (!on_device(op) && !late(op) && sent != MessageRoute::frames) return Way::eager;
  if (late(op)) message.contiguous = message.library = false;  // its address is not told
  const Way by_host = way_of(announced_route(op.peer->limits, message, failed));
  DeviceMessage facts = device_message(op, kind, named);
  facts.same_device = same_device;
  if (!facts.to.on_device() && !by_devices(facts.from.kind)) return by_host;
  const bool staged = facts.to.on_device() || facts.from.on_device();
  const DeviceRoute route = device_route(facts, by_host == Way::frames ? bit_of(DeviceRoute::copy) : 0);
  if (route == DeviceRoute::frames) return staged ? Way::staging : Way::frames;
  return route == DeviceRoute::copy && !facts.to.on_device() ? by_host : way_of(route);
}

}  // namespace

const char* why_not_shared(const OpDesc& op) {
  if ((link_features(op) & (kLinkMaps | kLinkSameProcess)) == 0) return "this link shares no device memory";
  BufferInfo info;
  if (find_device(reinterpret_cast<uint64_t>(op.address), &info) != TW_OK) return "this is not device memory";
  if (!in_process(op) && info.exportable == ExportForm::none) {
    return info.kind == MemoryKind::managed ? "managed memory cannot be shared: use cudaMalloc or VMM"
                                            : "pool memory cannot be shared: use cudaMalloc or VMM";
  }
  return nullptr;
}

DeviceMessage device_message(const OpDesc& op, MemoryKind to, bool named) {
  const Engine& engine = *op.peer->engine;
  const bool contiguous = op.layout == nullptr, told = contiguous && !late(op);
  DeviceMessage message;
  message.features = link_features(op);
  message.imports = engine.options().imports;
  message.length = op.length;
  message.eager = op.peer->limits.eager;
  message.forced = engine.options().way;
  message.from.late = late(op);
  if (on_device(op)) {
    message.from.kind = op.kind;
    message.from.named = told && why_not_shared(op) == nullptr;
    message.from.readable = message.from.named;
  } else {
    if (contiguous && is_pinned(op.address)) message.from.kind = MemoryKind::pinned;
    const bool address = (message.features & (kLinkSingleCopy | kLinkSameProcess)) != 0;
    const bool segment = (message.features & kLinkMaps) != 0 && in_segment(op);
    message.from.named = told && in_process(op);
    message.from.readable = told && (address || segment);
    message.by_kernel = !segment && !in_process(op);
    message.costs = &costs_of(*op.peer);
    message.named_from = engine.options().bounces.from;
  }
  message.to = {to, named, false, false};
  return message;
}

void say_ways(std::string& text, const OpDesc& op) {
  // The receiver does not wait for a mapping of the sender's memory, but takes the next way meanwhile.
  const uint32_t cold = in_process(op) ? 0 : kNoMapping;
  const auto say = [&](const char* into, MemoryKind kind, bool named, bool same_device) {
    const Way warm = way_into(op, kind, named, same_device, 0), first = way_into(op, kind, named, same_device, cold);
    text += std::string("way into ") + into + ": " + name_of(warm);
    if (first != warm) text += std::string(", until the receiver has mapped it: ") + name_of(first);
    text += "\n";
  };
  say("ordinary memory", MemoryKind::host, false, false);
  say("pinned memory", MemoryKind::pinned, false, false);
  say("another device's memory", MemoryKind::vmm, true, false);
  say("the same device's memory", MemoryKind::vmm, true, true);
  say("pool or managed memory of another device", MemoryKind::pool, in_process(op), false);
  say("pool or managed memory of the same device", MemoryKind::pool, in_process(op), true);
}

void say_way(std::string& text, Way way) { text += std::string("way: ") + name_of(way) + "\n"; }

}  // namespace thalweg::impl
