// SPDX-License-Identifier: Apache-2.0
// What a saved topology (THALWEG_TOPOLOGY) makes of the access between two devices: a link that is down or absent there counts as down
// or absent here. Without a file, nothing. A device is the file's GPU of its UUID; if the file has no UUIDs, that of its ordinal.
#pragma once
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

/// `given`, or what the file leaves of it. It takes away only; of what is left it names the link.
PeerAccess limited_by_topology(const PeerAccess& given, const DeviceId& from, const DeviceId& to);

/// Why the file keeps NVLinks from joining them, as a sentence that lives until exit; null: it does not.
const char* why_limited_by_topology(const DeviceId& from, const DeviceId& to);

/// The same of devices of this process, or that there is no peer access for another reason.
const char* why_no_peer_access(const Device& from, const Uuid& to);

}  // namespace thalweg::impl
