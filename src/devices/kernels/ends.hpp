// SPDX-License-Identifier: Apache-2.0
// How kernels begin and end. Every observer is another device, another process or the host.
#pragma once
#include "devices/kernels/arguments.hpp"
#include "thalweg/device/order.hpp"

namespace thalweg::impl::kernels {

namespace machine = device::machine;
using device::u32;
using device::u64;

template <class T>
THALWEG_DEVICE T* pointer(uint64_t address) {
  return reinterpret_cast<T*>(address);
}
THALWEG_DEVICE uint64_t load_acquire(uint64_t address) { return machine::acquire(pointer<const u64>(address)); }

/// All threads of the block agree: has an earlier wait expired?
THALWEG_DEVICE bool stopped(const Ends& ends) {
  if (ends.status == 0) return false;
  return machine::any_of_block(machine::thread_x() == 0 && load_acquire(ends.status) != 0);
}

/// Behind the barrier one thread's system-wide fence stands for all stores of its block; the last block's for all of the grid.
THALWEG_DEVICE void finish(const Ends& ends) {
  if (ends.signal == 0) return;
  machine::sync_block();
  if (machine::thread_x() != 0) return;
  machine::full_fence();
  if (machine::blocks_x() > 1) {
    if (!machine::last_of(pointer<u32>(ends.counter), machine::blocks_x())) return;
    machine::full_fence();
  }
  if (ends.add) {
    machine::add_release(pointer<u64>(ends.signal), ends.value);
  } else {
    machine::release(pointer<u64>(ends.signal), ends.value);
  }
}

}  // namespace thalweg::impl::kernels
