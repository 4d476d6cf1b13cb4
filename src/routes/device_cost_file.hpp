// SPDX-License-Identifier: Apache-2.0
// Measured costs of this machine's devices, saved beside those of the machine (cost_file.hpp), in a file of their own: other
// processes measure them, at another time. Small text, a section for each sort of device:
//
//   thalweg-device-costs 1
//   library = 0.1.0
//   machine = HOST; PROCESSOR; KERNEL
//   device = NVIDIA H200, driver 13.0
//   out.fixed = 8515           any of device_costs(), both numbers of it, in any order
//   out.byte = 0.0182
//   ...
//   end
//
// Untrusted when read: bounded, every value within its limits, nothing unknown, nothing twice.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"
#include "routes/costs.hpp"

namespace thalweg::impl {

inline constexpr size_t kDeviceCostFileMax = 8192;  // bytes
inline constexpr size_t kDeviceModels = 8;          // sorts of devices in one file
inline constexpr size_t kModelMax = 200;            // bytes of a name

/// What is measured together. Its place in device_costs() is its bit in DeviceCosts::measured.
struct DeviceCost {
  const char* name;
  CopyCosts DeviceCosts::*copy;
};
std::span<const DeviceCost> device_costs();
uint32_t bit_of(CopyCosts DeviceCosts::*copy);

struct ModelCosts {
  std::string model;
  DeviceCosts costs;  // what was not measured: the defaults
};

/// An error, with a text, leaves *out alone. TW_ERR_STALE: of another library, machine or kernel.
Status parse_device_costs(std::string_view text, std::string_view machine, std::vector<ModelCosts>* out);
/// The opposite, of what was measured. Refuses what parse_device_costs would.
Status format_device_costs(std::span<const ModelCosts> all, std::string_view machine, std::string* text);

/// `file`: of this machine's own costs. TW_ERR_NO_MATCH: there is none yet.
std::string device_cost_path(const std::string& file);
Status load_device_costs(const std::string& path, std::vector<ModelCosts>* out);
Status save_device_costs(const std::string& path, std::span<const ModelCosts> all);

}  // namespace thalweg::impl
