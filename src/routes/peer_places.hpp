// SPDX-License-Identifier: Apache-2.0
// A peer's memory as a Place: from its keys and RTS messages and the link's features. Both ends decide by the same
// facts.
#pragma once
#include "memory/place.hpp"
#include "memory/remote.hpp"

namespace thalweg::impl {

/// `segment`: the name by which it may be mapped or imported, 0: none. `copies`: the kernel may copy it, as far as the owner
/// reports.
Place peer_place(MemoryKind kind, const Uuid& device, uint64_t segment, bool copies, uint32_t features);
Place peer_place(const KeyBody& key, uint32_t features);

}  // namespace thalweg::impl
