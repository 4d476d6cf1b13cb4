// SPDX-License-Identifier: Apache-2.0
// Memory at a named place, and user memory of whatever kind, into the registry.
#pragma once
#include "devices/place.hpp"
#include "memory/registry.hpp"

namespace thalweg::impl {

/// Shared segments for host and pinned memory, the device's own otherwise (contents undefined). `huge` is for the former.
Status allocate_at(Registry& registry, const MemoryPlace& place, size_t length, uint32_t access, bool huge, tw_memory** out);

/// Host memory is there to be read, at both ends of [address, address + length). TW_ERR_UNSUPPORTED: it is not; such as
/// memory of a GPU whose driver this process has not loaded, which would fault at the first load otherwise.
Status check_host_memory(const void* address, uint64_t length);

/// As Registry::register_memory(), after asking which device the memory belongs to.
Status register_anywhere(Registry& registry, void* address, size_t length, uint32_t access, tw_memory** out);

}  // namespace thalweg::impl
