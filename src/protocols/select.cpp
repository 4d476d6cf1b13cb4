// SPDX-License-Identifier: Apache-2.0
// The choice of a send's protocol, and the tables of routes as text.
#include <cstdio>
#include <cstring>

#include "memory/registry.hpp"
#include "protocols/eager.hpp"
#include "protocols/engine.hpp"
#include "protocols/explain.hpp"
#include "protocols/one_sided.hpp"
#include "protocols/rendezvous.hpp"
#include "protocols/select.hpp"

namespace thalweg::impl {

namespace {

const CostTable kDefaults;

const CostTable& table_of(const Peer& peer) {
  const CostTable* const given = peer.engine->options().costs;
  return given != nullptr ? *given : kDefaults;
}

}  // namespace

const LinkCosts& costs_of(const Peer& peer) { return costs_of(table_of(peer), *peer.link); }

bool in_segment(const OpDesc& op) {
  uint64_t segment = 0, offset = 0;
  const Registry* registry = op.peer->engine->options().registry;
  return op.layout == nullptr && op.address != nullptr && registry != nullptr &&
         registry->find_segment(op.address, op.length, &segment, &offset);
}

Message message_of(const OpDesc& op) {
  Message message;
  message.features = op.peer->link != nullptr ? op.peer->link->features : 0;
  message.length = op.length;
  message.synchronous = (op.flags & TW_OP_SYNC) != 0;
  message.contiguous = op.layout == nullptr;
  message.library = in_segment(op);
  return message;
}

const Protocol& select_send(const OpDesc& op) {
  const Limits& limits = op.peer->limits;
  const bool sync = (op.flags & TW_OP_SYNC) != 0;
  if ((op.flags & (kOpDevice | kOpLate)) != 0) return kRendezvousSend;                // the receiver chooses the way
  if (op.length + (sync ? sizeof(uint64_t) : 0) <= limits.copy) return kEagerSingle;  // before anything is looked up
  switch (sending_route(limits, message_of(op))) {
    case MessageRoute::single:
      return kEagerSingle;
    case MessageRoute::segmented:
      return kEagerSegmented;
    default:
      return kRendezvousSend;
  }
}

// ------------------------------------------------------------------------------------------------ said aloud

bool verb_named(const char* name, Verb* verb) {
  static constexpr struct {
    const char* name;
    Verb verb;
  } kNames[] = {{"send", Verb::send}, {"am", Verb::am},         {"bytes", Verb::bytes_send}, {"put", Verb::put},
                {"get", Verb::get},   {"atomic", Verb::atomic}, {"signal", Verb::signal}};
  for (const auto& entry : kNames) {
    if (std::strcmp(entry.name, name) != 0) continue;
    *verb = entry.verb;
    return true;
  }
  return false;
}

namespace {

void line(std::string& text, bool chosen, const char* name, const Cost& cost, uint64_t length, const char* note) {
  char buffer[256];
  if (cost.why_not != nullptr) {
    std::snprintf(buffer, sizeof buffer, "  %-24s impossible: %s\n", name, cost.why_not);
  } else {
    double predicted = cost.fixed_ns + cost.ns_per_byte * static_cast<double>(length);
    std::snprintf(buffer, sizeof buffer, "%s %-24s %12.0f ns  %s\n", chosen ? "*" : " ", name, predicted, note);
  }
  text += buffer;
}

const char* explain_messages(std::string& text, const OpDesc& op) {
  const char* name = "none";
  for (const Route& route : message_routes(op.peer->limits, costs_of(*op.peer), message_of(op))) {
    line(text, route.chosen, route.name, {route.predicted_ns, 0, route.why_not}, op.length, route.note);
    if (route.chosen) name = route.name;
  }
  return name;
}

const char* explain_one_sided(std::string& text, const OpDesc& op, Way* way = nullptr) {
  const Protocol* chosen = choose_one_sided(op);
  for (const Protocol* const* at = one_sided_protocols(op.verb); *at != nullptr; ++at) {
    Cost cost;
    consider(op, **at, &cost);
    const char* note = "slower";
    if (*at == chosen) {
      note = needs_target(**at) ? "applied by the target's progress" : "needs no CPU of the target";
    } else if (needs_target(**at)) {
      note = "needs the target's progress; the chosen one does not";
    }
    line(text, *at == chosen, (*at)->name, cost, op.length, note);
  }
  if (way != nullptr && chosen != nullptr) *way = way_of(*chosen);
  return chosen != nullptr ? chosen->name : "none";
}

/// As if the target were memory of each of both kinds. Returns the choice for library memory, whose table comes last.
const char* explain_both(std::string& text, const OpDesc& given) {
  static std::byte anywhere[8];
  const char* name = "none";
  for (const bool library : {false, true}) {
    RemoteRegion region;
    region.peer = given.peer;
    region.key.access = TW_MEMORY_ALL;
    region.key.length = given.length;
    region.key.check = 1;
    region.key.segment = library ? 1 : 0;
    const uint32_t features = link_features(given);
    if ((library && (features & kLinkMaps) != 0) || (features & kLinkSameProcess) != 0) region.mapped = anywhere;
    if (!library && given.verb == Verb::signal) continue;  // signals always live in library memory
    OpDesc op = given;
    op.remote = &region;
    if (op.verb == Verb::signal) op.signal = &region;
    text += library ? "target of tw_memory_allocate:\n" : "target registered by tw_memory_register:\n";
    name = explain_one_sided(text, op);
    if (!library) text += std::string("  so: ") + name + "\n";
  }
  return name;
}

}  // namespace

std::string explain(const OpDesc& op) {
  const Peer& peer = *op.peer;
  if (peer.link == nullptr) return "not connected: the route is chosen when the endpoint is\nchosen: none yet\n";
  if (needs_device(op)) return explain_device(op);
  const LinkCosts& costs = costs_of(peer);
  const bool measured = table_of(peer).measured();
  char head[160];
  std::snprintf(head, sizeof head, "%llu bytes over %s (* = chosen; predicted one way, from %s costs)\n",
                static_cast<unsigned long long>(op.length), peer.link->port->name(), measured ? "measured" : "default");
  std::string text = head;
  const char* chosen = "stream";
  Way way = Way::any;
  if (op.verb == Verb::send || op.verb == Verb::am) {
    chosen = explain_messages(text, op);
  } else if (op.verb == Verb::bytes_send) {
    bool reference = op.length >= peer.limits.reference;
    line(text, true, "stream", {costs.frame, reference ? costs.reference : costs.copy, nullptr}, op.length,
         reference ? "sent from the caller's memory" : "in frames");
  } else if (op.remote != nullptr) {
    if (awaits_import(*op.remote)) text += "the memory is still being mapped: an operation posted now waits for that\n";
    chosen = explain_one_sided(text, op, &way);
  } else {
    chosen = explain_both(text, op);
  }
  text += std::string("chosen: ") + chosen + "\n";
  if (op.verb == Verb::send || op.verb == Verb::am) say_ways(text, op);
  if (way != Way::any) say_way(text, way);
  return text;
}

}  // namespace thalweg::impl
