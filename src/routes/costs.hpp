// SPDX-License-Identifier: Apache-2.0
// What moving bytes costs: of links between processes, and of copies by devices.
#pragma once
#include <cstdint>
#include <string>

#include "devices/device_link.hpp"
#include "topology/processors.hpp"

namespace thalweg::impl {

/// Costs of a link, in nanoseconds and nanoseconds per byte. Two of a byte: up to kLarge bytes of a message caches hold much
/// of it; of what is beyond, memory says how fast it goes.
struct LinkCosts {
  const char* name;
  double frame;         // a small frame, one way
  double copy;          // per byte through the link with copy in and copy out overlapped (a stream of fragments)
  double serial_copy;   // per byte when both copies follow each other (one frame)
  double reference;     // per byte by reference
  double mapped;        // per byte, copied directly from mapped memory by one end
  double kernel_fixed;  // one read_peer / write_peer
  double kernel;        // per byte of those, by both ends at the same time
  double copy_large = 0, mapped_large = 0, kernel_large = 0, reference_large = 0;  // beyond kLarge; 0: as before it
  double streamed = 0;  // 1: those of `copy` are of a producer that copies into the ring by non-temporal stores, as it begins
  double stream_copy = 0;  // per byte of such a producer, chosen or not
  double wide = 0;  // 1: a producer that moves much gets a wide ring (transports/shm/deep_ring.hpp); those of `copy` are of one
};
inline constexpr uint64_t kLarge = 1u << 20;

/// Nanoseconds of `length` bytes.
constexpr double bytes_ns(double each, double large, uint64_t length) {
  if (length <= kLarge || large == 0) return each * static_cast<double>(length);
  return each * static_cast<double>(kLarge) + large * static_cast<double>(length - kLarge);
}

/// Nanoseconds of one copy: until the host knows of its end, for no bytes, and for each byte.
struct CopyCosts {
  double fixed = 0, byte = 0;
  constexpr double ns(uint64_t bytes) const { return fixed + byte * static_cast<double>(bytes); }
};

/// Costs of copies by an idle device: those of an engine, and of the persistent kernel of one block. Until they are measured:
/// H200, the link NVLink. Between devices on the bus, unmeasured costs are those to host memory.
struct DeviceCosts {
  CopyCosts out{8500, 0.019}, in{7260, 0.019};                       // to pinned memory and from it
  CopyCosts local{6700, 0.0013};                                     // within the device
  CopyCosts nvlink_write{6700, 0.0026}, nvlink_read{10300, 0.0026};  // to another device and from it
  CopyCosts pcie_write{7260, 0.025}, pcie_read{10300, 0.025};
  CopyCosts persistent{3100, 0.0229};  // four take twice that for a byte
  double persistent_block = 600;       // for each further one, which reads the commands across the bus, too
  uint32_t measured = 0;               // bits, in the order of device_costs() in device_cost_file.hpp

  const CopyCosts& write(DeviceLink link) const {
    return link == DeviceLink::same ? local : link == DeviceLink::pcie ? pcie_write : nvlink_write;
  }
  const CopyCosts& read(DeviceLink link) const {
    return link == DeviceLink::same ? local : link == DeviceLink::pcie ? pcie_read : nvlink_read;
  }
};
/// The most bytes that a persistent kernel of so many blocks copies at no more than an engine's cost.
uint64_t persistent_most(const DeviceCosts& costs, DeviceLink link, unsigned blocks);
double persistent_ns(const DeviceCosts& costs, unsigned blocks, uint64_t bytes);

/// The costs in force in a context: what was measured on this machine (cost_file.hpp, measure.hpp), else these defaults.
/// Those of shm are for processes that may not measure, as ranks are that were bound to one core each: medians of five
/// measurements between two cores of a Xeon of family 6, model 207 (2026-11), with new data in each message. Those of self
/// and tcp: two cores of a Zen 5 (2026-11).
struct CostTable {
  //             name    frame copy   serial reference mapped kernel-fixed kernel, and beyond kLarge: copy mapped kernel
  LinkCosts self{"self", 20, 0.02, 0.03, 0.02, 0.012, 0, 0};
  LinkCosts shm{"shm", 214, 0.115, 0.201, 0.115, 0.136, 1060, 0.109, 0.145, 0.147, 0.095};
  LinkCosts tcp{"tcp", 4000, 0.11, 0.11, 0.085, 0, 0, 0};
  // Of shm between processors at a distance (frame = 0: not measured, as where all have the same one); the others go by
  // `shm`.
  LinkCosts shm_core{"shm", 0, 0, 0, 0, 0, 0, 0}, shm_cache = shm_core, shm_node = shm_core, shm_far = shm_core;
  const LinkCosts& shm_at(CpuDistance distance) const {
    const LinkCosts* const all[] = {&shm_core, &shm_cache, &shm_node, &shm_far, &shm};
    const LinkCosts& found = *all[static_cast<size_t>(distance)];
    return found.frame != 0 ? found : shm;
  }
  bool distances() const { return shm_core.frame + shm_cache.frame + shm_node.frame + shm_far.frame != 0; }
  bool tcp_measured = false;        // something of it
  std::string source = "defaults";  // or the file they are from, or "measured"
  std::string why;                  // not from a file: why not
  std::string file;                 // the file of measured ones; empty: none
  bool measured() const { return source != "defaults"; }
};

}  // namespace thalweg::impl
