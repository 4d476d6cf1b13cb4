// SPDX-License-Identifier: Apache-2.0
// Emulated devices: addresses, identities, export and import.
#include "devices/emulated/emulated.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "devices/emulated/queue.hpp"

namespace thalweg::impl::emulated {
namespace {

/// All devices of this process: a queue of one may copy to memory of another.
struct Devices {
  std::mutex mutex;
  std::vector<EmulatedDevice*> list;
};
Devices& devices() {
  static Devices all;
  return all;
}

/// Never the same twice, also not between processes: a re-used address is told apart by it.
uint64_t next_buffer_id() {
  static const uint64_t process = [] {
    uint32_t value = 0;
    if (getrandom(&value, sizeof value, 0) != sizeof value) value = static_cast<uint32_t>(getpid());
    return uint64_t{value} << 32;
  }();
  static std::atomic<uint32_t> count{0};
  return process | (count.fetch_add(1, std::memory_order_relaxed) + 1);
}

/// The same on one machine since its start, different on another.
void make_uuid(unsigned index, uint8_t* uuid) {
  char boot[37] = {};
  if (FILE* file = std::fopen("/proc/sys/kernel/random/boot_id", "re")) {
    const size_t n = std::fread(boot, 1, 36, file);
    boot[n] = 0;
    std::fclose(file);
  }
  uint64_t hash[2] = {1469598103934665603u, 1099511628211u * (index + 1)};
  for (const char* c = boot; *c != 0; ++c) {
    for (uint64_t& h : hash) h = (h ^ static_cast<uint8_t>(*c)) * 1099511628211u;
  }
  std::memcpy(uuid, hash, 16);
  uuid[0] = 'e';
  uuid[1] = static_cast<uint8_t>(index);
}

}  // namespace

Status EmulatedDevice::open(unsigned index, const Options& options, std::unique_ptr<EmulatedDevice>* out) {
  if (index > 255) return fail(TW_ERR_INVALID, "emulated devices are numbered from 0 to 255");
  std::unique_ptr<EmulatedDevice> device(new EmulatedDevice());
  device->index_ = index;
  device->options_ = options;
  make_uuid(index, device->uuid_);
  void* range = mmap(nullptr, kRange, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) return fail_errno(errno, "reserving addresses for an emulated device");
  device->base_ = reinterpret_cast<uintptr_t>(range);
  const std::lock_guard lock(devices().mutex);
  devices().list.push_back(device.get());
  *out = std::move(device);
  return TW_OK;
}

EmulatedDevice::~EmulatedDevice() {
  if (base_ == 0) return;
  {
    const std::lock_guard lock(devices().mutex);
    std::erase(devices().list, this);
  }
  munmap(reinterpret_cast<void*>(base_), kRange);
}

/// First fit, so that a freed address is used again soon: identities must not depend on addresses.
Status EmulatedDevice::place(std::shared_ptr<Allocation> allocation, uint64_t* address) {
  const std::lock_guard lock(mutex_);
  uint64_t at = base_;
  for (const auto& [start, other] : allocations_) {
    if (start - at >= allocation->mapped) break;
    at = start + other->mapped;
  }
  if (allocation->mapped > base_ + kRange - at)
    return fail(TW_ERR_NO_MEMORY, "the emulated device has no addresses left; free some memory");
  allocation->address = at;
  allocations_[at] = std::move(allocation);
  *address = at;
  return TW_OK;
}

Status EmulatedDevice::allocate(size_t length, uint64_t* address) {
  if (length == 0 || length > kRange) return fail(TW_ERR_INVALID, "cannot allocate %zu bytes on an emulated device", length);
  auto allocation = std::make_shared<Allocation>();
  if (Status s = allocation->create(length); is_error(s)) return s;
  allocation->buffer_id = next_buffer_id();
  return place(std::move(allocation), address);
}

Status EmulatedDevice::remove(uint64_t address, bool imported) {
  const std::lock_guard lock(mutex_);
  const auto found = allocations_.find(address);
  if (found == allocations_.end() || found->second->imported != imported) {
    return fail(TW_ERR_HANDLE,
                imported ? "this address was not imported (any more)" : "this address was not allocated (any more)");
  }
  allocations_.erase(found);
  return TW_OK;
}

Status EmulatedDevice::free(uint64_t address) { return remove(address, false); }
Status EmulatedDevice::release_import(uint64_t address) { return remove(address, true); }

std::shared_ptr<Allocation> EmulatedDevice::find(uint64_t address, uint64_t length) const {
  const std::lock_guard lock(mutex_);
  auto after = allocations_.upper_bound(address);
  if (after == allocations_.begin()) return nullptr;
  const std::shared_ptr<Allocation>& allocation = std::prev(after)->second;
  const uint64_t within = address - allocation->address;
  if (within > allocation->length || length > allocation->length - within) return nullptr;
  return allocation;
}

Status EmulatedDevice::identify(uint64_t address, BufferInfo* info) const {
  const std::shared_ptr<Allocation> allocation = owns(address) ? find(address, 1) : nullptr;
  if (allocation == nullptr) return TW_ERR_NO_MATCH;
  *info = {MemoryKind::emulated, static_cast<int>(index_), allocation->buffer_id, allocation->address, allocation->length};
  return TW_OK;
}

Status EmulatedDevice::export_memory(uint64_t address, ExportedMemory* out) {
  const std::shared_ptr<Allocation> allocation = find(address, 1);
  if (allocation == nullptr || allocation->imported) {
    return fail(TW_ERR_INVALID, "only memory allocated on this device by this process can be exported");
  }
  const int copy = fcntl(allocation->fd.get(), F_DUPFD_CLOEXEC, 3);
  if (copy < 0) return fail_errno(errno, "duplicating the descriptor of device memory");
  std::memcpy(out->device_uuid, uuid_, sizeof uuid_);
  out->id = allocation->buffer_id;
  out->length = allocation->length;
  out->fd = UniqueFd(copy);
  return TW_OK;
}

Status EmulatedDevice::import_memory(ExportedMemory&& from, uint64_t* address) {
  if (std::memcmp(from.device_uuid, uuid_, sizeof uuid_) != 0) {
    return fail(TW_ERR_INVALID, "this memory lives on another device; import it there");
  }
  auto allocation = std::make_shared<Allocation>();
  if (Status s = allocation->adopt(std::move(from.fd), from.length); is_error(s)) return s;
  allocation->buffer_id = from.id;
  return place(std::move(allocation), address);
}

Status EmulatedDevice::make_queue(std::unique_ptr<Queue>* out) {
  *out = std::make_unique<EmulatedQueue>(options_.task_delay_ns, options_.wait_limit_ns);
  return TW_OK;
}

std::byte* EmulatedDevice::translate(uint64_t address, size_t length) {
  const std::shared_ptr<Allocation> allocation = find(address, length);
  return allocation == nullptr ? nullptr : allocation->view + (address - allocation->address);
}

Status locate(uint64_t address, int64_t first, int64_t last, Place* out) {
  const uint64_t start = address + static_cast<uint64_t>(first);
  const std::lock_guard lock(devices().mutex);
  for (const EmulatedDevice* device : devices().list) {
    if (!device->owns(address) && !device->owns(start)) continue;
    out->holder = device->find(start, static_cast<uint64_t>(last - first));
    if (out->holder == nullptr) {
      return fail(TW_ERR_OUT_OF_BOUNDS, "a queue was asked to touch device memory that is not allocated (any more)");
    }
    out->pointer = out->holder->view + static_cast<int64_t>(start - out->holder->address) - first;
    return TW_OK;
  }
  out->pointer = reinterpret_cast<std::byte*>(address);  // host memory
  return TW_OK;
}

}  // namespace thalweg::impl::emulated
