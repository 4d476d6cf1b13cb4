// SPDX-License-Identifier: Apache-2.0
// Emulated devices: addresses and identities.
#include "devices/emulated/emulated.hpp"
#include "base/clock.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

#include "devices/emulated/backend.hpp"
#include "devices/persistent.hpp"

namespace thalweg::impl::emulated {
namespace {

/// The same on one machine since its start, different on another. Bytes 0 and 1 are the device's number: peer().
void make_uuid(unsigned index, Uuid* uuid) {
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
  std::memcpy(uuid->data(), hash, 16);
  (*uuid)[0] = 'e';
  (*uuid)[1] = static_cast<uint8_t>(index);
}

/// The entry of `map` that holds address, or its end.
template <typename Map>
auto around(const Map& map, uint64_t address) {
  auto after = map.upper_bound(address);
  if (after == map.begin()) return map.end();
  const auto entry = std::prev(after);
  return address - entry->first <= entry->second->length ? entry : map.end();
}

}  // namespace

uint64_t EmulatedDevice::time_of(unsigned index) {
  constexpr uint64_t kAhead = 3600 * kSecond, kDrift = 20'000;  // 50 in a million
  const uint64_t host = monotonic_ns();
  return host + host / kDrift + (index + 1) * kAhead;
}

EmulatedDevice::EmulatedDevice(unsigned index, const Options& options)
    : index_(index), engine_(std::make_shared<Engine>(options)) {}

Status EmulatedDevice::open(unsigned index, const Options& options, std::unique_ptr<EmulatedDevice>* out) {
  if (index > 63) return fail(TW_ERR_INVALID, "emulated devices are numbered from 0 to 63");
  std::unique_ptr<EmulatedDevice> device(new EmulatedDevice(index, options));
  make_uuid(index, &device->uuid_);
  void* range = mmap(nullptr, kRange, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) return fail_errno(errno, "reserving addresses for an emulated device");
  device->base_ = reinterpret_cast<uintptr_t>(range);
  enlist(device.get());
  *out = std::move(device);
  return TW_OK;
}

EmulatedDevice::~EmulatedDevice() {
  if (base_ == 0) return;
  strike(this);
  munmap(reinterpret_cast<void*>(base_), kRange);
}

/// First fit, so that a freed address is used again soon: identities must not depend on addresses.
Status EmulatedDevice::place(std::shared_ptr<Allocation> allocation, uint64_t* address) {
  const std::lock_guard lock(mutex_);
  if (!allocation->imported) {
    if (allocation->length > engine_->options.capacity - used_)
      return fail(TW_ERR_NO_MEMORY, "device %u has %zu bytes left; free some memory", index_,
                  static_cast<size_t>(engine_->options.capacity - used_));
    used_ += allocation->length;
  }
  if (allocation->host_access()) {
    *address = allocation->address = reinterpret_cast<uintptr_t>(allocation->view);
    host_[*address] = std::move(allocation);
    return TW_OK;
  }
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

Status EmulatedDevice::allocate(MemoryKind kind, size_t length, uint64_t* address) {
  if (Status s = born_.check("device"); is_error(s)) return s;
  if (Status s = engine_->faults.check(Operation::allocate); is_error(s)) return s;
  if (kind == MemoryKind::host || kind == MemoryKind::device || kind >= MemoryKind::count_)
    return fail(TW_ERR_INVALID, "an emulated device allocates emulated, pinned, managed, pool and vmm memory");
  if (length == 0 || length > engine_->options.capacity)
    return fail(length == 0 ? TW_ERR_INVALID : TW_ERR_NO_MEMORY, "cannot allocate %zu bytes on an emulated device", length);
  auto allocation = std::make_shared<Allocation>();
  if (Status s = allocation->create(kind, length, engine_->options.vmm_piece); is_error(s)) return s;
  return place(std::move(allocation), address);
}

/// It is this device's own: all is host memory.
Status EmulatedDevice::allocate_at(const Uuid& other, size_t length, uint64_t* address) {
  if (!peer(other).access) return fail(TW_ERR_UNREACHABLE, "device %u has no peer access to it", index_);
  return allocate(MemoryKind::vmm, length, address);
}

Status EmulatedDevice::remove(uint64_t address, Origin origin) {
  const std::lock_guard lock(mutex_);
  Map& map = owns(address) ? allocations_ : host_;
  const auto found = map.find(address);
  const bool matches = found != map.end() && found->second->imported == (origin == Origin::imported) &&
                       found->second->registered == (origin == Origin::registered);
  if (!matches) {
    const char* words[] = {"allocated", "registered", "imported"};
    return fail(TW_ERR_HANDLE, "this address was not %s (any more)", words[static_cast<int>(origin)]);
  }
  if (origin == Origin::allocated) used_ -= found->second->length;
  map.erase(found);
  return TW_OK;
}

Status EmulatedDevice::free(uint64_t address) {
  wait_for_kernels();
  return remove(address, Origin::allocated);
}
Status EmulatedDevice::release_import(uint64_t address) { return remove(address, Origin::imported); }
/// As a GPU's driver, which frees and unpins while no kernel runs, and lets no other call pass meanwhile.
void EmulatedDevice::wait_for_kernels() const {
  const PersistentPause pause;
  const std::lock_guard driver(engine_->driver);
  engine_->slots.wait_idle(std::chrono::nanoseconds(engine_->options.wait_limit_ns));
}

Status EmulatedDevice::unregister_host(void* address) {
  std::this_thread::sleep_for(std::chrono::nanoseconds(engine_->options.release_delay_ns));
  wait_for_kernels();
  return remove(reinterpret_cast<uintptr_t>(address), Origin::registered);
}

Status EmulatedDevice::register_host(void* address, size_t length) {
  if (Status s = born_.check("device"); is_error(s)) return s;
  const uint64_t start = reinterpret_cast<uintptr_t>(address);
  if (start == 0 || length == 0) return fail(TW_ERR_INVALID, "there is nothing to pin");
  if (emulated::overlaps(start, length))
    return fail(TW_ERR_BUSY, "these pages are pinned already or belong to a device; use them as they are");
  auto allocation = std::make_shared<Allocation>();
  allocation->adopt_host(address, length);
  allocation->address = start;
  const std::lock_guard lock(mutex_);
  host_[start] = std::move(allocation);
  return TW_OK;
}

bool EmulatedDevice::overlaps(uint64_t address, uint64_t length) const {
  if (owns(address) || owns(address + length - 1)) return true;
  const std::lock_guard lock(mutex_);
  const auto after = host_.lower_bound(address + length);
  if (after == host_.begin()) return false;
  const Allocation& last = *std::prev(after)->second;
  return last.address + last.length > address;
}

size_t EmulatedDevice::holdings() const {
  const std::lock_guard lock(mutex_);
  return allocations_.size() + host_.size();
}

std::shared_ptr<Allocation> EmulatedDevice::find(uint64_t address, uint64_t length) const {
  const std::lock_guard lock(mutex_);
  const Map& map = owns(address) ? allocations_ : host_;
  const auto found = around(map, address);
  if (found == map.end() || length > found->second->length - (address - found->first)) return nullptr;
  return found->second;
}

bool EmulatedDevice::describe(uint64_t address, BufferInfo* info) {
  const std::shared_ptr<Allocation> allocation = find(address, 1);
  if (allocation == nullptr) return false;
  const Piece& piece = allocation->piece_at(address - allocation->address);
  info->kind = allocation->kind;
  info->device = this;
  info->buffer_id = piece.buffer_id;
  info->base = allocation->address + piece.offset;
  info->length = piece.length;
  info->host_access = allocation->host_access();
  info->exportable = ExportForm::none;
  if (!allocation->imported && allocation->kind == MemoryKind::emulated) info->exportable = ExportForm::ipc_handle;
  if (!allocation->imported && allocation->kind == MemoryKind::vmm) info->exportable = ExportForm::descriptor;
  return true;
}

std::byte* EmulatedDevice::translate(uint64_t address, size_t length) const {
  const std::shared_ptr<Allocation> allocation = find(address, length);
  return allocation == nullptr ? nullptr : allocation->view + (address - allocation->address);
}

}  // namespace thalweg::impl::emulated
