// SPDX-License-Identifier: Apache-2.0
// What a saved topology (THALWEG_TOPOLOGY) makes of the access between two devices: a link that is down or absent there counts as down
// or absent here. Without a file, nothing. A device is the file's GPU of its UUID, else of its PCI address, as a part of a GPU (MIG)
// has a UUID of its own; if the file has no UUIDs and none at that address, the GPU of its ordinal.
#pragma once
#include <string>

#include "devices/device.hpp"
#include "topology/graph.hpp"

namespace thalweg::impl {

struct DeviceId {
  unsigned ordinal = 0;
  Uuid uuid{};
};
inline DeviceId id_of(const Device& device) { return {device.ordinal(), device.uuid()}; }

/// The graph's node of a device; kNoNode: it has none.
size_t gpu_of(const topology::Graph& graph, const DeviceId& device);

/// Where a device of this process is, "0000:1b:00.0": told by its back end when it opens the device. Any thread.
void set_pci_address(const Uuid& device, const std::string& address);
/// Empty: nobody told.
std::string pci_address_of(const Uuid& device);

/// `given`, or what the file leaves of it. It takes away only: what the driver gives by PCIe stays so.
PeerAccess limited_by_topology(const PeerAccess& given, const DeviceId& from, const DeviceId& to);
/// The same of devices without links of their own: they play those that the file has.
PeerAccess played_by_topology(const PeerAccess& given, const DeviceId& from, const DeviceId& to);

/// Why the file keeps NVLinks from joining them, as a sentence that lives until exit; null: it does not.
const char* why_limited_by_topology(const DeviceId& from, const DeviceId& to);

/// Which of the NVLinks that join them are down in the file, where others are up; null: none.
const char* what_is_down_in_topology(const DeviceId& from, const DeviceId& to);

/// Why there is no peer access between devices of this process, by the file or that there is no peer access for another reason.
const char* why_no_peer_access(const Device& from, const Uuid& to);

}  // namespace thalweg::impl
