// SPDX-License-Identifier: Apache-2.0
// The costs of this process's devices as a context uses them: kept ones of this machine, else measured at a device's first use, once
// for all processes of the user (docs/decisions/0025). Without a place for measured costs, and with THALWEG_COSTS=off: the defaults.
//
// Threads: any. Measuring holds the lock, some milliseconds of a device's first use; nobody comes here on a hot path.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "devices/device.hpp"
#include "routes/costs.hpp"
#include "routes/measure_device.hpp"

namespace thalweg::impl {

class DeviceTable {
 public:
  /// Measures nothing until open().
  DeviceTable() = default;
  ~DeviceTable();
  DeviceTable(const DeviceTable&) = delete;
  DeviceTable& operator=(const DeviceTable&) = delete;
  void open(const CostTable& costs);

  /// Measures what is not known yet, once.
  DeviceCosts of(Device& device);
  /// The same, of its persistent kernel, too.
  DeviceCosts of(Device& device, PersistentCopier& persistent);
  /// From now on kernels and queues of this process may wait for what it does: nothing is measured any more.
  void forbid();

  /// What is known, or kept by some process: measures nothing.
  struct Said {
    std::string model;
    std::string why;  // nothing is measured, or nothing of it kept; empty: it is
    DeviceCosts costs;
  };
  Said known(Device& device);

 private:
  struct Entry {
    std::string model, why;
    DeviceCosts costs;
    bool tried = false, tried_persistent = false;
    std::unique_ptr<DeviceBench> bench;
  };
  Entry& entry(Device& device);
  void look_up(Entry& entry);
  void measure(Device& device, Entry& entry);
  void measure_peers(Device& device, Entry& entry);
  void keep(Entry& entry);
  bool permitted(Entry& entry) const;

  mutable std::mutex mutex_;  // guards the rest
  std::string path_;          // empty: nothing is measured
  std::string why_ = "not asked for";
  bool forbidden_ = false;
  std::map<Device*, Entry> entries_;
};

/// The link between a device and the nearest other one. Where this process sees none: one that some process has measured, else they are
/// the same one, of two processes.
DeviceLink nearest_link(const Device& device, const DeviceCosts& costs);

}  // namespace thalweg::impl
