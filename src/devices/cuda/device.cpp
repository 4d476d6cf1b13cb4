// SPDX-License-Identifier: Apache-2.0
// Contexts, allocation by kind, pinning.
#include "devices/cuda/device.hpp"

#include <algorithm>

#include "devices/persistent.hpp"

namespace thalweg::impl::cuda {
namespace {

constexpr size_t kPiece = size_t{32} << 20;  // of our own vmm memory; PyTorch's are 20 MiB, so rows are the ordinary case

}  // namespace

Status CudaDevice::context(CuContext* out) {
  if (Status s = check_alive(); is_error(s)) return s;
  *out = context_.load(std::memory_order_acquire);
  if (*out != nullptr) return TW_OK;
  const std::lock_guard lock(making_);
  *out = context_.load(std::memory_order_relaxed);
  if (*out != nullptr) return TW_OK;
  if (Status s = check(driver().DevicePrimaryCtxRetain(out, ordinal_), "opening a GPU's context"); is_error(s)) return s;
  flushes_ = attribute(kFlushRemoteWrites) != 0;
  // What cmake/Cuda.cmake has code for. Later ones run that of 8.0, which does not wait for the kernel ahead.
  starts_early_ = major_ == 9 || major_ == 10;
  context_.store(*out, std::memory_order_release);
  return TW_OK;
}

std::string CudaDevice::model() const {
  char name[128] = {};
  int version = 0;
  if (driver().DeviceGetName(name, sizeof name - 1, ordinal_) != result::success) name[0] = 0;
  if (driver().DriverGetVersion(&version) != result::success) version = 0;
  std::string text = name[0] != 0 ? name : "GPU";
  for (char& c : text)
    if (c < 0x20 || c > 0x7e) c = '?';
  return text + ", driver " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

int CudaDevice::attribute(DeviceAttribute which) const {
  int value = 0;
  return driver().DeviceGetAttribute(&value, which, ordinal_) == result::success ? value : 0;
}

/// What is not a number of whole pages is mapped by smaller ones: two H200 copying to each other, 256 MiB + 4 KiB each: 585 GB/s,
/// 258 MiB: 775 (driver 580).
constexpr size_t kPage = 2u << 20;

Status CudaDevice::allocate_simple(MemoryKind kind, size_t length, uint64_t* address) {
  switch (kind) {
    case MemoryKind::device:
      return check(driver().MemAlloc(address, length >= kPage ? (length + kPage - 1) / kPage * kPage : length),
                   "allocating device memory");
    case MemoryKind::managed:
      return check(driver().MemAllocManaged(address, length, kAttachGlobal), "allocating managed memory");
    case MemoryKind::pinned: {
      void* host = nullptr;
      const Status status = check(driver().MemHostAlloc(&host, length, kHostAllocPortable), "allocating pinned memory");
      *address = reinterpret_cast<uintptr_t>(host);
      return status;
    }
    default:
      return fail(TW_ERR_INVALID, "a GPU allocates device, pinned, managed, pool and vmm memory");
  }
}

/// Stream-ordered on a stream of our own, but there at once.
Status CudaDevice::allocate_from_pool(size_t length, uint64_t* address) {
  const std::lock_guard lock(making_);
  if (pool_stream_ == nullptr) {
    if (Status s = check(driver().StreamCreate(&pool_stream_, kStreamNonBlocking), "making a stream"); is_error(s)) return s;
  }
  Status status = check(driver().MemAllocAsync(address, length, pool_stream_), "allocating from the device's pool");
  if (is_error(status)) return status;
  return check(driver().StreamSynchronize(pool_stream_), "allocating from the device's pool");
}

/// Pieces of device `home` that other processes may map, where the device can export them, mapped for this one.
Status CudaDevice::create_row(int home, size_t length, MappedRow* out) {
  if (attribute(kVirtualMemory) == 0) return fail(TW_ERR_UNSUPPORTED, "GPU %d cannot map memory piece by piece", ordinal_);
  AllocationProperties properties{};
  properties.type = kAllocationPinned;
  properties.handle_types = attribute(kDescriptorHandles) != 0 ? kHandleDescriptor : 0;
  properties.location = {kLocationDevice, home};
  size_t unit = 0;
  Status status = check(driver().MemGetAllocationGranularity(&unit, &properties, 0), "asking for the size of pieces");
  if (is_error(status)) return status;
  const size_t whole = (length + unit - 1) / unit * unit, largest = std::max(unit, kPiece / unit * unit);
  std::vector<Piece> pieces;
  for (size_t done = 0; done < whole && !is_error(status); done += pieces.back().length) {
    Piece piece{0, std::min(largest, whole - done)};
    status = check(driver().MemCreate(&piece.memory, piece.length, &properties, 0), "creating device memory");
    if (is_error(status)) break;
    pieces.push_back(piece);
  }
  if (!is_error(status)) status = map_row(driver(), ordinal_, pieces, out);
  for (const Piece& piece : pieces) driver().MemRelease(piece.memory);  // a mapping keeps it
  return status;
}

Status CudaDevice::allocate(MemoryKind kind, size_t length, uint64_t* address) {
  if (length == 0) return fail(TW_ERR_INVALID, "cannot allocate nothing");
  const PersistentPause pause;
  const OnDevice current(*this);
  if (is_error(current.status())) return current.status();
  Owned owned{kind, length, {}};
  Status status;
  if (kind == MemoryKind::vmm) {
    status = create_row(ordinal_, length, &owned.row);
    *address = owned.row.base;
  } else if (kind == MemoryKind::pool) {
    status = allocate_from_pool(length, address);
  } else {
    status = allocate_simple(kind, length, address);
  }
  if (is_error(status)) return status;
  const std::lock_guard lock(tables_);
  owned_[*address] = std::move(owned);
  return TW_OK;
}

Status CudaDevice::allocate_at(const Uuid& other, size_t length, uint64_t* address) {
  const CudaDevice* const there = backend_.device(other);
  if (there == nullptr || !peer(other).access) return fail(TW_ERR_UNREACHABLE, "GPU %d has no peer access to it", ordinal_);
  if (length == 0) return fail(TW_ERR_INVALID, "cannot allocate nothing");
  const PersistentPause pause;
  const OnDevice current(*this);
  if (is_error(current.status())) return current.status();
  Owned owned{MemoryKind::vmm, length, {}};
  if (Status s = create_row(there->ordinal_, length, &owned.row); is_error(s)) return s;
  *address = owned.row.base;
  const std::lock_guard lock(tables_);
  owned_[*address] = std::move(owned);
  return TW_OK;
}

Status CudaDevice::free(uint64_t address) {
  const PersistentPause pause;
  const OnDevice current(*this);
  if (is_error(current.status())) return current.status();
  std::map<uint64_t, Owned>::node_type owned;
  {
    const std::lock_guard lock(tables_);
    owned = owned_.extract(address);
  }
  if (owned.empty()) return fail(TW_ERR_HANDLE, "this address was not allocated here (any more)");
  switch (owned.mapped().kind) {
    case MemoryKind::vmm:
      return unmap_row(driver(), owned.mapped().row);
    case MemoryKind::pinned:
      return check(driver().MemFreeHost(reinterpret_cast<void*>(address)), "freeing pinned memory");
    default:
      return check(driver().MemFree(address), "freeing device memory");
  }
}

Status CudaDevice::register_host(void* address, size_t length) {
  if (address == nullptr || length == 0) return fail(TW_ERR_INVALID, "there is nothing to pin");
  const PersistentPause pause;
  const OnDevice current(*this);
  if (is_error(current.status())) return current.status();
  if (attribute(kHostPointerForRegistered) == 0)
    return fail(TW_ERR_UNSUPPORTED, "GPU %d reaches registered pages at another address; allocate pinned memory", ordinal_);
  return check(driver().MemHostRegister(address, length, kHostRegisterPortable), "pinning host pages");
}

Status CudaDevice::unregister_host(void* address) {
  const PersistentPause pause;
  const OnDevice current(*this);
  if (is_error(current.status())) return current.status();
  const CuResult result = driver().MemHostUnregister(address);
  return check(result == result::invalid_value ? result::host_not_registered : result, "unpinning host pages");
}

Status CudaDevice::load_kernels() {
  const PersistentPause pause;
  const OnDevice current(*this);
  if (is_error(current.status())) return current.status();
  return backend_.kernels().load_here();
}

/// A page of them.
bool CudaDevice::make_counters() {
  constexpr size_t kCount = 1024;
  constexpr uint64_t kStride = 8;
  const PersistentPause pause;
  CuPointer page = 0;
  if (driver().MemAlloc(&page, kCount * kStride) != result::success) return false;
  if (driver().MemsetD8Async(page, 0, kCount * kStride, pool_stream_) != result::success ||
      driver().StreamSynchronize(pool_stream_) != result::success) {
    driver().MemFree(page);
    return false;
  }
  for (uint64_t i = 0; i < kCount; ++i) counters_.push_back(page + i * kStride);
  return true;
}

/// They are made at the first call that finds memory for them. Without, signals take a launch of their own.
uint64_t CudaDevice::take_counter() {
  const OnDevice current(*this);
  if (is_error(current.status())) return 0;
  const std::lock_guard lock(making_);
  if (!counters_made_ && pool_stream_ == nullptr) driver().StreamCreate(&pool_stream_, kStreamNonBlocking);
  if (!counters_made_ && pool_stream_ != nullptr) counters_made_ = make_counters();
  if (counters_.empty()) return 0;
  const uint64_t counter = counters_.back();
  counters_.pop_back();
  return counter;
}

void CudaDevice::give_back_counter(uint64_t counter) {
  const std::lock_guard lock(making_);
  counters_.push_back(counter);
}

}  // namespace thalweg::impl::cuda
