// SPDX-License-Identifier: Apache-2.0
// What a TCP connection within this machine costs, measured in some ten milliseconds by two threads, with data that is new
// each time.
#pragma once
#include "base/status.hpp"
#include "routes/costs.hpp"
#include "routes/measure.hpp"

namespace thalweg::impl {

/// TW_ERR_TIMED_OUT: the cores were too busy; another error: no connection is to be had. *out is left alone then.
Status measure_tcp(const TwoCores& cores, uint64_t limit_ns, LinkCosts* out);

}  // namespace thalweg::impl
