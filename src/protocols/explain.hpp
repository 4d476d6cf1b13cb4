// SPDX-License-Identifier: Apache-2.0
// Parts of explain() (operation_routes.hpp).
#pragma once
#include <array>
#include <string>

#include "protocols/operation.hpp"
#include "routes/accesses.hpp"
#include "routes/blocks.hpp"
#include "routes/device_messages.hpp"
#include "routes/ways.hpp"

namespace thalweg::impl {

/// By which way an access moves its bytes, where what it comes behind travels as frames, and where that is applied at its
/// turn.
struct SaidWay {
  Way now = Way::any, settled = Way::any;
};

/// As explain(), of operations with device memory at one end at least; op.peer is connected.
std::string explain_device(const OpDesc& op);

// --- operation_routes.cpp
/// One line of a table.
void say_route(std::string& text, const Route& route);
/// The lines of a table. Returns the name of what is chosen.
template <size_t kLines>
const char* say_routes(std::string& text, const std::array<Route, kLines>& routes) {
  const char* name = "none";
  for (const Route& route : routes) {
    if (route.name[0] == '\0') continue;
    say_route(text, route);
    if (route.chosen) name = route.name;
  }
  return name;
}
/// An unnamed target of op's peer: of tw_memory_allocate (`library`) or tw_memory_register.
void any_target(const OpDesc& op, bool library, RemoteRegion* out);

// --- explain_device.cpp
/// Of a put, get or atomic that needs a device, as far as is known without trying, with what is predicted.
Access said_device_access_of(const OpDesc& op);
/// Null: kernels of the device that moves it get to both sides, as far as is known without trying. Otherwise why not, as a
/// sentence.
const char* why_no_kernels(const OpDesc& op);

// --- explain_blocks.cpp
/// The tables of a block transfer, of each kind of memory at the peer where none is named. The name of what is chosen, and
/// its way.
const char* explain_blocks(std::string& text, const OpDesc& op, SaidWay* way);

// --- explain_ways.cpp
SaidWay said_way(const Access& access);
SaidWay said_way(const Blocks& blocks);
/// Null if the local buffer, which is device memory, can be named to other processes.
const char* why_not_shared(const OpDesc& op);
/// Memory that may receive a message.
struct Into {
  const char* name;
  MemoryKind kind = MemoryKind::host;
  bool named = false;        // it can be named to the sender
  bool same_device = false;  // ... as the sender's memory is of
  bool library = false;
};
inline constexpr size_t kInto = 8;
std::array<Into, kInto> kinds_into(const OpDesc& op);
/// What the receiver will know of a message into such memory.
DeviceMessage device_message(const OpDesc& op, const Into& into);
/// "way into X: push, or where the receive is posted second: pull" and "progress into X: nobody" for each kind of memory
/// that may receive a message: its way, and whose progress it needs once both sides have posted.
void say_ways(std::string& text, const OpDesc& op);
/// "way: push", or "way: frames, or where all before it is applied at its turn: mapped". Of no way nothing.
void say_way(std::string& text, const SaidWay& way);

}  // namespace thalweg::impl
