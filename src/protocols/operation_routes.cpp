// SPDX-License-Identifier: Apache-2.0
// The choice of a send's protocol, and the tables of routes as text.
#include <array>
#include <cstdio>
#include <cstring>

#include "memory/registry.hpp"
#include "protocols/eager.hpp"
#include "protocols/engine.hpp"
#include "protocols/explain.hpp"
#include "protocols/flow.hpp"
#include "protocols/one_sided.hpp"
#include "protocols/operation_routes.hpp"
#include "protocols/rendezvous.hpp"

namespace thalweg::impl {

namespace {

const CostTable kDefaults;

const CostTable& table_of(const Peer& peer) {
  const CostTable* const given = peer.engine->options().costs;
  return given != nullptr ? *given : kDefaults;
}

}  // namespace

const LinkCosts& costs_of(const Peer& peer) { return costs_of(table_of(peer), *peer.link, peer.distance); }

bool in_segment(const OpDesc& op) {
  uint64_t segment = 0, offset = 0;
  const Registry* registry = op.peer->engine->options().registry;
  return op.layout == nullptr && op.address != nullptr && registry != nullptr &&
         registry->find_segment(op.address, op.length, &segment, &offset);
}

namespace {

Message send_of(const OpDesc& op) {
  Message message;
  message.length = op.length;
  message.contiguous = op.layout == nullptr;
  message.packed = by_calls(op);
  message.synchronous = op.verb == Verb::send && (op.flags & TW_OP_SYNC) != 0;
  message.rendezvous = (op.flags & (kOpDevice | kOpLate)) != 0;
  message.affordable = affordable(op);
  return message;
}

}  // namespace

Message active_of(const OpDesc& op) {
  Message message = send_of(op);
  message.active = true;
  message.header = op.header_length;
  message.whole_affordable = header_affordable(op, op.length);
  message.header_affordable = header_affordable(op, 0);
  message.unasked = (op.flags & TW_OP_EAGER) != 0;
  message.rendezvous = message.rendezvous || (op.flags & TW_OP_RENDEZVOUS) != 0;
  return message;
}

Message message_of(const OpDesc& op) {
  Message message = op.verb == Verb::am ? active_of(op) : send_of(op);
  message.features = op.peer->link != nullptr ? op.peer->link->features : 0;
  // Not looked up for what is sent in a frame in any case.
  const bool small = fits_copy(op.peer->limits, message) && !message.rendezvous && message.affordable;
  message.library = !small && in_segment(op);
  return message;
}

Access access_of(const OpDesc& op, bool mapped) {
  static constexpr const char* kNotMapped[] = {"the target is not memory of tw_memory_allocate that is mapped here",
                                               "the source is not memory of tw_memory_allocate that is mapped here",
                                               "the word is not in memory of tw_memory_allocate that is mapped here"};
  Access access;
  access.verb = op.verb == Verb::put ? AccessVerb::put : op.verb == Verb::get ? AccessVerb::get : AccessVerb::atomic;
  access.length = op.length;
  access.forced = op.peer->engine->options().way;
  access.fenced = behind_fence(op);
  access.why_not_mapped = mapped ? nullptr : kNotMapped[static_cast<size_t>(access.verb)];
  if (op.verb != Verb::atomic) access.why_not_kernel = why_no_single_copy(op);
  return access;
}

Access signal_access_of(const OpDesc& op, bool behind) {
  Access access;
  access.verb = AccessVerb::signal;
  access.fenced = behind;
  access.notifies = (op.flags & kOpNotify) != 0;
  if (op.signal != nullptr && op.signal->mapped == nullptr && !in_process(*op.signal))
    access.why_not_mapped = "the signal's word is not mapped here";
  return access;
}

const Protocol& select_send(const OpDesc& op) {
  switch (sending_route(op.peer->limits, message_of(op))) {
    case MessageRoute::single:
      return kEagerSingle;
    case MessageRoute::segmented:
      return kEagerSegmented;
    default:
      return kRendezvousSend;
  }
}

// ------------------------------------------------------------------------------------------------ explained

bool verb_named(const char* name, Verb* verb) {
  static constexpr Verb kExplained[] = {Verb::send,   Verb::am,     Verb::bytes_send, Verb::put,       Verb::get,
                                        Verb::atomic, Verb::signal, Verb::put_blocks, Verb::get_blocks};
  for (const Verb one : kExplained) {
    if (std::strcmp(name_of(one), name) != 0) continue;
    *verb = one;
    return true;
  }
  return false;
}

namespace {

const char* explain_messages(std::string& text, const OpDesc& op) {
  Message message = message_of(op);
  message.library = in_segment(op);
  return say_routes(text, message_routes(op.peer->limits, costs_of(*op.peer), message));
}

Access said_host_access_of(const OpDesc& op) {
  if (op.verb == Verb::signal) return signal_access_of(op, overtakes(op));
  const RemoteRegion& target = *op.remote;
  return access_of(op, target.mapped != nullptr || known_here(target) || will_map(target));
}

const char* explain_one_sided(std::string& text, const OpDesc& op, SaidWay* way = nullptr) {
  const Access access = said_host_access_of(op);
  if (way != nullptr) *way = said_way(access);
  return say_routes(text, access_routes(access, costs_of(*op.peer)));
}

/// As if the target were memory of each of both kinds. Returns the choice for library memory, whose table comes last.
const char* explain_both(std::string& text, const OpDesc& given) {
  const char* name = "none";
  for (const bool library : {false, true}) {
    RemoteRegion region;
    any_target(given, library, &region);
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

void any_target(const OpDesc& op, bool library, RemoteRegion* out) {
  static std::byte anywhere[8];
  out->peer = op.peer;
  out->key.access = TW_MEMORY_ALL;
  out->key.length = op.length;
  out->key.check = 1;
  out->key.segment = library ? 1 : 0;
  const uint32_t features = link_features(op);
  const bool maps = library && (features & kLinkMaps) != 0 && may_map(op.peer->engine->options().way);
  if (maps || (features & kLinkSameProcess) != 0) out->mapped = anywhere;
}

void say_route(std::string& text, const Route& route) {
  char line[256];
  if (route.why_not != nullptr) {
    std::snprintf(line, sizeof line, "  %-24s impossible: %s\n", route.name, route.why_not);
  } else {
    std::snprintf(line, sizeof line, "%s %-24s %12.0f ns  %s\n", route.chosen ? "*" : " ", route.name, route.predicted_ns,
                  route.note);
  }
  text += line;
}

std::string explain(const OpDesc& op) {
  const Peer& peer = *op.peer;
  if (op.verb == Verb::bytes_send && op.layout != nullptr) return "  byte streams are contiguous\nchosen: refused\n";
  if (op.verb == Verb::am && is_error(check_unasked(op))) return std::string("  ") + last_error() + "\nchosen: refused\n";
  if (peer.link == nullptr) return "not connected: the route is chosen when the endpoint is\nchosen: none yet\n";
  const bool blocks = op.verb == Verb::put_blocks || op.verb == Verb::get_blocks;
  const bool access = op.verb == Verb::put || op.verb == Verb::get || op.verb == Verb::atomic;
  if (!blocks && (access ? has_device_end(op) : needs_device(op))) return explain_device(op);
  const LinkCosts& costs = costs_of(peer);
  const bool measured = table_of(peer).measured();
  char head[160];
  std::snprintf(head, sizeof head, "%llu bytes over %s (* = chosen; predicted one way, from %s costs%s%s)\n",
                static_cast<unsigned long long>(op.length), peer.link->port->name(), measured ? "measured" : "default",
                peer.distance == CpuDistance::count_ ? "" : ", processors: ",
                peer.distance == CpuDistance::count_ ? "" : name_of(peer.distance));
  std::string text = head;
  const char* chosen = "stream";
  SaidWay way;
  if (blocks) {
    chosen = explain_blocks(text, op, &way);
  } else if (op.verb == Verb::send || op.verb == Verb::am) {
    chosen = explain_messages(text, op);
  } else if (op.verb == Verb::bytes_send) {
    say_route(text, stream_route(peer.limits, costs, op.length));
    way.now = way.settled = Way::frames;
  } else if (op.remote != nullptr) {
    if (awaits_import(*op.remote)) text += "the memory is still being mapped: an operation posted now waits for that\n";
    chosen = explain_one_sided(text, op, &way);
  } else {
    chosen = explain_both(text, op);
  }
  text += std::string("chosen: ") + chosen + "\n";
  if (op.verb == Verb::send || op.verb == Verb::am) say_ways(text, op);
  say_way(text, way);
  return text;
}

}  // namespace thalweg::impl
