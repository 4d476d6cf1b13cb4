// SPDX-License-Identifier: Apache-2.0
#include "memory/place.hpp"

#include "devices/registry.hpp"
#include "memory/registry.hpp"

namespace thalweg::impl {

Place place_of(const BufferInfo& info) {
  Place place;
  place.kind = info.kind;
  place.exports = info.exportable;
  place.reach = reach_of(info.kind);
  if (!info.host_access) place.reach &= ~uint32_t{kByCpu | kByCpuBehind};
  place.atomics = by_cpu(info.kind) ? AtomicDomain::cpu : AtomicDomain::device;
  if (info.device != nullptr) place.device = info.device->uuid();
  place.buffer_id = info.buffer_id;
  place.base = info.base;
  place.length = info.length;
  return place;
}

Place local_place(uint64_t address, uint64_t length, const Registry* registry) {
  BufferInfo info;
  if (find_device(address, length, &info) != TW_ERR_NO_MATCH) return place_of(info);  // the user checks bounds
  Place place;
  place.base = address;
  place.length = length;
  uint64_t segment = 0, offset = 0;
  if (registry == nullptr || !registry->find_segment(reinterpret_cast<const void*>(address), length, &segment, &offset))
    return place;
  place.exports = ExportForm::descriptor;
  place.reach |= kPinnable;
  place.base = address - offset;
  return place;
}

}  // namespace thalweg::impl
