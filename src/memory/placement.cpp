// SPDX-License-Identifier: Apache-2.0
// The ways into the registry by kind of memory.
#include "memory/placement.hpp"

#include "base/platform/process.hpp"
#include "devices/registry.hpp"

namespace thalweg::impl {

Status check_host_memory(const void* address, uint64_t length) {
  const auto* const bytes = static_cast<const std::byte*>(address);
  const bool wraps = length > UINTPTR_MAX - reinterpret_cast<uintptr_t>(address);
  if (length == 0 || (!wraps && may_read(bytes) && may_read(bytes + (length - 1)))) return TW_OK;
  return fail(TW_ERR_UNSUPPORTED,
              "this process may not read %llu bytes at %p, and none of its devices knows them: if they are memory of a GPU, "
              "`thalweg info` says why its driver is not used here; else map them first",
              static_cast<unsigned long long>(length), address);
}

Status register_anywhere(Registry& registry, void* address, size_t length, uint32_t access, tw_memory** out) {
  BufferInfo info;
  const Status found = find_device(reinterpret_cast<uintptr_t>(address), length, &info);
  if (found != TW_OK && found != TW_ERR_NO_MATCH) return found;
  if (found == TW_ERR_NO_MATCH) {
    if (const Status status = check_host_memory(address, length); is_error(status)) return status;
  }
  return registry.register_memory(address, length, access, out, found == TW_OK ? origin_of(info) : MemoryOrigin());
}

Status allocate_at(Registry& registry, const MemoryPlace& place, size_t length, uint32_t access, bool huge, tw_memory** out) {
  if (place.kind == MemoryKind::host) return registry.allocate(length, access, huge, out);
  tw_memory* memory = nullptr;
  if (place.kind == MemoryKind::pinned) {
    if (Status s = registry.allocate(length, access, huge, &memory); is_error(s)) return s;
    auto pinning = std::make_shared<DeviceAllocation>();
    const Status pinned = DeviceAllocation::pin(*place.device, memory->segment.data(), memory->segment.size(), pinning.get());
    if (is_error(pinned)) {
      const std::string why = last_error();
      registry.release(memory);
      set_last_error(why);
      return pinned;
    }
    memory->device = std::move(pinning);
    *out = memory;
    return TW_OK;
  }
  if (huge) return fail(TW_ERR_INVALID, "huge_pages is for host and pinned memory; leave it 0 for a device's");
  auto allocation = std::make_shared<DeviceAllocation>();
  if (Status s = DeviceAllocation::allocate(*place.device, place.kind, length, allocation.get()); is_error(s)) return s;
  void* const address = reinterpret_cast<void*>(allocation->address());
  if (Status s = register_anywhere(registry, address, length, access, &memory); is_error(s)) return s;
  memory->device = std::move(allocation);
  *out = memory;
  return TW_OK;
}

}  // namespace thalweg::impl
