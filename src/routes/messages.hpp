// SPDX-License-Identifier: Apache-2.0
// The ways of a message between host memories: one table, from which the sender takes its first step, the receiver of an announcement
// its way, and explain its text.
#pragma once
#include <array>
#include <cstdint>

#include "routes/limits.hpp"

namespace thalweg::impl {

/// What is known of a message.
struct Message {
  uint32_t features = 0;  // of the link: LinkFeature
  uint64_t length = 0;
  bool synchronous = false;
  bool contiguous = true;  // the sender's buffer is one piece, whose address the receiver may be told
  bool library = false;    // ... of library-allocated memory
  // Of an active message.
  bool active = false;
  uint32_t header = 0;     // bytes that travel with it
  bool unasked = false;    // TW_OP_EAGER
  bool announced = false;  // TW_OP_RENDEZVOUS, or memory that a device moves, or that has to wait
  bool affordable = true;  // its sender has credit for all of it
};

/// Chosen by the sender: the first three; a receiver chooses among the others.
enum class MessageRoute : uint8_t { single, segmented, direct, kernel, frames, count_ };
inline constexpr size_t kMessageRoutes = static_cast<size_t>(MessageRoute::count_);

/// The sender's: single, segmented, or frames: it is announced, and the receiver chooses.
inline MessageRoute sending_route(const Limits& limits, const Message& message) {
  const uint64_t answer = message.synchronous ? sizeof(uint64_t) : 0;
  if (message.length + answer <= limits.copy) return MessageRoute::single;
  if (message.synchronous || message.length > limits.eager) return MessageRoute::frames;
  if (message.library && message.length >= limits.mapped_from) return MessageRoute::frames;  // one copy instead of two
  return message.contiguous && message.length <= limits.single ? MessageRoute::single : MessageRoute::segmented;
}

/// The same of an active message. single or segmented without credit: it waits for that.
inline MessageRoute active_route(const Limits& limits, const Message& message) {
  const uint64_t length = message.length, body = length + message.header;
  if (message.announced && length != 0) return MessageRoute::frames;
  MessageRoute route = length <= limits.eager || message.unasked ? MessageRoute::segmented : MessageRoute::frames;
  const bool referred = message.contiguous && length >= limits.reference && body <= limits.single;
  if (body <= limits.copy || referred) route = MessageRoute::single;
  return message.affordable || message.unasked || length == 0 ? route : MessageRoute::frames;
}

/// Of what was announced: direct, kernel or frames. `failed`: bits of routes that were tried in vain.
MessageRoute announced_route(const Limits& limits, const Message& message, uint32_t failed = 0);

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

}  // namespace thalweg::impl
