// SPDX-License-Identifier: Apache-2.0
// thalweg tune --check.
#pragma once
#include "pair.hpp"

namespace perf {

/// 0: every path is good enough; 1: one is not.
int run_check(Options options, char** argv);
void check_link(Pair& pair, const Options& options);  // its part between one pair of processes

}  // namespace perf
