// SPDX-License-Identifier: Apache-2.0
// Costs of links, thresholds of peers, the choice of a send's protocol, and the table that says so aloud.
#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>

#include "memory/registry.hpp"
#include "protocols/cost.hpp"
#include "protocols/eager.hpp"
#include "protocols/engine.hpp"
#include "protocols/explain.hpp"
#include "protocols/one_sided.hpp"
#include "protocols/rendezvous.hpp"

namespace thalweg::impl {

namespace {

const CostTable kDefaults;

// A message is announced from where asking (one more round trip) takes less than a twenty-fourth of the transfer, and both ends
// copy from where that exchange takes less than a quarter of what it saves. Whole powers of two, so that noise in measured costs changes
// nothing; within bounds, because an eager message takes the receiver's memory unasked and a long one keeps others waiting.
constexpr double kAskShare = 24, kHalvesShare = 8;
constexpr uint64_t kEagerLeast = 32u << 10, kEagerMost = 256u << 10;
constexpr uint64_t kHalvesLeast = 64u << 10, kHalvesMost = 1u << 20;
constexpr uint32_t kReferenceFrom = 8u << 10;  // below, one copy is cheaper than a second piece for a system call
constexpr uint32_t kSmallest = 512;            // of a fragment: prefixes must fit

/// The length of which `share` round trips take as long as the bytes do, as a power of two within bounds.
uint64_t length_worth(double share, double frame, double ns_per_byte, uint64_t least, uint64_t most) {
  const double length = share * 2 * frame / ns_per_byte;
  if (!(length > static_cast<double>(least))) return least;
  return length >= static_cast<double>(most) ? most : std::bit_floor(static_cast<uint64_t>(length));
}

double resident_fixed(const DeviceCosts& costs, unsigned blocks) {
  return costs.resident + costs.resident_block * (blocks - 1);
}
double resident_byte(const DeviceCosts& costs, unsigned blocks) { return costs.resident_byte * (blocks + 2) / 3; }
}  // namespace

double resident_ns(const DeviceCosts& costs, unsigned blocks, uint64_t bytes) {
  return resident_fixed(costs, blocks) + resident_byte(costs, blocks) * static_cast<double>(bytes);
}

uint64_t resident_most(const DeviceCosts& costs, unsigned blocks) {
  constexpr double kMost = 1u << 20;  // beyond it others would wait for too long
  const double gain = costs.write - resident_fixed(costs, blocks), more = resident_byte(costs, blocks) - costs.link;
  return gain <= 0 ? 0 : static_cast<uint64_t>(more <= 0 ? kMost : std::min(gain / more, kMost));
}

const LinkCosts& costs_of(const Peer& peer) {
  const CostTable* const given = peer.engine->options().costs;
  const CostTable& table = given != nullptr ? *given : kDefaults;
  if ((peer.link->features & kLinkByReference) != 0) return table.tcp;
  if ((peer.link->features & kLinkSameProcess) != 0) return table.self;
  return table.shm;
}

Limits limits_of(const Link& link, const LinkCosts& costs) {
  Limits limits;
  limits.copy = link.copy_max;
  limits.fragment = std::clamp(link.fragment, std::min(kSmallest, link.copy_max), link.copy_max);
  limits.single = link.copy_max;
  limits.reference = UINT32_MAX;
  limits.reference_fragment = limits.fragment;
  bool reference = (link.features & kLinkByReference) != 0 && link.reference_max >= kReferenceFrom;
  if (reference) {
    limits.reference = std::min(kReferenceFrom, link.copy_max + 1);  // what cannot be copied must go by reference
    limits.reference_fragment = std::clamp(link.fragment, limits.reference, link.reference_max);
    limits.single = std::max(limits.single, limits.reference_fragment);
  }
  const double per_byte = reference ? costs.reference : costs.copy;
  limits.eager = std::max<uint64_t>(length_worth(kAskShare, costs.frame, per_byte, kEagerLeast, kEagerMost), limits.single);
  limits.halves = length_worth(kHalvesShare, costs.frame, costs.mapped, kHalvesLeast, kHalvesMost);
  bool same = (link.features & kLinkSameProcess) != 0;
  // Through the ring both ends copy all of it, a mapped source is copied once: by one end, or a half by each.
  limits.mapped_pull = (link.features & kLinkMaps) != 0 && costs.mapped < 2 * costs.copy;
  limits.kernel_pull = !same && (link.features & kLinkSingleCopy) != 0 && costs.kernel < costs.copy;
  // The same process: one direct copy beats two through the link as soon as the handshake is paid.
  if (same && !reference) limits.eager = limits.single;
  return limits;
}

bool in_segment(const OpDesc& op) {
  uint64_t segment = 0, offset = 0;
  const Registry* registry = op.peer->engine->options().registry;
  return op.layout == nullptr && op.address != nullptr && registry != nullptr &&
         registry->find_segment(op.address, op.length, &segment, &offset);
}

Path path_of(const OpDesc& op) {
  Path path;
  const Peer& peer = *op.peer;
  path.limits = peer.limits;
  path.contiguous = op.layout == nullptr;
  if (peer.link == nullptr) return path;
  path.features = peer.link->features;
  path.costs = costs_of(peer);
  path.segment = in_segment(op);
  return path;
}

const Protocol& select_send(const OpDesc& op) {
  const Limits& limits = op.peer->limits;
  bool sync = (op.flags & TW_OP_SYNC) != 0;
  if ((op.flags & (kOpDevice | kOpLate)) != 0) return kRendezvousSend;  // the receiver chooses the way
  if (op.length + (sync ? sizeof(uint64_t) : 0) <= limits.copy) return kEagerSingle;
  if (sync || op.length > limits.eager) return kRendezvousSend;
  if (limits.mapped_pull && in_segment(op)) return kRendezvousSend;  // one copy instead of two
  return op.layout == nullptr && op.length <= limits.single ? kEagerSingle : kEagerSegmented;
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

/// How a rendezvous would move the bytes: one line per way, with the receiver's choice marked. Its name.
const char* rendezvous_ways(std::string& text, const OpDesc& op, bool chosen) {
  Path path = path_of(op);
  const LinkCosts& costs = path.costs;
  double handshake = 3 * costs.frame;
  bool same = (path.features & kLinkSameProcess) != 0 && path.contiguous;
  bool direct = same || (path.segment && path.limits.mapped_pull);
  bool kernel = !direct && path.contiguous && path.limits.kernel_pull;
  bool reference = path.limits.reference != UINT32_MAX && path.contiguous;
  const char* direct_note = "copied by the receiver; large ones by both ends when both buffers are from tw_alloc";
  const char* no_direct = nullptr;
  if ((path.features & (kLinkMaps | kLinkSameProcess)) == 0) {
    no_direct = "this link maps no memory";
  } else if (!direct) {
    no_direct = "the buffer is not from tw_alloc, or is not one piece";
  }
  const char* kernel_note = kernel ? "process_vm_readv" : "costs more per byte on this machine";
  const char* no_kernel = nullptr;
  if ((path.features & kLinkSingleCopy) == 0) no_kernel = "another machine, or ptrace is forbidden";
  const char* const dear = "the handshake costs more than it saves at this size";
  if (!chosen && direct) direct_note = dear;
  if (!chosen && kernel) kernel_note = dear;
  const char* frames_note = reference ? "sent from the caller's memory" : "copied in and out at the same time";
  if (direct || kernel) frames_note = "slower";
  if (!chosen) frames_note = dear;
  line(text, chosen && direct, "rendezvous, direct copy", {handshake, costs.mapped, no_direct}, op.length, direct_note);
  line(text, chosen && kernel, "rendezvous, kernel copy", {handshake + costs.kernel_fixed, costs.kernel, no_kernel}, op.length,
       kernel_note);
  line(text, chosen && !direct && !kernel, "rendezvous, data frames",
       {handshake, reference ? costs.reference : costs.copy, nullptr}, op.length, frames_note);
  return direct ? "rendezvous, direct copy" : kernel ? "rendezvous, kernel copy" : "rendezvous, data frames";
}

const char* explain_messages(std::string& text, const OpDesc& op) {
  const Protocol* chosen = &select_send(op);
  for (const Protocol* protocol : {&kEagerSingle, &kEagerSegmented}) {
    Cost cost;
    protocol->probe(op, cost);
    line(text, protocol == chosen, protocol->name, cost, op.length,
         protocol == chosen ? "" : "the bytes would be copied twice");
  }
  const char* way = rendezvous_ways(text, op, chosen == &kRendezvousSend);
  return chosen == &kRendezvousSend ? way : chosen->name;
}

const char* explain_one_sided(std::string& text, const OpDesc& op) {
  const Protocol* chosen = choose_one_sided(op);
  for (const Protocol* const* at = one_sided_protocols(op.verb); *at != nullptr; ++at) {
    Cost cost;
    (*at)->probe(op, cost);
    const char* note = "slower";
    if (*at == chosen) {
      note = needs_target(**at) ? "applied by the target's progress" : "needs no CPU of the target";
    } else if (needs_target(**at)) {
      note = "needs the target's progress; the chosen one does not";
    }
    line(text, *at == chosen, (*at)->name, cost, op.length, note);
  }
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
    if (library && (link_features(given) & kLinkMaps) != 0) region.mapped = anywhere;
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
  const CostTable* const table = peer.engine->options().costs;
  const bool measured = table != nullptr && table->source != kDefaults.source;
  char head[160];
  std::snprintf(head, sizeof head, "%llu bytes over %s (* = chosen; predicted one way, from %s costs)\n",
                static_cast<unsigned long long>(op.length), peer.link->port->name(), measured ? "measured" : "default");
  std::string text = head;
  const char* chosen = "stream";
  if (op.verb == Verb::send || op.verb == Verb::am) {
    chosen = explain_messages(text, op);
  } else if (op.verb == Verb::bytes_send) {
    bool reference = op.length >= peer.limits.reference;
    line(text, true, "stream", {costs.frame, reference ? costs.reference : costs.copy, nullptr}, op.length,
         reference ? "sent from the caller's memory" : "in frames");
  } else if (op.remote != nullptr) {
    if (awaits_import(*op.remote)) text += "the memory is still being mapped: an operation posted now waits for that\n";
    chosen = explain_one_sided(text, op);
  } else {
    chosen = explain_both(text, op);
  }
  return text + "chosen: " + chosen + "\n";
}

}  // namespace thalweg::impl
