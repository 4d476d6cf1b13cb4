// SPDX-License-Identifier: Apache-2.0
// Ending device memory with its owner.
#include "memory/device_allocation.hpp"

#include <utility>

#include "base/log.hpp"

namespace thalweg::impl {

DeviceAllocation::DeviceAllocation(DeviceAllocation&& other) noexcept
    : device_(std::exchange(other.device_, nullptr)), address_(other.address_), pinned_(other.pinned_), born_(other.born_) {}

DeviceAllocation& DeviceAllocation::operator=(DeviceAllocation&& other) noexcept {
  if (this != &other) {
    reset();
    device_ = std::exchange(other.device_, nullptr);
    address_ = other.address_;
    pinned_ = other.pinned_;
    born_ = other.born_;
  }
  return *this;
}

void DeviceAllocation::reset() {
  Device* const device = std::exchange(device_, nullptr);
  if (device == nullptr || born_.forked()) return;
  const Status status = pinned_ ? device->unregister_host(reinterpret_cast<void*>(address_)) : device->free(address_);
  if (is_error(status) && status != TW_ERR_CLOSED)  // closed: the driver has shut down, and freed everything
    log(LogLevel::warning, "memory of device %s:%u was not given back: %s", device->name(), device->ordinal(), last_error());
}

Status DeviceAllocation::allocate(Device& device, MemoryKind kind, size_t length, DeviceAllocation* out) {
  uint64_t address = 0;
  if (Status s = device.allocate(kind, length, &address); is_error(s)) return s;
  *out = DeviceAllocation();
  out->device_ = &device;
  out->address_ = address;
  out->pinned_ = false;
  return TW_OK;
}

Status DeviceAllocation::pin(Device& device, void* address, size_t length, DeviceAllocation* out) {
  if (Status s = device.register_host(address, length); is_error(s)) return s;
  *out = DeviceAllocation();
  out->device_ = &device;
  out->address_ = reinterpret_cast<uintptr_t>(address);
  out->pinned_ = true;
  return TW_OK;
}

}  // namespace thalweg::impl
