// SPDX-License-Identifier: Apache-2.0
// What a prepared operation looks like to device code, by verb. Filled in by Protocol::bind.
#pragma once
#include <thalweg/device/signal.hpp>

#include "protocols/operation.hpp"

namespace thalweg::impl {

struct DeviceDesc {
  Verb verb = Verb::put;
  device::Step step{};  // put: for device::run_copy
};

}  // namespace thalweg::impl
