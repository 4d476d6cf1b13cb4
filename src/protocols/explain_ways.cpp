// SPDX-License-Identifier: Apache-2.0
// By which way (routes/ways.hpp) an operation will move, by the names of tw_context_counters. A message's
// is the receiver's choice: a line for each kind of memory that may receive it, from the functions that the receiver asks.
#include "devices/registry.hpp"
#include "memory/registry.hpp"
#include "protocols/engine.hpp"
#include "protocols/explain.hpp"
#include "protocols/one_sided.hpp"
#include "protocols/operation_routes.hpp"

namespace thalweg::impl {
namespace {

bool on_device(const OpDesc& op) { return (op.flags & kOpDevice) != 0; }
bool late(const OpDesc& op) { return (op.flags & kOpLate) != 0; }
bool in_process(const OpDesc& op) { return (link_features(op) & kLinkSameProcess) != 0; }

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

std::array<Into, kInto> kinds_into(const OpDesc& op) {
  const bool same = in_process(op);
  return {{{"another device's memory", MemoryKind::vmm, true},
           {"the same device's memory", MemoryKind::vmm, true, true},
           {"pool or managed memory of another device", MemoryKind::pool, same},
           {"pool or managed memory of the same device", MemoryKind::pool, same, true},
           {"pinned memory", MemoryKind::pinned},
           {"pinned library memory", MemoryKind::pinned, true, false, true},
           {"library memory", MemoryKind::host, true, false, true},
           {"ordinary memory"}}};
}

DeviceMessage device_message(const OpDesc& op, const Into& into) {
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
    message.why_not_named = !contiguous ? "it is not one piece" : late(op) ? "it waits for a stream" : why_not_shared(op);
    message.from.named = message.from.readable = message.why_not_named == nullptr;
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
  message.to.kind = into.kind;
  message.to.named = into.named;
  message.to.library = into.library;
  message.to.bounced = message.to.on_device() && op.length <= engine.options().bounces.device;
  message.same_device = into.same_device;
  message.active = op.verb == Verb::am;
  return message;
}

namespace {

/// The way once it is mapped or pinned, and the one before.
std::string named(const Limits& limits, const Message& message, const DeviceMessage& facts) {
  const Way warm = received_way(limits, message, facts, false), cold = received_way(limits, message, facts, true);
  return std::string(name_of(warm)) + (cold != warm ? std::string(", until it is mapped: ") + name_of(cold) : "");
}

}  // namespace

void say_ways(std::string& text, const OpDesc& op) {
  const Limits& limits = op.peer->limits;
  const Message message = message_of(op);
  // What waits for those before it is asked about again at its turn, because credit comes and goes.
  Message at_its_turn = message;
  if (!op.peer->ordered.empty() || !message.affordable) {
    at_its_turn.affordable = !message.affordable;
    at_its_turn.library = in_segment(op);
  }
  const char* const credit = message.affordable ? "those before it use up its credit" : "credit has come at its turn";
  for (const Into& into : kinds_into(op)) {
    const DeviceMessage facts = device_message(op, into);
    DeviceMessage second = facts;
    second.second = true;
    const Way warm = received_way(limits, message, facts, false);
    const std::string first = named(limits, message, facts), behind = named(limits, message, second);
    const std::string turned = named(limits, at_its_turn, facts);
    text += std::string("way into ") + into.name + ": " + first;
    if (pushes_unasked(facts) && warm != Way::push) text += ", or where the receive is posted first: push";
    if (behind != first) text += ", or where the receive is posted second: " + behind;
    if (turned != first) text += std::string(", or where ") + credit + ": " + turned;
    text += std::string("\nprogress into ") + into.name + ": " + progress_of(limits, facts, warm) + "\n";
  }
}

namespace {

template <class Facts, class Choose>
SaidWay said_way(Facts facts, Choose choose) {
  SaidWay way;
  way.now = way_of(facts, choose(facts, 0));
  facts.fenced = false;
  way.settled = way_of(facts, choose(facts, 0));
  return way;
}

}  // namespace

SaidWay said_way(const Access& access) { return said_way(access, access_route); }
SaidWay said_way(const Blocks& blocks) { return said_way(blocks, blocks_route); }

void say_way(std::string& text, const SaidWay& way) {
  if (way.now == Way::any) return;
  text += std::string("way: ") + name_of(way.now);
  if (way.settled != way.now) text += std::string(", or where all before it is applied at its turn: ") + name_of(way.settled);
  text += "\n";
}

}  // namespace thalweg::impl
