// SPDX-License-Identifier: Apache-2.0
// The costs that a context uses: saved ones of this machine, else measured now, once for all processes of the user.
#pragma once
#include "routes/cost_file.hpp"

namespace thalweg::impl {

/// From the cost file. Where there is none yet, or one of another version or kernel: measures shm and tcp (some 40 ms, two
/// threads; while another process does, waits for that) and saves it; if that fails, for this process alone.
/// With one processor, on processors that are too busy, and with THALWEG_COSTS=off: the defaults; `why` says so. Any thread.
///
/// Where processors have several distances (topology/processors.hpp), measures those that this process's have and the
/// file has not, nearest first, within some 60 ms; the rest is the next context's. `topology`: null is this machine's.
CostTable machine_costs(const CpuTopology* topology = nullptr);

}  // namespace thalweg::impl
