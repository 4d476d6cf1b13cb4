// SPDX-License-Identifier: Apache-2.0
// The kernels in tools/perf/kernels as nvcc compiled them; empty where there was none.
#pragma once
#include <span>

namespace perf {
std::span<const unsigned char> kernels_image();
}  // namespace perf
