// SPDX-License-Identifier: Apache-2.0
// The environment as the kernel gave it to this process.
#pragma once
#include <sys/auxv.h>

#include <cstdint>

namespace thalweg::impl {

/// Does this text lie where the kernel put the environment at the program's start? That is memory of the process's own,
/// which may be written, and what /proc/PID/environ shows.
inline bool from_the_kernel(const char* text) {
  // From low to high addresses: random bytes, arguments, environment, the program's name.
  const auto at = reinterpret_cast<uintptr_t>(text);
  return at > getauxval(AT_RANDOM) && at < getauxval(AT_EXECFN);
}

}  // namespace thalweg::impl
