// SPDX-License-Identifier: Apache-2.0
// The list of back ends: grows only, so readers need no lock.
#include "devices/registry.hpp"

#include <mutex>
#include <string>

#include "devices/cuda/backend.hpp"
#include "devices/emulated/backend.hpp"
#include "devices/host_ranges.hpp"

namespace thalweg::impl {
namespace {

constexpr unsigned kMaxBackends = 4;
std::mutex adding;
Backend* backends[kMaxBackends];

}  // namespace

std::atomic<unsigned> backend_count{0};

void open_backends() {
  static std::once_flag once;
  std::call_once(once, [] {
    cuda::open_backend();
    emulated::open_from_environment();
  });
}

void add_backend(Backend* backend) {
  const std::lock_guard lock(adding);
  const unsigned count = backend_count.load(std::memory_order_relaxed);
  for (unsigned i = 0; i < count; ++i) {
    if (backends[i] == backend) return;
  }
  if (count == kMaxBackends) return;
  if (count == 0) host_ranges.find();
  backends[count] = backend;
  backend_count.store(count + 1, std::memory_order_release);
}

Status ask_backends(uint64_t address, BufferInfo* info) {
  const unsigned count = backend_count.load(std::memory_order_acquire);
  for (unsigned i = 0; i < count; ++i) {
    if (backends[i]->identify(address, info) == TW_OK) return TW_OK;
  }
  return TW_ERR_NO_MATCH;
}

Status find_device(uint64_t address, uint64_t length, BufferInfo* info) {
  if (find_device(address, info) != TW_OK) return TW_ERR_NO_MATCH;
  const uint64_t end = address + length;
  BufferInfo piece = *info;
  for (uint64_t at = piece.base + piece.length; at < end; at = piece.base + piece.length) {
    const bool goes_on = info->kind == MemoryKind::vmm && find_device(at, &piece) == TW_OK && piece.kind == MemoryKind::vmm;
    if (goes_on) continue;
    if (info->kind == MemoryKind::pinned) return TW_ERR_NO_MATCH;
    return fail(TW_ERR_OUT_OF_BOUNDS, "%zu bytes at %p leave the memory of device %s:%u in which they begin; it ends at %p",
                static_cast<size_t>(length), reinterpret_cast<void*>(address), info->device->name(), info->device->ordinal(),
                reinterpret_cast<void*>(at));
  }
  return TW_OK;
}

std::vector<Device*> list_devices(std::string* why_not) {
  std::vector<Device*> all;
  if (why_not != nullptr && !cuda::why_absent().empty()) *why_not += "cuda: " + cuda::why_absent() + "\n";
  const unsigned count = backend_count.load(std::memory_order_acquire);
  for (unsigned i = 0; i < count; ++i) {
    std::vector<Device*> some;
    if (is_error(backends[i]->devices(&some))) {
      if (why_not != nullptr) *why_not += std::string(backends[i]->name()) + ": " + last_error() + "\n";
      continue;
    }
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

Device* find_device(const Uuid& uuid) {
  for (Device* device : list_devices(nullptr)) {
    if (device->uuid() == uuid) return device;
  }
  return nullptr;
}

}  // namespace thalweg::impl
