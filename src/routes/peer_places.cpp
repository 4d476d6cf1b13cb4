// SPDX-License-Identifier: Apache-2.0
#include "routes/peer_places.hpp"

#include "transports/transport.hpp"

namespace thalweg::impl {

Place peer_place(MemoryKind kind, const Uuid& device, uint64_t segment, bool copies, uint32_t features) {
  Place place;
  place.kind = kind;
  place.atomics = by_cpu(kind) ? AtomicDomain::cpu : AtomicDomain::device;
  place.device = device;
  if (segment != 0) place.exports = by_cpu(kind) ? ExportForm::descriptor : ExportForm::ipc_handle;
  if ((features & kLinkSameProcess) != 0) {
    place.reach = reach_of(kind) | (by_cpu(kind) ? uint32_t{kPinnable} : 0);
    return place;
  }
  place.reach = 0;
  if (segment != 0 && (features & kLinkMaps) != 0) place.reach |= kByPort | (by_cpu(kind) ? uint32_t{kPinnable} : 0);
  if (copies && by_cpu(kind) && (features & kLinkSingleCopy) != 0) place.reach |= kByPid;
  return place;
}

Place peer_place(const KeyBody& key, uint32_t features) {
  Place place = peer_place(static_cast<MemoryKind>(key.kind), uuid_of(key.device_uuid), key.segment, key.check != 0, features);
  place.base = key.base;
  place.length = key.length;
  return place;
}

}  // namespace thalweg::impl
