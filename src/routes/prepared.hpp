// SPDX-License-Identifier: Apache-2.0
// The ways of what is prepared once and run by loads and stores: steps of plans, parts of windows, ends of channels. One
// table, from which plans and windows take how their runner reaches a memory, and tw_plan_explain its text.
#pragma once
#include <array>
#include <cstdint>
#include <string>

#include "memory/place.hpp"
#include "routes/costs.hpp"
#include "routes/messages.hpp"

namespace thalweg::impl {

inline constexpr uint64_t kCacheLine = 64;

/// One memory, and the runner of what touches it.
struct Prepared {
  bool by_device = false;  // kernels of a device; false: this CPU
  Place place;
  bool mine = false;       // of this process, its address is known
  bool access = true;      // memory of a device: the runner's kernels reach it, or only an import can decide
  bool atomics = false;    // ... and their atomic operations are atomic there
  bool changes = false;    // words are changed by atomic operations, or by signals that add
  bool waits = false;      // a word is waited for
  bool carriable = false;  // the host may do it for the runner
  bool along = false;      // it goes with something that is carried: a step's other memory, a channel's other buffer
  uint64_t row = 0;        // bytes of a receive's rows, on average; all of a contiguous one's
  bool mapped = false;     // a receive's channel is, though it would be packed: a kernel or other plans use it so
  /// Of rows shorter than a cache line the sender's stores would take a line each, and the flag behind them one more: an operation
  /// that packs them takes less.
  bool prefers_packing() const { return row != 0 && row < kCacheLine && carriable && !by_device; }
  bool packed() const { return prefers_packing() && !mapped; }
};

enum class PreparedRoute : uint8_t {
  own,       // at the memory's own address
  mapped,    // the CPU, where the peer's memory is mapped
  pinned,    // kernels, in host memory that is pinned here for them: mapped here, or of this process
  imported,  // kernels, in a peer's device memory
  carried,   // the host, by an ordinary operation
  none,
};
inline constexpr size_t kPreparedRoutes = static_cast<size_t>(PreparedRoute::none);
constexpr uint32_t bit_of(PreparedRoute route) { return 1u << static_cast<unsigned>(route); }

/// Null: possible.
const char* why_not(const Prepared& memory, PreparedRoute route);
/// The best one that has not failed (`failed`: bits). Ways without another process come before what is carried,
/// except where two CPUs would hand each other a line for each short row: an operation packs them. 1,024 rows of 8 bytes
/// took 4 times as long.
PreparedRoute prepared_route(const Prepared& memory, uint32_t failed = 0);
/// Why the runner does not get there by itself: of the way that would be the usual one for such memory.
const char* why_not_reached(const Prepared& memory);
/// The table as text, a line for each route. `why`: how the last one of `failed` failed.
std::string prepared_table(const Prepared& memory, uint32_t failed, const std::string& why);

/// Is memory of this place moved by kernels of its device, if a step's runner is not given?
inline bool wants_device(const Place& place) { return !place.reached(kByCpu | kByCpuBehind); }

/// Do the two ends of a channel reach each other's words by themselves, as far as their runners decide? Null: yes.
const char* why_not_paired(bool by_device_here, bool by_device_there);
/// Is a channel mapped whose ends reach each other, or carried because of its receiver? kernel_there: the sender's end is a
/// kernel's, for which the host carries nothing. Null: mapped.
const char* why_not_mapped_channel(bool prefers_packing, bool kernel_there);

/// Does a device's kernel copy the bytes of a step that the host carries to a bounce buffer in pinned memory (or out of it), which the
/// host then sends or receives? Else the host names the device's memory, and an engine copies: it has to start, but then it is under
/// way together with the link. So kernels copy what takes less time, on the bus and through the link one after the other, than an
/// engine takes to start. engine: between the device and pinned memory; link_byte: nanoseconds of a byte.
constexpr bool bounced(uint64_t bytes, const CopyCosts& engine, double link_byte) {
  return static_cast<double>(bytes) * (engine.byte + link_byte) <= engine.fixed;
}

/// By which way a run of a step moves its bytes, under the names of the counters. A receiver's end moves none.
constexpr Way way_of_step(bool by_device, bool reads) { return !by_device ? Way::mapped : reads ? Way::pull : Way::push; }

}  // namespace thalweg::impl
