// SPDX-License-Identifier: Apache-2.0
// What a prepared operation looks like to device code, by verb. Filled in by Protocol::bind.
#pragma once
#include <thalweg/device/put_signal.hpp>

#include "protocols/operation.hpp"

namespace thalweg::impl {

struct DeviceDesc {
  Verb verb = Verb::put;
  device::PutSignal put_signal{};
};

}  // namespace thalweg::impl
