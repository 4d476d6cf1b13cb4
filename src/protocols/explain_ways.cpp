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

/// Memory of the receiver.
struct Into {
  MemoryKind kind = MemoryKind::host;
  bool named = false;        // the sender can be told of it
  bool same_device = false;  // ... as the sender's memory is of
  bool library = false;
};

/// cold: neither side has mapped or pinned the other's memory, and nobody waits for that. second: the receive is posted when the
/// announcement is there.
Way way_into(const OpDesc& op, const Into& into, bool cold, bool second = false) {
  const uint32_t failed = cold && !in_process(op) ? kNoMapping : 0;
  Message message = message_of(op);
  const MessageRoute sent = message.active ? active_route(op.peer->limits, message) : sending_route(op.peer->limits, message);
  if (!on_device(op) && !late(op) && sent != MessageRoute::frames) return Way::eager;
  if (late(op)) message.contiguous = message.library = false;  // its address is not told
  const Way by_host = way_of(announced_route(op.peer->limits, message, failed));
  DeviceMessage facts = device_message(op, into.kind, into.named);
  facts.same_device = into.same_device;
  facts.to.library = into.library;
  facts.second = second;
  if (!facts.to.on_device() && !by_devices(facts.from.kind)) return by_host;
  const bool staged = facts.to.on_device() || facts.from.on_device();
  const uint32_t unpinned =
      (cold && into.library ? bit_of(DeviceRoute::push) : 0) | (cold && facts.from.library ? bit_of(DeviceRoute::pull) : 0);
  const DeviceRoute route = device_route(facts, unpinned | (by_host == Way::frames ? bit_of(DeviceRoute::copy) : 0));
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
  message.hidden_from = engine.options().hidden_from;
  message.named_from = engine.options().bounces.from;
  if (on_device(op)) {
    message.from.kind = op.kind;
    message.from.named = told && why_not_shared(op) == nullptr;
    message.from.readable = message.from.named;
  } else {
    if (contiguous && is_pinned(op.address)) message.from.kind = MemoryKind::pinned;
    const bool address = (message.features & (kLinkSingleCopy | kLinkSameProcess)) != 0;
    const bool segment = (message.features & kLinkMaps) != 0 && in_segment(op);
    message.from.named = told && in_process(op);
    message.from.library = told && segment && !in_process(op);
    message.from.readable = told && (address || segment);
    message.by_kernel = !segment && !in_process(op);
    message.costs = &costs_of(*op.peer);
  }
  message.to.kind = to;
  message.to.named = named;
  message.to.bounced = message.to.on_device() && op.length <= engine.options().bounces.device;
  return message;
}

void say_ways(std::string& text, const OpDesc& op) {
  const auto say = [&](const char* name, const Into& into) {
    const Way warm = way_into(op, into, false), first = way_into(op, into, true);
    text += std::string("way into ") + name + ": " + name_of(warm);
    if (first != warm) text += std::string(", until it is mapped: ") + name_of(first);
    DeviceMessage facts = device_message(op, into.kind, into.named);
    facts.same_device = into.same_device;
    facts.to.library = into.library;
    if (pushes_unasked(facts) && warm != Way::push) text += ", or where the receive is posted first: push";
    const Way second = way_into(op, into, false, true);
    if (second != warm) text += std::string(", or where the receive is posted second: ") + name_of(second);
    text += std::string("\nprogress into ") + name + ": " + progress_of(facts, warm) + "\n";
  };
  const bool same = in_process(op);
  say("ordinary memory", {});
  say("library memory", {MemoryKind::host, true, false, true});
  say("pinned memory", {MemoryKind::pinned});
  say("pinned library memory", {MemoryKind::pinned, true, false, true});
  say("another device's memory", {MemoryKind::vmm, true});
  say("the same device's memory", {MemoryKind::vmm, true, true});
  say("pool or managed memory of another device", {MemoryKind::pool, same});
  say("pool or managed memory of the same device", {MemoryKind::pool, same, true});
}

void say_way(std::string& text, Way way) { text += std::string("way: ") + name_of(way) + "\n"; }

}  // namespace thalweg::impl
