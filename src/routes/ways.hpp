// SPDX-License-Identifier: Apache-2.0
// What can move the bytes of an operation, by the names that users see, and the one that may be forced.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace thalweg::impl {

enum class Way : uint8_t {
  any,      // none is forced
  eager,    // messages: unasked, through the link
  frames,   // through the link; of a rendezvous, data frames
  mapped,   // by this CPU, in memory of the other side that is mapped here, or of this process
  kernel,   // by the kernel, between two processes (process_vm_readv)
  push,     // messages with device memory: by the sender's device
  pull,     // ... by the receiver's
  staging,  // device memory through pinned host memory
  count_,
};
inline constexpr size_t kWays = static_cast<size_t>(Way::count_);
const char* name_of(Way way);

/// "eager", "frames", ... -> Way; "" and "any": Way::any. False: none of these.
bool way_named(std::string_view name, Way* way);
/// The names, for texts.
inline constexpr char kWayNames[] = "eager, frames, mapped, kernel, push, pull or staging";

/// May `way` be taken where `forced` is in force? Frames may always: what else is impossible goes by them.
constexpr bool allowed(Way forced, Way way) { return forced == Way::any || forced == way || way == Way::frames; }

}  // namespace thalweg::impl
