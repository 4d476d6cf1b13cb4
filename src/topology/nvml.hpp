// SPDX-License-Identifier: Apache-2.0
// What NVML says of GPUs and their NVLinks. Its library is loaded at run time; it makes no context and initialises no device.
#pragma once
#include <string>

#include "base/status.hpp"
#include "topology/graph.hpp"

namespace thalweg::impl::topology {

constexpr const char* kNvmlLibrary = "libnvidia-ml.so.1";

/// Completes the GPUs of *graph by their addresses, adds those that PCIe did not show, and all NVLinks. *driver is its version. An
/// error has why it cannot, and leaves *graph as it was.
Status add_by_nvml(const char* library, Graph* graph, std::string* driver);

}  // namespace thalweg::impl::topology
