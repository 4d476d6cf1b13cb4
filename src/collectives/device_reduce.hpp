// SPDX-License-Identifier: Apache-2.0
// Reductions of a collective by a device: programs of one step on the engine's queue of that device, found complete by progress.
#pragma once
#include <deque>
#include <span>
#include <vector>

#include "collectives/elements.hpp"
#include "memory/device_allocation.hpp"
#include "protocols/device_queues.hpp"

namespace thalweg::impl {

/// Of one group and one device.
class DeviceReducer {
 public:
  explicit DeviceReducer(Device& device) : device_(device) {}
  Device& device() const { return device_; }
  /// All addresses are the device's. `done` as of DeviceQueues::submit; it calls ended(). They run one after the other.
  Status submit(Engine& engine, const Operation& what, uint64_t to, std::span<const uint64_t> sources, uint64_t bytes,
                DeviceQueues::Done done, void* token);
  /// The oldest one is over.
  void ended();

 private:
  Status open(Engine& engine);
  /// Addresses of sources, in pinned memory that the device reads while it runs.
  struct Table {
    DeviceAllocation memory;
    size_t entries = 0;
  };
  Status take_table(size_t entries, Table* out);

  Device& device_;
  DeviceAllocation state_, pinned_;
  std::vector<Table> idle_;
  std::deque<Table> under_way_;  // oldest first
};

/// May the type and operation be combined there? TW_ERR_UNSUPPORTED.
Status check_device_operation(const Operation& what);

}  // namespace thalweg::impl
