// SPDX-License-Identifier: Apache-2.0
// All emulated devices of this process. There are none until one is opened, or THALWEG_EMULATED sets them.
#pragma once
#include "devices/device.hpp"
#include "devices/emulated/place.hpp"

namespace thalweg::impl::emulated {

Backend& backend();

/// Opens what THALWEG_EMULATED (options.hpp) describes, until exit; a text that makes no sense is logged as an error.
void open_from_environment();

// For EmulatedDevice: the list, and the device that holds an address. False: inside a device's range but not allocated. With
// *out->holder null it is pageable host memory.
void enlist(EmulatedDevice* device);
void strike(EmulatedDevice* device);
bool find_place(uint64_t address, uint64_t length, Place* out);
/// Is any of it pinned, managed or a device's?
bool overlaps(uint64_t address, uint64_t length);

}  // namespace thalweg::impl::emulated
