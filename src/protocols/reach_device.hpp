// SPDX-License-Identifier: Apache-2.0
// Where a device of this process reaches a peer's memory. Device memory: at its own address within one process, by an import
// otherwise; one way for puts, messages, blocks and windows. Host memory: where it is mapped here, once it is pinned here.
#pragma once
#include "devices/device.hpp"
#include "memory/device_users.hpp"
#include "memory/remote.hpp"
#include "protocols/peer.hpp"

namespace thalweg::impl {

struct DeviceReach {
  uint64_t address = 0;        // of the range's first byte
  bool kernels = true;         // false: only copy engines get there
  Mapping* mapping = nullptr;  // count in its users for longer than until the next progress; null: memory of this process
  DeviceUserLists users;       // ... whose owner waits for work that names them (DeviceQueues::submit)
};

/// The device of this process where the region's memory lives; null: not visible here.
Device* device_of(const RemoteRegion& region);

/// Imports [offset, offset + length) of the peer's segment for `device`. TW_OK; TW_IN_PROGRESS: ask again after
/// Sink::on_import; or an error.
Status import_range(Peer& peer, uint64_t segment, uint64_t offset, uint64_t length, Device& device, Mapping** mapping);

/// All of a region of a connected peer's device memory. TW_OK, TW_IN_PROGRESS (as above), or why not: TW_ERR_STALE: released
/// (within one process also: of another context, which its own registry knows); TW_ERR_UNSUPPORTED: not shared;
/// TW_ERR_UNREACHABLE: no peer access. Progress owner.
Status reach_region(Peer& peer, const RemoteRegion& region, Device& device, DeviceReach* out);

/// All of the mapping is pinned for devices of this sort, for as long as it is mapped here. False: it cannot be.
bool pin_mapping(Device& device, Mapping& mapping);
/// The same for callers that must not wait: TW_IN_PROGRESS until it has been tried; TW_OK; TW_ERR_UNREACHABLE. The mapping
/// must be counted as used.
Status pin_mapping_ahead(Device& device, Mapping& mapping);

/// The same, once src/routes finds it worth it. False: not yet, or it cannot be; `length` bytes more go another way.
bool pin_once_worth(Device& device, Mapping& mapping, uint64_t length);

/// Null: devices of this process can copy to and from the region's host memory, which is mapped and pinned here. Otherwise
/// why not (yet), as a sentence.
const char* why_not_reached_by_devices(const RemoteRegion& region);
/// The same for an operation of `length` bytes that is about to move: maps the peer's library-allocated memory, and pins it
/// once that is worth it. TW_OK; TW_AGAIN while it is being mapped; TW_ERR_UNSUPPORTED: not this way; or TW_ERR_STALE.
/// Progress owner.
Status reach_host_region(Peer& peer, RemoteRegion& region, Device& device, uint64_t length, DeviceReach* out);

}  // namespace thalweg::impl
