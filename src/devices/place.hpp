// SPDX-License-Identifier: Apache-2.0
// Names for where memory lives, as users write and read them: "host", "pinned", "cuda:1", "emulated-vmm:0". N is the
// device's ordinal in this process, 0 when left out.
#pragma once
#include <string>
#include <vector>

#include "devices/device.hpp"

namespace thalweg::impl {

struct MemoryPlace {
  MemoryKind kind = MemoryKind::host;
  Device* device = nullptr;  // null: host. Of pinned: whichever does the pinning, which is for all of its sort
};

/// NULL is "host". Whatever names a device initialises the device libraries. TW_ERR_INVALID: no such name or number;
/// TW_ERR_DEVICE: this machine (or build) has no such devices, with the reason.
Status parse_place(const char* text, MemoryPlace* out);

/// The name of the place of what `info` describes.
std::string place_name(const BufferInfo& info);

/// Of a device: every kind of memory that it has beside pinned memory.
std::vector<std::string> places_of(const Device& device);

/// All names, for texts.
const char* place_names();

}  // namespace thalweg::impl
