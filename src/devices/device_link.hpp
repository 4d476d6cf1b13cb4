// SPDX-License-Identifier: Apache-2.0
// What lies between two devices.
#pragma once
#include <cstdint>

namespace thalweg::impl {

enum class DeviceLink : uint8_t { none, same, nvlink, pcie, unknown };

}  // namespace thalweg::impl
