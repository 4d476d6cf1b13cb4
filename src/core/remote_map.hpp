// SPDX-License-Identifier: Apache-2.0
// tw_remote_memory_map for callers that do not wait for ever.
#pragma once
#include <cstdint>
#include <functional>

#include "base/status.hpp"

struct tw_remote_memory;

namespace thalweg::impl {

/// Progresses until the peer has answered: TW_ERR_TIMED_OUT, or the error of interrupted() or of `failure` (empty: not asked), which
/// is asked under no lock. A later call goes on waiting.
Status map_remote(tw_remote_memory* remote, uint64_t limit_ns, const std::function<Status()>& failure, void** address);

}  // namespace thalweg::impl
