// SPDX-License-Identifier: Apache-2.0
// Addresses of emulated devices, as kernels reach them.
#include "devices/emulated/machine.hpp"

#include "devices/emulated/emulated.hpp"

namespace thalweg::impl::emulated {

uint64_t BlockMemory::nanoseconds() const {
  return device == nullptr ? device::DirectMachine().nanoseconds() : EmulatedDevice::time_of(device->ordinal());
}

std::byte* BlockMemory::find(const void* address, size_t length) {
  Place place;
  const Status status =
      locate(device, Use::kernel, reinterpret_cast<uint64_t>(address), 0, static_cast<int64_t>(length), &place);
  if (is_error(status)) {
    if (!is_error(failed)) failed = status;
    return nullptr;
  }
  if (held.empty() || held.back() != place.holder) held.push_back(place.holder);
  return place.pointer;
}

void Machine::copy(u64 to, u64 from, u64 bytes) const {
  std::byte* const target = memory_->find(reinterpret_cast<const void*>(to), bytes);
  const std::byte* const source = memory_->find(reinterpret_cast<const void*>(from), bytes);
  if (target == nullptr || source == nullptr) return;
  std::vector<std::byte> held(bytes);
  memory_->stores.load(source, held.data(), bytes);
  memory_->stores.store(target, held.data(), bytes);
}

}  // namespace thalweg::impl::emulated
