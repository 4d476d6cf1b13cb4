// SPDX-License-Identifier: Apache-2.0
// C interface: kinds of memory and copies between them.
#include <algorithm>
#include <cstdio>

#include "core/c_checks.hpp"
#include "core/context.hpp"
#include "devices/place.hpp"
#include "devices/registry.hpp"

using namespace thalweg::impl;

namespace {

static_assert(TW_MEMORY_HOST == int(MemoryKind::host) && TW_MEMORY_PINNED == int(MemoryKind::pinned));
static_assert(TW_MEMORY_DEVICE == int(MemoryKind::device) && TW_MEMORY_MANAGED == int(MemoryKind::managed));
static_assert(TW_MEMORY_POOL == int(MemoryKind::pool) && TW_MEMORY_VMM == int(MemoryKind::vmm));
static_assert(TW_MEMORY_EMULATED == int(MemoryKind::emulated) && TW_MEMORY_EMULATED + 1 == int(MemoryKind::count_));
static_assert(TW_SHARE_HANDLE == int(ExportForm::ipc_handle) && TW_SHARE_DESCRIPTOR == int(ExportForm::descriptor));

tw_memory_info info_of(const BufferInfo& buffer) {
  tw_memory_info info = TW_MEMORY_INFO_INIT;
  info.kind = static_cast<uint32_t>(buffer.kind);
  info.host_access = buffer.host_access ? 1 : 0;
  info.exportable = static_cast<uint32_t>(buffer.exportable);
  if (buffer.device != nullptr) {
    info.device = static_cast<int32_t>(buffer.device->ordinal());
    std::memcpy(info.device_uuid, buffer.device->uuid().data(), sizeof info.device_uuid);
  }
  snprintf(info.place, sizeof info.place, "%s", place_name(buffer).c_str());
  info.base = reinterpret_cast<void*>(buffer.base);
  info.length = buffer.length;
  info.buffer_id = buffer.buffer_id;
  return info;
}

}  // namespace

extern "C" {

const char* tw_memory_kind_name(uint32_t kind) {
  constexpr const char* kNames[] = {"host", "pinned", "device", "managed", "pool", "vmm", "emulated"};
  static_assert(std::size(kNames) == size_t(MemoryKind::count_));
  return kind < std::size(kNames) ? kNames[kind] : "unknown";
}

tw_status tw_memory_query(const void* address, tw_memory_info* info) {
  if (address == nullptr || info == nullptr || info->size < sizeof(size_t))
    return fail(TW_ERR_INVALID, "asking needs an address and a tw_memory_info that begins as TW_MEMORY_INFO_INIT");
  open_backends();
  BufferInfo buffer;
  const Status found = find_device(reinterpret_cast<uintptr_t>(address), &buffer);
  if (found == TW_ERR_NO_MATCH) buffer = {};
  const size_t room = info->size;
  const tw_memory_info all = info_of(buffer);
  std::memcpy(info, &all, std::min(room, sizeof all));
  info->size = room;
  return TW_OK;
}

tw_status tw_memory_copy(tw_context* context, void* to, const void* from, size_t length) {
  const Status status = check(context);
  if (is_error(status)) return status;
  return context->copier.copy(reinterpret_cast<uintptr_t>(to), reinterpret_cast<uintptr_t>(from), length);
}

}  // extern "C"
