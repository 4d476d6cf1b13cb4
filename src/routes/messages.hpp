// SPDX-License-Identifier: Apache-2.0
// The ways of a message between host memories: one table, from which the sender takes its first step, the receiver of an RTS
// its way, and explain its text.
#pragma once
#include <array>
#include <cstdint>

#include <thalweg/thalweg.h>

#include "routes/limits.hpp"

namespace thalweg::impl {

/// A synchronous message that comes unasked carries the name of its operation, bytes.
inline constexpr uint64_t kSynchronousBytes = 8;

/// A longer header of an active message does not travel within its first frame, unless all of the message does.
inline constexpr uint32_t kShortHeader = TW_AM_HEADER_SHORT;

/// What is known of a message.
struct Message {
  uint32_t features = 0;  // of the link: LinkFeature
  uint64_t length = 0;
  bool synchronous = false;
  bool contiguous = true;   // the sender's buffer is one piece, whose address may be sent to the receiver
  bool library = false;     // ... of library-allocated memory
  bool packed = false;      // ... or is packed by the user's functions, so no other reads it
  bool unpacked = false;    // what is received is unpacked by the user's functions, so the kernel does not write it
  bool rendezvous = false;  // TW_OP_RENDEZVOUS, or memory that a device moves, or that has to wait
  bool affordable = true;   // its sender has credit for all of it, but for a long header
  // Of an active message.
  bool active = false;
  uint32_t header = 0;            // bytes that travel with it
  bool unasked = false;           // TW_OP_EAGER
  bool whole_affordable = true;   // of one with a long header: there is credit for that, too
  bool header_affordable = true;  // ... and for that alone
  bool header_refused = false;    // the receiver has no memory for that: it waits for credit, which may never take both
};
inline bool long_header(const Message& message) { return message.header > kShortHeader; }

/// Chosen by the sender: the first three; a receiver chooses among the others.
enum class MessageRoute : uint8_t { single, segmented, direct, kernel, frames, count_ };
inline constexpr size_t kMessageRoutes = static_cast<size_t>(MessageRoute::count_);
constexpr uint32_t bit_of(MessageRoute route) { return 1u << static_cast<unsigned>(route); }
/// As users see it.
constexpr Way way_of(MessageRoute route) {
  switch (route) {
    case MessageRoute::direct:
      return Way::mapped;
    case MessageRoute::kernel:
      return Way::kernel;
    case MessageRoute::frames:
      return Way::frames;
    default:
      return Way::eager;
  }
}

/// Is it sent by copy in one frame, whatever its buffer?
inline bool fits_copy(const Limits& limits, const Message& message) {
  return message.length + message.header + (message.synchronous ? kSynchronousBytes : 0) <= limits.copy;
}

/// An active message's: as if its header were short. single or segmented without credit: it waits for that.
inline MessageRoute active_route(const Limits& limits, const Message& message) {
  const uint64_t length = message.length, body = length + message.header;
  if ((message.rendezvous || message.header_refused) && length != 0) return MessageRoute::frames;
  MessageRoute route = length <= limits.eager || message.unasked ? MessageRoute::segmented : MessageRoute::frames;
  const bool referred = message.contiguous && length >= limits.reference && body <= limits.single;
  const bool header_fits = !long_header(message) || message.whole_affordable;
  if ((body <= limits.copy || referred) && header_fits) route = MessageRoute::single;
  return message.affordable || message.unasked || length == 0 ? route : MessageRoute::frames;
}

/// How the header of an active message comes: within the message's first frame, or ahead of it in frames of its own: on
/// credit, or once the receiver has been asked for its memory. waits: for credit.
enum class HeaderWay : uint8_t { within, ahead, asked, waits };
inline HeaderWay header_way(const Limits& limits, const Message& message) {
  if (!long_header(message)) return HeaderWay::within;
  const MessageRoute route = active_route(limits, message);
  if (route == MessageRoute::single) return HeaderWay::within;
  if (route == MessageRoute::frames ? message.header_affordable : message.whole_affordable) return HeaderWay::ahead;
  return message.unasked ? HeaderWay::waits : HeaderWay::asked;
}

/// The sender's: single, segmented, or frames: it sends an RTS, and the receiver chooses.
inline MessageRoute sending_route(const Limits& limits, const Message& message) {
  if (message.active) return active_route(limits, message);
  if (message.rendezvous || !message.affordable) return MessageRoute::frames;
  if (fits_copy(limits, message)) return MessageRoute::single;
  if (message.synchronous || message.length > limits.eager) return MessageRoute::frames;
  if (message.library && message.length >= limits.mapped_from) return MessageRoute::frames;  // one copy instead of two
  return message.contiguous && message.length <= limits.single ? MessageRoute::single : MessageRoute::segmented;
}

/// After an RTS: direct, kernel or frames. `failed`: bits of routes that failed.
MessageRoute rts_route(const Limits& limits, const Message& message, uint32_t failed = 0);

/// The buffer that a rendezvous payload comes into.
struct ReceiveBuffer {
  bool contiguous = true;
  bool library = false;
};
/// What both ends copy is cut here, bytes.
inline constexpr uint64_t kSplit = 4096;
/// How many of the first `length` bytes the receiver copies itself by `route`, direct or kernel; the rest the sender copies
/// at the same time.
uint64_t receivers_part(const Limits& limits, uint32_t features, MessageRoute route, uint64_t length,
                        const ReceiveBuffer& into);

/// A line of explain.
struct Route {
  const char* name = "";
  double predicted_ns = 0;
  const char* why_not = nullptr;  // impossible
  const char* note = "";          // of the chosen one what it does, of another one why it lost
  bool chosen = false;
};
/// All of them in the order of the enumeration.
std::array<Route, kMessageRoutes> message_routes(const Limits& limits, const LinkCosts& costs, const Message& message);
/// The only one of a byte stream.
Route stream_route(const Limits& limits, const LinkCosts& costs, uint64_t length);

}  // namespace thalweg::impl
