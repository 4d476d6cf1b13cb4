// SPDX-License-Identifier: Apache-2.0
// What the control groups of a process leave of the machine's memory.
#pragma once
#include <cstdint>
#include <string>

namespace perf {

/// Bytes that may still be allocated in the group that `membership` names (/proc/self/cgroup) and in all that contain it, whose folders
/// are below `mounted` (/sys/fs/cgroup): each of them may have a limit, and the least counts. UINT64_MAX: none has one.
uint64_t left_in_groups(const std::string& membership, const std::string& mounted);

}  // namespace perf
