// SPDX-License-Identifier: Apache-2.0
// Memory of a device, or host pages that a device has pinned, with an owner.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/platform/fork.hpp"
#include "devices/device.hpp"

namespace thalweg::impl {

/// Ends what it holds; that may block behind queued work. A forked child's copy ends nothing.
class DeviceAllocation {
 public:
  DeviceAllocation() = default;
  DeviceAllocation(DeviceAllocation&&) noexcept;
  DeviceAllocation& operator=(DeviceAllocation&&) noexcept;
  ~DeviceAllocation() { reset(); }
  static Status allocate(Device& device, MemoryKind kind, size_t length, DeviceAllocation* out);
  /// [address, address + length) stays the caller's and must outlive *out.
  static Status pin(Device& device, void* address, size_t length, DeviceAllocation* out);
  uint64_t address() const { return address_; }
  Device* device() const { return device_; }  // null: empty

 private:
  void reset();
  Device* device_ = nullptr;
  uint64_t address_ = 0;
  bool pinned_ = false;  // not ours to free
  BornHere born_;
};

}  // namespace thalweg::impl
