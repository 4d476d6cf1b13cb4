// SPDX-License-Identifier: Apache-2.0
// What kind of memory an address belongs to. The numbers travel in keys.
#pragma once
#include <cstdint>

namespace thalweg::impl {

enum class MemoryKind : uint8_t {
  host = 0,  // pageable: no device library knows it
  pinned,    // page-locked, allocated so or registered later; host and device reach it at one address
  device,    // cuMemAlloc
  managed,   // migrates on touch; the host may touch it
  pool,      // stream-ordered allocation
  vmm,       // physical pieces mapped contiguously into a reserved range
  emulated,  // ordinary memory of an emulated device
  count_
};

}  // namespace thalweg::impl
