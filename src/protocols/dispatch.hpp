// SPDX-License-Identifier: Apache-2.0
// Which protocol handles which frame, and which starts which verb: two tables and nothing else.
#pragma once
#include "protocols/engine.hpp"

namespace thalweg::impl {

/// Handlers validate every length before use: frames are bytes from outside. `body` holds header.length bytes.
using FrameHandler = void (*)(Engine& engine, Peer& peer, const FrameHeader& header, const std::byte* body);
/// By FrameHeader.type; null: unknown.
FrameHandler frame_handler(uint8_t type);

using Starter = Status (*)(Engine& engine, const OpDesc& op, const Completion& completion);
extern const Starter kStarters[static_cast<size_t>(Verb::count_)];  // null: not started this way

/// Copies a fixed body out of a frame; false when the frame is too short for it.
template <typename Body>
inline bool read_body(const FrameHeader& header, const std::byte* body, Body* out) {
  if (header.length < sizeof(Body)) return false;
  __builtin_memcpy(out, body, sizeof(Body));
  return true;
}

}  // namespace thalweg::impl
