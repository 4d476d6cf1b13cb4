// SPDX-License-Identifier: Apache-2.0
// Which memory may work of this device touch, and peer access given at first need: between contexts for ordinary allocations,
// by allocation for mapped and pool memory.
#include <cstdlib>
#include <string_view>

#include "devices/cuda/device.hpp"
#include "devices/persistent.hpp"
#include "devices/topology_reach.hpp"

namespace thalweg::impl::cuda {

namespace {

// Compute capabilities whose lines arrive whole over NVLink: those on which NCCL relies on it; docs/kernels.md names what was measured.
constexpr int kLinesFrom = 7, kLinesTo = 10;

/// For measurements: as where no GPU reaches another one's memory.
bool without_peers() {
  const char* const value = std::getenv("THALWEG_CUDA_PEERS");
  return value != nullptr && std::string_view(value) == "off";
}

}  // namespace

PeerAccess CudaDevice::peer(const Uuid& other) const {
  const bool lines = major_ >= kLinesFrom && major_ <= kLinesTo;
  if (other == uuid_) return {true, true, DeviceLink::same, lines};
  if (without_peers()) return {};
  const CudaDevice* const there = backend_.device(other);
  if (there == nullptr) return {false, false, DeviceLink::unknown};
  int can = 0, atomics = 0;
  if (forked() || driver().DeviceCanAccessPeer(&can, ordinal_, there->ordinal_) != result::success || can == 0) return {};
  if (driver().DeviceGetP2PAttribute(&atomics, kNativeAtomics, ordinal_, there->ordinal_) != result::success) atomics = 0;
  // The driver does not name the link; only NVLink has native atomics.
  const PeerAccess given{true, atomics != 0, atomics != 0 ? DeviceLink::nvlink : DeviceLink::pcie, lines && atomics != 0};
  return limited_by_topology(given, id_of(*this), id_of(*there));
}

Status CudaDevice::enable_peer(CuContext from, CuContext to) {
  if (from == to) return TW_OK;
  const PersistentPause pause;
  const CuResult result = driver().CtxEnablePeerAccess(to, 0);
  return result == result::peer_enabled ? TW_OK : check(result, "giving peer access");
}

/// For this device, to a mapped row; other devices' access stays unchanged.
Status CudaDevice::share_row(uint64_t base, uint64_t length) const {
  const Location here{kLocationDevice, ordinal_};
  uint64_t flags = 0;
  if (driver().MemGetAccess(&flags, &here, base) == result::success && flags == kReadWrite) return TW_OK;
  const PersistentPause pause;
  const AccessDescription access{here, kReadWrite};
  return check(driver().MemSetAccess(base, length, &access, 1), "giving peer access to mapped memory");
}

Status CudaDevice::share_pool(CuPool pool) const {
  Location here{kLocationDevice, ordinal_};
  unsigned flags = 0;
  if (driver().MemPoolGetAccess(&flags, pool, &here) == result::success && flags == kReadWrite) return TW_OK;
  const PersistentPause pause;
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

/// One piece of memory, from `address` on.
Status CudaDevice::admit_piece(Use use, CuContext context, uint64_t address, const BufferInfo& info) {
  if (use == Use::word && info.kind == MemoryKind::managed)
    return fail(TW_ERR_UNSUPPORTED, "a queue's word cannot be in managed memory; use device or pinned memory");
  const bool everywhere = info.kind == MemoryKind::pinned || info.kind == MemoryKind::managed;
  const bool import = backend_.import_count.load(std::memory_order_acquire) != 0 && is_import(address);
  if (everywhere || import) return TW_OK;
  if (info.device != this && !peer(info.device->uuid()).access) {
    if (use == Use::copy) return TW_OK;
    return fail(TW_ERR_UNREACHABLE, "GPU %d has no peer access to GPU %u; let it go through staging", ordinal_,
                info.device->ordinal());
  }
  const Status status = reach_peer(context, address, info);
  return use == Use::copy ? Status{TW_OK} : status;
}

Status CudaDevice::admit(Use use, CuContext context, uint64_t address, uint64_t length) {
  const uint64_t end = address + length;
  if (end < address) return fail(TW_ERR_OUT_OF_BOUNDS, "the range has no end");
  for (uint64_t at = address; at < end;) {
    BufferInfo info;
    if (backend_.identify(at, &info) != TW_OK) {
      if (at != address) return fail(TW_ERR_OUT_OF_BOUNDS, "the range leaves the memory in which it begins");
      return fail(TW_ERR_UNSUPPORTED, "a CUDA queue takes no pageable host memory (%p); pin it, or let it go through staging",
                  reinterpret_cast<void*>(at));
    }
    if (Status s = admit_piece(use, context, at, info); is_error(s)) return s;
    at = info.base + info.length;
    if (at < end && info.kind != MemoryKind::vmm)
      return fail(TW_ERR_OUT_OF_BOUNDS, "the range leaves the memory in which it begins");
  }
  return TW_OK;
}

}  // namespace thalweg::impl::cuda
