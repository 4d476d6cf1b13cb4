// SPDX-License-Identifier: Apache-2.0
// Which memory may work of this device touch, and peer access given at first need: between contexts for ordinary allocations,
// by allocation for mapped and pool memory.
#include "devices/cuda/device.hpp"

namespace thalweg::impl::cuda {

PeerAccess CudaDevice::peer(const Uuid& other) const {
  if (other == uuid_) return {true, true, DeviceLink::same};
  const CudaDevice* const there = backend_.device(other);
  if (there == nullptr) return {false, false, DeviceLink::unknown};
  int can = 0, atomics = 0;
  if (forked() || driver().DeviceCanAccessPeer(&can, ordinal_, there->ordinal_) != result::success || can == 0) return {};
  if (driver().DeviceGetP2PAttribute(&atomics, kNativeAtomics, ordinal_, there->ordinal_) != result::success) atomics = 0;
  // The driver does not name the link; only NVLink has native atomics.
  return {true, atomics != 0, atomics != 0 ? DeviceLink::nvlink : DeviceLink::pcie};
}

Status CudaDevice::enable_peer(CuContext from, CuContext to) {
  if (from == to) return TW_OK;
  const CuResult result = driver().CtxEnablePeerAccess(to, 0);
  return result == result::peer_enabled ? TW_OK : check(result, "giving peer access");
}

/// For this device, to a mapped row; nobody else's access changes.
Status CudaDevice::share_row(uint64_t base, uint64_t length) const {
  const Location here{kLocationDevice, ordinal_};
  uint64_t flags = 0;
  if (driver().MemGetAccess(&flags, &here, base) == result::success && flags == kReadWrite) return TW_OK;
  const AccessDescription access{here, kReadWrite};
  return check(driver().MemSetAccess(base, length, &access, 1), "giving peer access to mapped memory");
}

Status CudaDevice::share_pool(CuPool pool) const {
  Location here{kLocationDevice, ordinal_};
  unsigned flags = 0;
  if (driver().MemPoolGetAccess(&flags, pool, &here) == result::success && flags == kReadWrite) return TW_OK;
  const AccessDescription access{here, kReadWrite};
  return check(driver().MemPoolSetAccess(pool, &access, 1), "giving peer access to a pool");
}

Status CudaDevice::reach_peer(CuContext context, uint64_t address, const BufferInfo& info) {
  if (info.kind == MemoryKind::vmm) return info.device == this ? TW_OK : share_row(info.base, info.length);
  CuContext home = nullptr;
  CuPool pool = nullptr;
  unsigned attributes[] = {kContext, kPool};
  void* data[] = {&home, &pool};
  if (Status s = check(driver().PointerGetAttributes(2, attributes, data, address), "looking at memory"); is_error(s)) return s;
  if (info.kind == MemoryKind::pool) return info.device == this ? TW_OK : share_pool(pool);
  return home == nullptr ? TW_OK : enable_peer(context, home);
}

Status CudaDevice::reach_active_peers(CuContext context) {
  for (unsigned i = 0; i < backend_.count() && i < 64; ++i) {
    const uint64_t bit = uint64_t{1} << i;
    CudaDevice* const other = backend_.device(static_cast<int>(i));
    const bool primary = context == context_.load(std::memory_order_relaxed);
    if (other == this || (primary && (enabled_peers_.load(std::memory_order_relaxed) & bit) != 0)) continue;
    unsigned flags = 0;
    int active = 0;
    if (driver().DevicePrimaryCtxGetState(other->ordinal_, &flags, &active) != result::success || active == 0) continue;
    CuContext theirs = nullptr;
    if (!peer(other->uuid_).access || is_error(other->context(&theirs))) continue;
    if (Status s = enable_peer(context, theirs); is_error(s)) return s;
    if (primary) enabled_peers_.fetch_or(bit, std::memory_order_relaxed);
  }
  return TW_OK;
}

Status CudaDevice::reach(Use use, CuContext context, uint64_t address, uint64_t length, BufferInfo* seen) {
  const uint64_t end = address + length;
  if (end < address) return fail(TW_ERR_OUT_OF_BOUNDS, "the range has no end");
  for (uint64_t at = address; at < end;) {
    if (at < seen->base || at >= seen->base + seen->length) {
      *seen = BufferInfo();
      if (backend_.identify(at, seen) != TW_OK) {
        if (at != address) return fail(TW_ERR_OUT_OF_BOUNDS, "the range leaves the memory in which it begins");
        return fail(TW_ERR_UNSUPPORTED, "a CUDA queue takes no pageable host memory (%p); pin it, or let it go through staging",
                    reinterpret_cast<void*>(at));
      }
      if (use == Use::word && seen->kind == MemoryKind::managed)
        return fail(TW_ERR_UNSUPPORTED, "a queue's word cannot be in managed memory; use device or pinned memory");
      const bool import = backend_.import_count.load(std::memory_order_acquire) != 0 && is_import(at);
      const bool device_memory = seen->kind != MemoryKind::pinned && seen->kind != MemoryKind::managed;
      const bool peers = seen->device == this || peer(seen->device->uuid()).access;
      if (device_memory && !import && peers) {
        if (Status s = reach_peer(context, at, *seen); is_error(s) && use != Use::copy) return s;
      } else if (device_memory && !import && use != Use::copy) {
        return fail(TW_ERR_UNREACHABLE, "GPU %d has no peer access to GPU %u; let it go through staging", ordinal_,
                    seen->device->ordinal());
      }
    }
    at = seen->base + seen->length;
    if (at < end && seen->kind != MemoryKind::vmm)
      return fail(TW_ERR_OUT_OF_BOUNDS, "the range leaves the memory in which it begins");
  }
  return TW_OK;
}

}  // namespace thalweg::impl::cuda
