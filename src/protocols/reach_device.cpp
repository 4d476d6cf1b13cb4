// SPDX-License-Identifier: Apache-2.0
// Reaching a peer's device memory.
#include "protocols/reach_device.hpp"

#include <utility>

#include "devices/registry.hpp"
#include "protocols/device_lane.hpp"
#include "protocols/one_sided.hpp"

namespace thalweg::impl {

Device* device_of(const RemoteRegion& region) { return find_device(uuid_of(region.key.device_uuid)); }

Status import_range(Peer& peer, uint64_t segment, uint64_t offset, uint64_t length, Device& device, Mapping** mapping) {
  const Status status = peer.link->port->import_device(*peer.link, segment, device, mapping);
  if (status != TW_OK) return status;
  const bool inside = offset <= (*mapping)->length && length <= (*mapping)->length - offset;
  return inside ? TW_OK : fail(TW_ERR_OUT_OF_BOUNDS, "the peer names a range outside of its memory");
}

Status reach_region(Peer& peer, const RemoteRegion& region, Device& device, DeviceReach* out) {
  const KeyBody& key = region.key;
  *out = {};
  if (in_process(region)) {
    Engine& engine = *peer.engine;
    Target target;
    const Registry::Reading reading(engine.registry());
    const Status status = engine.registry().resolve(reading, key.rkey, 0, key.length, 0, &target);
    if (is_error(status)) return status;
    out->address = reinterpret_cast<uint64_t>(target.address);
    if (auto guests = engine.registry().guests(reading, key.rkey); guests != nullptr) out->hosts.push_back(std::move(guests));
    return engine.devices().admit(device, out->address, key.length, &out->kernels);
  }
  if (key.segment == 0 || (peer.link->features & kLinkMaps) == 0) {
    return fail(TW_ERR_UNSUPPORTED, "the peer's memory is not shared: it is pool or managed memory, or on another machine");
  }
  if (!peer.engine->options().imports)
    return fail(TW_ERR_UNREACHABLE, "a plan's queue may wait for this: nothing is imported then");
  const Status status = import_range(peer, key.segment, key.segment_offset, key.length, device, &out->mapping);
  if (status == TW_OK) out->address = out->mapping->device_address + key.segment_offset;
  return status;
}

}  // namespace thalweg::impl
