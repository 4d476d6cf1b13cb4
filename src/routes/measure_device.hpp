// SPDX-License-Identifier: Apache-2.0
// What copies by a device cost, measured as an engine's copies are found done: a queue of our own, behind each copy a word of pinned
// memory, at which the host looks. Some milliseconds.
#pragma once
#include <array>
#include <memory>

#include "devices/device.hpp"
#include "routes/costs.hpp"

namespace thalweg::impl {

class PersistentCopier;

/// Holds the queue and the memory to measure with (4 MiB of pinned memory, 8 of the device, 4 of each other one) until it ends: to give
/// them back may wait for all work of the device, so it ends when the context does.
class DeviceBench {
 public:
  explicit DeviceBench(Device& device) : device_(device) {}
  ~DeviceBench();  // what a queue has not come to the end of is left to it
  DeviceBench(const DeviceBench&) = delete;
  DeviceBench& operator=(const DeviceBench&) = delete;

  /// To pinned memory, from it, within the device. TW_ERR_TIMED_OUT: the device does not come to it, nothing is measured.
  Status measure(uint64_t limit_ns, DeviceCosts* out);
  /// To another device and from it, over that link.
  Status measure_peer(const Uuid& there, DeviceLink link, uint64_t limit_ns, DeviceCosts* out);
  /// Copies by the device's persistent kernel: to a peer that was measured, else within the device. TW_AGAIN: it takes none.
  Status measure_persistent(PersistentCopier& persistent, uint64_t limit_ns, DeviceCosts* out);

  static constexpr size_t kWhole = 4u << 20;  // bytes of the longer copies

 private:
  Status open();
  Status copy(uint64_t to, uint64_t from, uint64_t length, double* took);
  Status time(uint64_t to, uint64_t from, CopyCosts* out);
  Status persistent_copy(PersistentCopier& persistent, uint64_t length, double* took);

  Device& device_;
  std::unique_ptr<Queue> queue_;
  uint64_t words_ = 0, host_ = 0, here_ = 0, also_ = 0;  // addresses; 0: none
  std::array<uint64_t, 2> there_{};                      // by nvlink, by pcie
  uint64_t ticket_ = 0;
  uint64_t deadline_ = 0, slice_ = 0;  // ns: of all; until when rounds are repeated
  bool stuck_ = false;                 // work of the queue may be under way
  bool occupied_ = false;              // a persistent kernel may still copy
};

}  // namespace thalweg::impl
