// SPDX-License-Identifier: Apache-2.0
// Collectives among N processes.
#pragma once
#include "options.hpp"

namespace perf {

bool is_collective(const std::string& test);
/// Measures o.test among all ranks; rank 0 prints. The exit code.
int run_collective(const Options& o, char** argv);

}  // namespace perf
