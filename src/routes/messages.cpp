// SPDX-License-Identifier: Apache-2.0
#include "routes/messages.hpp"

#include "transports/transport.hpp"

namespace thalweg::impl {
namespace {

constexpr uint32_t bit(MessageRoute route) { return 1u << static_cast<unsigned>(route); }

const char* why_not_single(const Limits& limits, const Message& message) {
  if (message.announced) return "asked to be announced, or not ready";
  if (message.length + message.header > limits.single) return "larger than one frame";
  const bool referred = message.contiguous && (!message.active || message.length >= limits.reference);
  return referred || message.length + message.header <= limits.copy ? nullptr : "larger than a frame that is copied";
}

const char* why_not_segmented(const Limits& limits, const Message& message) {
  if (message.announced) return "asked to be announced, or not ready";
  if (why_not_single(limits, message) == nullptr) return "fits one frame";
  if (message.length > limits.eager && !message.unasked) return "too large to be sent without asking";
  return message.synchronous ? "synchronous sends of this size are announced" : nullptr;
}

const char* why_not_direct(const Message& message) {
  if ((message.features & (kLinkMaps | kLinkSameProcess)) == 0) return "this link maps no memory";
  if ((message.features & kLinkSameProcess) != 0 && message.contiguous) return nullptr;
  return message.library ? nullptr : "the buffer is not from tw_alloc, or is not one piece";
}

const char* why_not_kernel(const Message& message) {
  if ((message.features & kLinkSameProcess) != 0) return "this process reaches the buffer itself";
  if ((message.features & kLinkSingleCopy) == 0) return "another machine, or ptrace is forbidden";
  return message.contiguous ? nullptr : "the buffer is not one piece";
}

}  // namespace

MessageRoute announced_route(const Limits& limits, const Message& message, uint32_t failed) {
  const bool same = (message.features & kLinkSameProcess) != 0;
  const bool direct = why_not_direct(message) == nullptr && (same || message.length >= limits.mapped_from);
  if (direct && (failed & bit(MessageRoute::direct)) == 0) return MessageRoute::direct;
  const bool kernel = why_not_kernel(message) == nullptr && message.length >= limits.kernel_from;
  if (kernel && (failed & bit(MessageRoute::kernel)) == 0) return MessageRoute::kernel;
  return MessageRoute::frames;
}

std::array<Route, kMessageRoutes> message_routes(const Limits& limits, const LinkCosts& costs, const Message& message) {
  const uint64_t length = message.length;
  const bool reference = limits.reference != UINT32_MAX && message.contiguous;
  const double bytes = static_cast<double>(length);
  MessageRoute chosen = message.active ? active_route(limits, message) : sending_route(limits, message);
  const bool announced = chosen == MessageRoute::frames;
  if (announced) chosen = announced_route(limits, message);
  const char* const twice = "the bytes would be copied twice";
  const char* const dear = "the handshake costs more than it saves at this size";
  std::array<Route, kMessageRoutes> routes = {{
      {"eager", costs.frame + costs.serial_copy * bytes, why_not_single(limits, message), twice, false},
      {"segmented", 2 * costs.frame + bytes_ns(costs.copy, costs.copy_large, length), why_not_segmented(limits, message), twice,
       false},
      {"rendezvous, direct copy", mapped_ns(costs, length), why_not_direct(message),
       announced ? "costs more per byte on this machine" : dear, false},
      {"rendezvous, kernel copy", kernel_ns(costs, length), why_not_kernel(message),
       announced ? "costs more at this size on this machine" : dear, false},
      {"rendezvous, data frames", frames_ns(costs, reference, length), nullptr, announced ? "slower" : dear, false},
  }};
  constexpr const char* kDone[kMessageRoutes] = {
      "", "", "copied by the receiver; large ones by both ends when both buffers are from tw_alloc",
      "process_vm_readv; large ones by both ends", "copied in and out at the same time"};
  Route& route = routes[static_cast<size_t>(chosen)];
  route.chosen = true;
  route.note =
      chosen == MessageRoute::frames && reference ? "sent from the caller's memory" : kDone[static_cast<size_t>(chosen)];
  return routes;
}

}  // namespace thalweg::impl
