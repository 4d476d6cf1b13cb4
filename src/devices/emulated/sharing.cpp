// SPDX-License-Identifier: Apache-2.0
// Emulated devices between processes, and among each other.
//
// ordinary memory: plain data that names the exporter's descriptor, opened through /proc by the importer, as a legacy IPC
// handle names memory to the driver. vmm: the pieces' descriptors themselves.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <thread>

#include "devices/emulated/emulated.hpp"
#include "devices/persistent.hpp"
#include "devices/topology_reach.hpp"

namespace thalweg::impl::emulated {
namespace {

struct Handle {  // in ExportHandle::handle
  int32_t pid, fd;
  uint64_t inode;
};

const char* why_not(const Allocation& allocation) {
  if (allocation.imported) return "it was imported itself; only its owner can export it";
  switch (allocation.kind) {
    case MemoryKind::pool:
      return "stream-ordered pools cannot be shared; allocate it otherwise, or let it go through staging";
    case MemoryKind::managed:
      return "managed memory cannot be shared; allocate it otherwise, or let it go through staging";
    default:
      return "host memory is shared through shared segments (tw_memory_allocate)";
  }
}

Status describe_piece(const Allocation& allocation, const Piece& piece, ExportedMemory* out) {
  ExportHandle& handle = out->handle;
  handle.buffer_id = piece.buffer_id;
  handle.base = allocation.address + piece.offset;
  handle.length = piece.length;
  handle.kind = allocation.kind;
  if (allocation.kind == MemoryKind::vmm) {
    handle.form = ExportForm::descriptor;
    const int copy = fcntl(piece.fd.get(), F_DUPFD_CLOEXEC, 3);
    if (copy < 0) return fail_errno(errno, "duplicating the descriptor of device memory");
    out->fd = UniqueFd(copy);
    return TW_OK;
  }
  struct stat info;
  if (fstat(piece.fd.get(), &info) != 0) return fail_errno(errno, "looking at device memory");
  handle.form = ExportForm::ipc_handle;
  const Handle own = {getpid(), piece.fd.get(), info.st_ino};
  std::memcpy(handle.handle, &own, sizeof own);
  return TW_OK;
}

Status open_handle(const ExportHandle& from, UniqueFd* out) {
  Handle handle;
  std::memcpy(&handle, from.handle, sizeof handle);
  if (handle.pid == getpid())
    return fail(TW_ERR_INVALID, "a handle of this process's own memory cannot be imported; use its address");
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/fd/%d", handle.pid, handle.fd);
  struct stat info;
  *out = UniqueFd(open(path, O_RDWR | O_CLOEXEC));
  if (!*out || fstat(out->get(), &info) != 0 || info.st_ino != handle.inode)
    return fail(TW_ERR_STALE, "the exported device memory is gone; export it again");
  return TW_OK;
}

}  // namespace

Status EmulatedDevice::export_memory(uint64_t address, uint64_t length, uint64_t incarnation,
                                     std::vector<ExportedMemory>* out) {
  if (Status s = born_.check("device"); is_error(s)) return s;
  if (Status s = engine_->faults.check(Operation::export_memory); is_error(s)) return s;
  const std::shared_ptr<Allocation> allocation = find(address, length);
  if (allocation == nullptr || length == 0)
    return fail(TW_ERR_OUT_OF_BOUNDS, "this is not (all) memory of device %u that is allocated", index_);
  if (allocation->imported || (allocation->kind != MemoryKind::vmm && allocation->kind != MemoryKind::emulated))
    return fail(TW_ERR_UNSUPPORTED, "this memory cannot be exported: %s", why_not(*allocation));
  std::vector<ExportedMemory> pieces;
  const uint64_t first = address - allocation->address;
  for (const Piece& piece : allocation->pieces) {
    if (piece.offset + piece.length <= first || piece.offset >= first + length) continue;
    ExportedMemory& one = pieces.emplace_back();
    std::memcpy(one.handle.device_uuid, uuid_.data(), 16);
    one.handle.incarnation = incarnation;
    if (Status s = describe_piece(*allocation, piece, &one); is_error(s)) return s;
  }
  *out = std::move(pieces);
  return TW_OK;
}

/// From untrusted handles: valid forms and lengths, contiguous.
Status EmulatedDevice::adopt(std::span<ExportedMemory> pieces, std::vector<Piece>* out) const {
  uint64_t offset = 0;
  for (ExportedMemory& one : pieces) {
    const ExportHandle& handle = one.handle;
    const bool by_handle = handle.form == ExportForm::ipc_handle;
    const bool whole_pages = handle.length % 4096 == 0 || &one == &pieces.back();
    if ((!by_handle && handle.form != ExportForm::descriptor) || (by_handle && pieces.size() > 1) || !whole_pages ||
        handle.length == 0 || handle.length > kRange - offset) {
      return fail(TW_ERR_PROTOCOL, "this is not a handle of exported device memory");
    }
    if (by_handle) {
      if (Status s = open_handle(handle, &one.fd); is_error(s)) return s;
    }
    out->push_back({std::move(one.fd), offset, handle.length, next_buffer_id()});
    offset += handle.length;
  }
  return TW_OK;
}

Status EmulatedDevice::import_memory(std::span<ExportedMemory> pieces, uint64_t* address) {
  if (Status s = born_.check("device"); is_error(s)) return s;
  if (Status s = engine_->faults.check(Operation::import_memory); is_error(s)) return s;
  if (pieces.empty()) return fail(TW_ERR_INVALID, "there is nothing to import");
  for (const ExportedMemory& one : pieces) {
    if (!peer(uuid_of(one.handle.device_uuid)).access)
      return fail(TW_ERR_UNREACHABLE, "device %u has no peer access to the memory's device; let it go through staging", index_);
  }
  const PersistentPause pause;
  auto allocation = std::make_shared<Allocation>();
  std::vector<Piece> adopted;
  if (Status s = adopt(pieces, &adopted); is_error(s)) return s;
  allocation->kind = pieces[0].handle.kind == MemoryKind::vmm ? MemoryKind::vmm : MemoryKind::emulated;
  if (Status s = allocation->adopt(std::move(adopted)); is_error(s)) return s;
  std::this_thread::sleep_for(std::chrono::nanoseconds(engine_->options.import_delay_ns));
  if (!engine_->slots.wait_idle(std::chrono::nanoseconds(engine_->options.wait_limit_ns)))
    return fail(TW_ERR_TIMED_OUT, "an import waits until no kernel runs, and one spins; import before waiters are enqueued");
  return place(std::move(allocation), address);
}

PeerAccess EmulatedDevice::peer(const Uuid& other) const {
  if (other == uuid_) return {true, true, DeviceLink::same, true};
  const bool emulated = other[0] == 'e' && other[1] < 64 && std::equal(other.begin() + 2, other.begin() + 8, uuid_.begin() + 2);
  if (!emulated) return {};
  const bool access = (engine_->options.peers >> other[1] & 1) != 0;
  if (!access) return {};
  const PeerAccess given{true, (engine_->options.peer_atomics >> other[1] & 1) != 0, DeviceLink::pcie, true};
  return played_by_topology(given, {index_, uuid_}, {other[1], other});
}

}  // namespace thalweg::impl::emulated
