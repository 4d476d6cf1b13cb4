// SPDX-License-Identifier: Apache-2.0
// Which protocol handles which frame, and which starts which verb: two tables and nothing else.
#pragma once
#include "protocols/engine.hpp"

namespace thalweg::impl {

/// Handlers validate every length before use: frames are bytes from outside. `body` holds header.length bytes, which the
/// sender may still change: they are read once.
using FrameHandler = void (*)(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body);
/// By FrameHeader.type; null: unknown.
FrameHandler frame_handler(uint8_t type);

using Starter = Status (*)(Engine& engine, const OpDesc& op, const Completion& completion);
extern const Starter kStarters[static_cast<size_t>(Verb::count_)];  // null: not started this way

}  // namespace thalweg::impl
