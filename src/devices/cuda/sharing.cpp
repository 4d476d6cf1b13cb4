// SPDX-License-Identifier: Apache-2.0
// GPU memory between processes: ordinary allocations by the driver's handle, mapped pieces by descriptors.
#include <algorithm>
#include <cstring>

#include "devices/cuda/device.hpp"
#include "devices/persistent.hpp"

namespace thalweg::impl::cuda {
namespace {

constexpr uint64_t kLargest = uint64_t{1} << 46;  // bytes of one import; more is a lie

const char* why_not(const BufferInfo& info) {
  switch (info.kind) {
    case MemoryKind::pool:
      return "stream-ordered pools cannot be shared; allocate it with cudaMalloc, or let it go through staging";
    case MemoryKind::managed:
      return "managed memory cannot be shared; allocate it with cudaMalloc, or let it go through staging";
    case MemoryKind::pinned:
      return "host memory is shared through shared segments (tw_memory_allocate)";
    case MemoryKind::vmm:
      return "it was mapped without an exportable handle, or imported; create it with POSIX descriptors as handle type";
    default:
      return "it was imported, or this system has no legacy handles; only its owner can export it";
  }
}

/// The driver's errors for a handle that is stale, or invalid here.
Status refuse_import(CuResult result) {
  switch (result) {
    case result::invalid_context:
      return fail(TW_ERR_INVALID, "a handle of this process's own memory cannot be imported; use its address");
    case result::invalid_value:
    case result::invalid_handle:
    case result::map_failed:
    case result::not_found:
    case result::unknown:
      return fail(TW_ERR_STALE, "the exported device memory is gone (CUDA error %d); export it again", result);
    case result::invalid_device:
      return fail(TW_ERR_UNREACHABLE, "the memory's GPU is not visible to this process; set CUDA_VISIBLE_DEVICES");
    default:
      return fail_cuda(result, "importing device memory");
  }
}

}  // namespace

Status CudaDevice::describe_pieces(const BufferInfo& info, uint64_t incarnation, ExportedMemory* out) {
  ExportHandle& handle = out->handle;
  std::memcpy(handle.device_uuid, uuid_.data(), sizeof handle.device_uuid);
  handle.incarnation = incarnation;
  handle.buffer_id = info.buffer_id;
  handle.base = info.base;
  handle.length = info.length;
  handle.form = info.exportable;
  handle.kind = info.kind;
  if (info.exportable == ExportForm::ipc_handle) {
    IpcHandle ipc;
    if (Status s = check(driver().IpcGetMemHandle(&ipc, info.base), "exporting device memory"); is_error(s)) return s;
    static_assert(sizeof ipc == sizeof handle.handle);
    std::memcpy(handle.handle, &ipc, sizeof ipc);
    return TW_OK;
  }
  CuMemory memory = 0;
  Status status =
      check(driver().MemRetainAllocationHandle(&memory, reinterpret_cast<void*>(info.base)), "finding mapped memory");
  if (is_error(status)) return status;
  int fd = -1;
  status = check(driver().MemExportToShareableHandle(&fd, memory, kHandleDescriptor, 0), "exporting mapped memory");
  driver().MemRelease(memory);
  if (!is_error(status)) out->fd = UniqueFd(fd);
  return status;
}

Status CudaDevice::export_memory(uint64_t address, uint64_t length, uint64_t incarnation, std::vector<ExportedMemory>* out) {
  const OnDevice current(*this);
  if (is_error(current.status())) return current.status();
  std::vector<ExportedMemory> pieces;
  const uint64_t end = address + length;
  for (uint64_t at = address; at < end || pieces.empty();) {
    BufferInfo info;
    const bool found = backend_.identify(at, &info) == TW_OK && info.device == this;
    if (!found || length == 0 || (info.kind != MemoryKind::vmm && end > info.base + info.length))
      return fail(TW_ERR_OUT_OF_BOUNDS, "this is not (all) memory of GPU %d that is allocated", ordinal_);
    if (info.exportable == ExportForm::none)
      return fail(TW_ERR_UNSUPPORTED, "this memory cannot be exported: %s", why_not(info));
    if (Status s = describe_pieces(info, incarnation, &pieces.emplace_back()); is_error(s)) return s;
    at = info.base + info.length;
  }
  backend_.exported_as.store(incarnation, std::memory_order_relaxed);
  *out = std::move(pieces);
  return TW_OK;
}

/// An untrusted handle: does it make sense, and can this device reach where it points?
Status CudaDevice::check_source(const ExportHandle& handle) const {
  const bool by_handle = handle.form == ExportForm::ipc_handle;
  if ((!by_handle && handle.form != ExportForm::descriptor) || handle.length == 0 || handle.length > kLargest)
    return fail(TW_ERR_PROTOCOL, "this is not a handle of exported device memory");
  const PeerAccess access = peer(uuid_of(handle.device_uuid));
  if (access.access || access.link == DeviceLink::unknown) return TW_OK;
  return fail(TW_ERR_UNREACHABLE, "GPU %d has no peer access to the memory's GPU; let it go through staging", ordinal_);
}

Status CudaDevice::import_memory(std::span<ExportedMemory> pieces, uint64_t* address) {
  if (pieces.empty()) return fail(TW_ERR_INVALID, "there is nothing to import");
  for (const ExportedMemory& one : pieces) {
    if (Status s = check_source(one.handle); is_error(s)) return s;
    if (one.handle.form != pieces[0].handle.form || (one.handle.form == ExportForm::ipc_handle && pieces.size() > 1))
      return fail(TW_ERR_PROTOCOL, "these are not the handles of one piece of exported device memory");
  }
  const PersistentPause pause;
  const OnDevice current(*this);
  if (is_error(current.status())) return current.status();
  const bool by_handle = pieces[0].handle.form == ExportForm::ipc_handle;
  return by_handle ? import_handle(pieces[0].handle, address) : import_row(pieces, address);
}

/// The opened memory's length from the driver, because the peer's could reach past its end.
Status CudaDevice::check_opened(uint64_t opened, uint64_t length) const {
  uint64_t base = 0, size = 0;
  unsigned range[] = {kRangeStart, kRangeSize};
  void* data[] = {&base, &size};
  if (Status s = check(driver().PointerGetAttributes(2, range, data, opened), "looking at imported memory"); is_error(s))
    return s;
  if (base <= opened && opened - base <= size && length <= size - (opened - base)) return TW_OK;
  return fail(TW_ERR_PROTOCOL, "the peer described %llu bytes of device memory where the driver knows %llu",
              static_cast<unsigned long long>(length), static_cast<unsigned long long>(size));
}

Status CudaDevice::import_handle(const ExportHandle& handle, uint64_t* address) {
  if (handle.incarnation == backend_.exported_as.load(std::memory_order_relaxed)) return refuse_import(result::invalid_context);
  IpcHandle ipc;
  std::memcpy(&ipc, handle.handle, sizeof ipc);
  CuPointer opened = 0;  // the address of an earlier opening, if there is one: the driver counts
  if (const CuResult result = driver().IpcOpenMemHandle(&opened, ipc, kIpcLazyPeerAccess); result != result::success)
    return refuse_import(result);
  if (Status s = check_opened(opened, handle.length); is_error(s)) {
    driver().IpcCloseMemHandle(opened);
    return s;
  }
  const std::lock_guard lock(tables_);
  Import& import = imports_[opened];
  if (import.opens++ == 0) backend_.import_count.fetch_add(1, std::memory_order_release);
  import.length = handle.length;
  *address = opened;
  return TW_OK;
}

Status CudaDevice::import_row(std::span<ExportedMemory> pieces, uint64_t* address) {
  std::vector<Piece> row;
  uint64_t total = 0;
  Status status = TW_OK;
  for (ExportedMemory& one : pieces) {
    if (!one.fd || one.handle.length > kLargest - total) {
      status = fail(TW_ERR_INVALID, "the export has no descriptor, or no end; pass it on over a unix socket");
      break;
    }
    Piece piece{0, one.handle.length};
    void* const os_handle = reinterpret_cast<void*>(static_cast<intptr_t>(one.fd.get()));
    if (const CuResult result = driver().MemImportFromShareableHandle(&piece.memory, os_handle, kHandleDescriptor);
        result != result::success) {
      status = refuse_import(result);
      break;
    }
    row.push_back(piece);
    total += piece.length;
    one.fd.reset();
  }
  Import import{total, 1, {}};
  if (!is_error(status)) status = map_row(driver(), ordinal_, row, &import.row);
  for (const Piece& piece : row) driver().MemRelease(piece.memory);  // a mapping keeps it
  if (status == TW_ERR_INVALID && row.size() == pieces.size())
    return fail(TW_ERR_PROTOCOL, "the descriptor is not one of exported device memory of that length");
  if (is_error(status)) return status;
  *address = import.row.base;
  const std::lock_guard lock(tables_);
  imports_[*address] = std::move(import);
  backend_.import_count.fetch_add(1, std::memory_order_release);
  return TW_OK;
}

Status CudaDevice::release_import(uint64_t address) {
  const PersistentPause pause;
  const OnDevice current(*this);
  if (is_error(current.status())) return current.status();
  MappedRow row;
  {
    const std::lock_guard lock(tables_);
    const auto found = imports_.find(address);
    if (found == imports_.end()) return fail(TW_ERR_HANDLE, "this address was not imported (any more)");
    row = found->second.row;
    if (--found->second.opens == 0) {
      imports_.erase(found);
      backend_.import_count.fetch_sub(1, std::memory_order_release);
    }
  }
  if (row.base == 0) return check(driver().IpcCloseMemHandle(address), "closing imported device memory");
  return unmap_row(driver(), row);
}

bool CudaDevice::is_import(uint64_t address) const {
  const std::lock_guard lock(tables_);
  const auto after = imports_.upper_bound(address);
  if (after == imports_.begin()) return false;
  const auto& [base, import] = *std::prev(after);
  return address - base < import.length;
}

}  // namespace thalweg::impl::cuda
