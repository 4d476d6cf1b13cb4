// SPDX-License-Identifier: Apache-2.0
// Host-side twins of the library's kernels.
#pragma once
#include <functional>

#include "devices/emulated/stream.hpp"
#include "devices/kernel.hpp"

namespace thalweg::impl::emulated {

class EmulatedDevice;
using Twin = std::function<Status(EmulatedStream&)>;

/// Checks the kernel's addresses, takes hold of its memory and bakes its arguments in.
Status make_twin(const EmulatedDevice* device, const Options& options, const Kernel& kernel, Twin* out);

/// In program.cpp: its waits end as a program's do.
Twin make_wait_ahead(const EmulatedDevice* device, const Options& options, const device::WaitAhead& waits);

Status make_persistent(const EmulatedDevice* device, const Options& options, const PersistentKernel& kernel, Twin* out);

/// Cyclically.
inline bool reached(const std::byte* word, uint64_t value) {
  return static_cast<int64_t>(__atomic_load_n(reinterpret_cast<const uint64_t*>(word), __ATOMIC_ACQUIRE) - value) >= 0;
}

}  // namespace thalweg::impl::emulated
