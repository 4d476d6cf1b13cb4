// SPDX-License-Identifier: Apache-2.0
// Which device does this pointer belong to, and which devices are there. One per process; thread-safe.
#pragma once
#include <atomic>

#include "devices/device.hpp"

namespace thalweg::impl {

/// Back ends that may own a pointer of this process. None on a machine without accelerators: then nothing is ever asked.
extern std::atomic<unsigned> backend_count;

/// Finds the back ends of this machine, once; cheap, initialises no device library. Called when a context is made.
void open_backends();

/// Adds a back end that stays until exit; adding it again changes nothing.
void add_backend(Backend* backend);

Status ask_backends(uint64_t address, BufferInfo* info);

/// TW_OK and *info, or TW_ERR_NO_MATCH without a text: ordinary host memory. Hot: one load where there is no back end.
inline Status find_device(uint64_t address, BufferInfo* info) {
  if (backend_count.load(std::memory_order_acquire) == 0) [[likely]]
    return TW_ERR_NO_MATCH;
  return ask_backends(address, info);
}

/// Host memory that devices reach?
inline bool is_pinned(const void* address) {
  BufferInfo info;
  return find_device(reinterpret_cast<uint64_t>(address), &info) == TW_OK && info.kind == MemoryKind::pinned;
}

/// As find_device(), of all of [address, address + length). Host memory that is pinned only in part is ordinary memory.
/// TW_ERR_OUT_OF_BOUNDS: it leaves the device's memory in which it begins.
Status find_device(uint64_t address, uint64_t length, BufferInfo* info);

/// All devices, which initialises their libraries. Never fails: a back end without a usable device adds a line to *why_not.
std::vector<Device*> list_devices(std::string* why_not);

/// The device of this process with that UUID; null: not visible here. Initialises as list_devices() does.
Device* find_device(const Uuid& uuid);

}  // namespace thalweg::impl
