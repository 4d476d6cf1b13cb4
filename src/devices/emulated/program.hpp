// SPDX-License-Identifier: Apache-2.0
// Programs on emulated devices and host queues.
#pragma once
#include "devices/emulated/kernels.hpp"
#include "devices/emulated/stream.hpp"
#include "devices/program.hpp"

namespace thalweg::impl::emulated {

class EmulatedDevice;

/// A task that does one run of the program, on all of its blocks: their turns come in no particular order. On a host queue
/// (device null) one block does. Takes over the steps, unless they are placed.
Status make_program(const EmulatedDevice* device, const ProgramRun& program, Task* out);

}  // namespace thalweg::impl::emulated
