// SPDX-License-Identifier: Apache-2.0
// The part of `pages` that GPUs have: managed memory.
#pragma once
#include "options.hpp"

namespace perf {
void run_gpu_pages(const Options& o);
}
