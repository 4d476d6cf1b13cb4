// SPDX-License-Identifier: Apache-2.0
// Describes a memory by what reaches it from this process: the input of src/routes. One constructor for memory of this
// process; a peer's memory (keys, RTS messages) is described in routes/peer_places.hpp.
#pragma once
#include "devices/device.hpp"

namespace thalweg::impl {
class Registry;

/// What of this process reaches a memory, as bits.
enum PlaceReach : uint32_t {
  kByCpu = 1u << 0,        // loads and stores of the CPU, at any time
  kByCpuBehind = 1u << 1,  // ... behind what devices do with it: managed memory
  kByEngine = 1u << 2,     // copy engines of devices
  kByKernel = 1u << 3,     // kernels: of its device, and where devices have access to each other; host memory: of every device
  kByPid = 1u << 4,        // the kernel's copy between two processes
  kByPort = 1u << 5,       // a peer's, which the link's port maps, or imports for a device
  kPinnable = 1u << 6,     // host memory that the library may pin: then kByEngine and kByKernel
};

/// Of memory of this process.
constexpr uint32_t reach_of(MemoryKind kind) {
  if (kind == MemoryKind::host) return kByCpu;
  if (kind == MemoryKind::pinned) return kByCpu | kByEngine | kByKernel;
  return kByEngine | kByKernel | (kind == MemoryKind::managed ? uint32_t{kByCpuBehind} : 0);
}
/// The CPU moves it whenever it likes. Else it goes by queues of devices, in their order.
constexpr bool by_cpu(MemoryKind kind) { return kind == MemoryKind::host || kind == MemoryKind::pinned; }
/// Devices move it.
constexpr bool by_devices(MemoryKind kind) { return kind != MemoryKind::host; }
static_assert(by_cpu(MemoryKind::pinned) == ((reach_of(MemoryKind::pinned) & kByCpu) != 0));

/// Whose atomic operations on its words are atomic among each other.
enum class AtomicDomain : uint8_t { cpu, device };

constexpr uint16_t kNodeUnknown = UINT16_MAX;

struct Place {
  MemoryKind kind = MemoryKind::host;
  ExportForm exports = ExportForm::none;  // of a peer's: any form but none, where a segment's name came with it
  AtomicDomain atomics = AtomicDomain::cpu;
  uint16_t node = kNodeUnknown;  // NUMA
  uint32_t reach = kByCpu;       // PlaceReach
  Uuid device{};                 // the device that owns or pinned it; zeros: none
  uint64_t buffer_id = 0;        // 0: none, or not known
  uint64_t base = 0, length = 0;
  bool reached(uint32_t any) const { return (reach & any) != 0; }
  /// Queues of devices move it, not this CPU.
  bool on_device() const { return !by_cpu(kind); }
};

Place place_of(const BufferInfo& info);
/// Of memory of this process that begins at `address`. `registry` not null: its library-allocated memory is known as such.
Place local_place(uint64_t address, uint64_t length, const Registry* registry = nullptr);

}  // namespace thalweg::impl
