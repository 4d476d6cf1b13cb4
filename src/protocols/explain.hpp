// SPDX-License-Identifier: Apache-2.0
// Parts of explain() (select.hpp).
#pragma once
#include <string>

#include "protocols/operation.hpp"
#include "routes/accesses.hpp"
#include "routes/device_messages.hpp"
#include "routes/ways.hpp"

namespace thalweg::impl {

/// As explain(), of operations with device memory at one end at least; op.peer is connected.
std::string explain_device(const OpDesc& op);

// --- select.cpp
/// One line of a table.
void say_route(std::string& text, const Route& route);
/// A target of op's peer that nobody named: of tw_memory_allocate (`library`) or tw_memory_register.
void any_target(const OpDesc& op, bool library, RemoteRegion* out);
/// The table of an access with device memory at one end at least, its way and the name of what is chosen.
std::string explain_device_target(const OpDesc& op, Access access, Way* way, const char** chosen);

// --- explain_blocks.cpp
/// The tables of a block transfer, of each kind of memory at the peer where none is named. The name of what is chosen, and its way.
const char* explain_blocks(std::string& text, const OpDesc& op, Way* way);

// --- explain_ways.cpp
/// Null when other processes can be told of the local buffer, which is device memory.
const char* why_not_shared(const OpDesc& op);
/// What the receiver will know of a message into memory of this kind; named: the sender can be told of that.
DeviceMessage device_message(const OpDesc& op, MemoryKind to, bool named);
/// "way into X: push, or where the receive is posted second: pull" and "progress into X: nobody" for each kind of memory that may receive
/// a message: its way, and whose progress it needs once both sides have posted.
void say_ways(std::string& text, const OpDesc& op);
/// "way: push".
void say_way(std::string& text, Way way);

}  // namespace thalweg::impl
