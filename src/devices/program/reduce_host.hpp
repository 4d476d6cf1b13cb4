// SPDX-License-Identifier: Apache-2.0
// Reductions by a thread of the host, with the widest vectors that the processor has.
#pragma once
#include <thalweg/device/reduce.hpp>

namespace thalweg::impl {

/// As device::reduce_part of one thread: the same bits.
void reduce_on_host(const device::Reduction& what, device::Part part);

}  // namespace thalweg::impl
