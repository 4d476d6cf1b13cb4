// SPDX-License-Identifier: Apache-2.0
// A peer's memory as seen from here: an imported key.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "base/status.hpp"
#include "devices/memory_kind.hpp"

namespace thalweg::impl {

inline constexpr size_t kKeySize = 96;  // of an exported memory's or signal's key

class Device;

struct Peer;
struct Mapping;

/// The content of an exported key. Wire form in registry.cpp, <= kKeySize bytes, checked against the owner's registry on
/// use.
struct KeyBody {
  uint16_t version;
  uint8_t kind;          // MemoryKind
  uint8_t access;        // TW_MEMORY_*
  uint32_t device;       // of the owner
  uint64_t worker;       // 0: any worker of the process
  uint64_t incarnation;  // of the owner's process
  uint64_t rkey;         // random: names the export at the owner
  uint64_t base;         // owner's virtual address of the range (same-process and single-copy access)
  uint64_t length;
  uint64_t segment;  // library-allocated memory that holds it, 0: none
  uint64_t segment_offset;
  uint64_t check;  // owner's virtual address of a word that holds rkey while the key is alive (single copy)
  uint8_t device_uuid[16];
};

/// A few devices of this process.
class DeviceList {
 public:
  bool empty() const { return devices_.empty(); }
  bool has(const Device* device) const { return std::find(devices_.begin(), devices_.end(), device) != devices_.end(); }
  void add(const Device* device) {
    if (!has(device)) devices_.push_back(device);
  }

 private:
  std::vector<const Device*> devices_;
};

/// C handle tw_remote_memory (and the target of tw_remote_signal).
struct RemoteRegion {
  Peer* peer = nullptr;
  KeyBody key{};
  std::byte* mapped = nullptr;  // load/store address of the range, null: not mapped (yet)
  Mapping* mapping = nullptr;   // counted while mapped
  std::atomic<uint32_t> references{1};
  bool revoked = false;
  bool unmappable = false;  // import() of host memory failed: not tried again
  bool held = false;        // the user has its address: mapped until it is released or its endpoint closed
  uint64_t ask_again = 0;   // ... but from this time on (monotonic_ns): it failed for want of descriptors. 0: never
  DeviceList unreached;   // devices for which an import of device memory failed: not asked again; null: it is not visible here
  DeviceList unlaunched;  // ... whose kernels do not reach it, or of a build without kernels
};

}  // namespace thalweg::impl
