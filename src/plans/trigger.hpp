// SPDX-License-Identifier: Apache-2.0
// The triggers of one record. The host's is Engine::start; these hand the same OpDesc to the same Protocol by its other
// entries. A cell of the support table that is empty is refused here, by name.
#pragma once
#include "protocols/device_desc.hpp"
#include "protocols/operation.hpp"

namespace thalweg::impl {

/// Enqueues op on `queue`, behind its earlier work. The buffers and regions of op must live until the queue has run it.
Status trigger_queue(const OpDesc& op, const Protocol& protocol, Queue& queue);

/// Fills in what device code, or its host-side twin, needs to run op. Valid while op's regions are.
Status trigger_kernel(const OpDesc& op, const Protocol& protocol, DeviceDesc* out);

}  // namespace thalweg::impl
