// SPDX-License-Identifier: Apache-2.0
// Programs of ranks: a thread, a worker and a group each, over the library's own transports. Each rank goes through the same list of
// operations at its own pace: collectives that block (also over memory that all map), that have a request or a callback, in plans and on
// queues of devices, beside messages and puts. Several are under way at once, and end in any order. The jobs are those of the
// other programs (jobs.hpp). Timing differs from run to run, so a seed identifies only the program.
#pragma once
#include <string>

#include "model/coverage.hpp"
#include "model/program.hpp"

namespace thalweg::model {

/// queued: some collectives on queues of emulated devices, too.
Program generate_ranks(uint64_t seed, unsigned workers = 0, bool queued = false);
/// Runs it. What went wrong, or "".
std::string run_ranks(const Program& program, Coverage* coverage);

}  // namespace thalweg::model
