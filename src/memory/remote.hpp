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

class Device;

struct Peer;
struct Mapping;

/// What an exported key says. Wire form in registry.cpp, <= TW_KEY_MAX bytes, checked against the owner's registry on use.
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

/// C handle tw_remote_memory (and the target of tw_remote_signal).
struct RemoteRegion {
  Peer* peer = nullptr;
  KeyBody key{};
  std::byte* mapped = nullptr;  // load/store address of the range, null: not mapped (yet)
  Mapping* mapping = nullptr;   // counted while mapped
  std::atomic<uint32_t> references{1};
  bool revoked = false;
  bool unmappable = false;  // import() of host memory said no: not asked again
  // Devices of this process for which an import of device memory failed: not asked again. Null as a device: whose is not visible here.
  std::vector<const Device*> unreached;
  bool unreached_by(const Device* device) const {
    return std::find(unreached.begin(), unreached.end(), device) != unreached.end();
  }
  void note_unreached(const Device* device) {
    if (!unreached_by(device)) unreached.push_back(device);
  }
  std::vector<const Device*> unlaunched;  // ... whose kernels do not reach it, or of a build without kernels
  bool unlaunched_by(const Device* device) const {
    return std::find(unlaunched.begin(), unlaunched.end(), device) != unlaunched.end();
  }
  void note_unlaunched(const Device* device) {
    if (!unlaunched_by(device)) unlaunched.push_back(device);
  }
};

}  // namespace thalweg::impl
