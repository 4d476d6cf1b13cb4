// SPDX-License-Identifier: Apache-2.0
#include "routes/messages.hpp"

#include "transports/transport.hpp"

namespace thalweg::impl {
namespace {

constexpr char kRtsSent[] = "asked to be announced, moved by a device, or not ready";
constexpr char kPacked[] = "the message is packed by the user's functions, and in no memory that others read";

/// An active message without bytes has no payload for an RTS.
bool announced(const Message& message) { return message.rendezvous && !(message.active && message.length == 0); }

/// Without credit the sender sends an RTS, unless there is no payload or TW_OP_EAGER forbids it.
const char* why_no_credit(const Message& message) {
  const bool waits = message.unasked || (message.active && message.length == 0);
  return message.affordable || waits ? nullptr : "its sender has no credit for it";
}

/// ... in one frame.
const char* why_too_large(const Limits& limits, const Message& message) {
  if (long_header(message) && !message.whole_affordable) return "there is no credit for its header, too";
  if (fits_copy(limits, message)) return nullptr;
  if (message.length + message.header > limits.single) return "larger than one frame";
  if (message.synchronous) return "larger than a frame that is copied, which tells its sender of the match";
  const bool referred = message.contiguous && (!message.active || message.length >= limits.reference);
  return referred ? nullptr : "larger than a frame that is copied";
}

const char* why_not_single(const Limits& limits, const Message& message) {
  if (announced(message)) return kRtsSent;
  if (const char* const why = why_too_large(limits, message); why != nullptr) return why;
  return why_no_credit(message);
}

const char* why_not_segmented(const Limits& limits, const Message& message) {
  if (announced(message)) return kRtsSent;
  if (why_too_large(limits, message) == nullptr) return "fits one frame";
  if (message.length > limits.eager && !message.unasked) return "too large to be sent without asking";
  return message.synchronous ? "synchronous sends of this size are announced" : why_no_credit(message);
}

const char* why_not_direct(const Message& message) {
  if ((message.features & (kLinkMaps | kLinkSameProcess)) == 0) return "this link maps no memory";
  if (message.packed) return kPacked;
  if ((message.features & kLinkSameProcess) != 0 && message.contiguous) return nullptr;
  return message.library ? nullptr : "the buffer is not from tw_allocate, or is not one piece";
}

const char* why_not_kernel(const Message& message) {
  if ((message.features & kLinkSameProcess) != 0) return "this process reaches the buffer itself";
  if ((message.features & kLinkSingleCopy) == 0) return "another machine, or ptrace is forbidden";
  if (message.packed) return kPacked;
  if (message.unpacked) return "what is received is unpacked by the user's functions, which the kernel does not call";
  return message.contiguous ? nullptr : "the buffer is not one piece";
}

}  // namespace

MessageRoute rts_route(const Limits& limits, const Message& message, uint32_t failed) {
  const bool same = (message.features & kLinkSameProcess) != 0;
  const bool direct = why_not_direct(message) == nullptr && (same || message.length >= limits.mapped_from);
  if (direct && (failed & bit_of(MessageRoute::direct)) == 0) return MessageRoute::direct;
  const bool kernel = why_not_kernel(message) == nullptr && message.length >= limits.kernel_from;
  if (kernel && (failed & bit_of(MessageRoute::kernel)) == 0) return MessageRoute::kernel;
  return MessageRoute::frames;
}

uint64_t receivers_part(const Limits& limits, uint32_t features, MessageRoute route, uint64_t length,
                        const ReceiveBuffer& into) {
  const bool told =
      into.contiguous && (route == MessageRoute::kernel || into.library);  // the address can be sent to the sender
  const uint64_t half = length / 2 / kSplit * kSplit;
  const bool both = told && (features & kLinkSameProcess) == 0 && length >= limits.halves && half / kSplit < UINT32_MAX;
  return both && half != 0 ? half : length;
}

namespace {

/// What the chosen one does.
const char* note_of(const Limits& limits, const Message& message, MessageRoute route) {
  const bool both = receivers_part(limits, message.features, route, message.length, {true, true}) != message.length;
  switch (route) {
    case MessageRoute::direct:
      return both ? "copied by both ends where the receiver's buffer is one piece from tw_allocate, else by the receiver"
                  : "copied by the receiver";
    case MessageRoute::kernel:
      return both ? "process_vm_readv, by both ends where the receiver's buffer is one piece" : "process_vm_readv";
    case MessageRoute::frames:
      if (message.packed) return "packed into the frames by the user's functions";
      return by_reference(limits, message.contiguous, message.length) ? "sent from the caller's memory"
                                                                      : "copied in and out at the same time";
    case MessageRoute::single:
      return single_by_reference(limits, message.contiguous, message.length, message.length + message.header)
                 ? "sent from the caller's memory"
             : message.packed ? "packed into the frame by the user's functions"
                              : "";
    default:
      return message.packed ? "packed into the frames by the user's functions" : "";
  }
}

}  // namespace

std::array<Route, kMessageRoutes> message_routes(const Limits& limits, const LinkCosts& costs, const Message& message) {
  const uint64_t length = message.length;
  const bool reference = by_reference(limits, message.contiguous, length);
  const double bytes = static_cast<double>(length);
  MessageRoute chosen = sending_route(limits, message);
  const bool announced = chosen == MessageRoute::frames;
  if (announced) chosen = rts_route(limits, message);
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
  Route& route = routes[static_cast<size_t>(chosen)];
  route.chosen = true;
  route.note = note_of(limits, message, chosen);
  return routes;
}

Route stream_route(const Limits& limits, const LinkCosts& costs, uint64_t length) {
  const bool reference = by_reference(limits, true, length);
  const double bytes =
      reference ? bytes_ns(costs.reference, costs.reference_large, length) : bytes_ns(costs.copy, costs.copy_large, length);
  return {"stream", costs.frame + bytes, nullptr, reference ? "sent from the caller's memory" : "in frames", true};
}

}  // namespace thalweg::impl
