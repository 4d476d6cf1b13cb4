// SPDX-License-Identifier: Apache-2.0
// Writing and checking answers that carry handles of device memory.
#include "transports/device_memory/answer.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "memory/device_names.hpp"

namespace thalweg::impl {
namespace {

constexpr uint64_t kLargest = uint64_t{1} << 46;  // bytes of one import

Status refuse(const char* why) { return fail(TW_ERR_PROTOCOL, "the peer's answer about device memory %s", why); }

bool sane(const ExportHandle& handle, uint64_t incarnation) {
  const bool form = handle.form == ExportForm::ipc_handle || handle.form == ExportForm::descriptor;
  const bool kind = handle.kind == MemoryKind::device || handle.kind == MemoryKind::vmm || handle.kind == MemoryKind::emulated;
  return form && kind && handle.incarnation == incarnation && handle.length != 0 && handle.length <= kLargest &&
         handle.base <= UINT64_MAX - handle.length;
}

/// The statuses a peer may send instead of handles; any other means that the memory has been released.
Status told(int64_t status) {
  const bool known = status == TW_ERR_UNSUPPORTED || status == TW_ERR_LIMIT || status == TW_ERR_NO_DESCRIPTORS;
  return known ? static_cast<Status>(status) : TW_ERR_STALE;
}

}  // namespace

DevicePart write_device_part(uint64_t segment, std::span<const ExportedMemory> pieces, size_t first) {
  const size_t count = std::min(pieces.size() - first, kHandlesPerPart);
  const DeviceAnswer answer{segment, TW_OK, static_cast<uint32_t>(pieces.size()), static_cast<uint32_t>(first)};
  DevicePart part;
  part.bytes.resize(sizeof answer + count * sizeof(ExportHandle));
  std::memcpy(part.bytes.data(), &answer, sizeof answer);
  for (size_t i = 0; i < count; ++i) {
    const ExportedMemory& piece = pieces[first + i];
    std::memcpy(part.bytes.data() + sizeof answer + i * sizeof(ExportHandle), &piece.handle, sizeof(ExportHandle));
    if (piece.handle.form == ExportForm::descriptor) part.fds.push_back(piece.fd.get());
  }
  return part;
}

Status DeviceAssembly::add(std::span<const std::byte> bytes, std::vector<UniqueFd>&& fds, uint64_t incarnation, bool without) {
  DeviceAnswer part;
  if (bytes.size() < sizeof part) return refuse("is too short");
  std::memcpy(&part, bytes.data(), sizeof part);
  if (!pieces.empty() && (part.segment != segment || part.first != pieces.size() || part.total != total_))
    return refuse("has parts that do not belong together");
  if (part.status != TW_OK) {
    if (!pieces.empty() || bytes.size() != sizeof part || !fds.empty()) return refuse("is an error with handles");
    segment = part.segment;
    status = told(part.status);
    return TW_OK;
  }
  without_ = (!pieces.empty() && without_) || without;
  return take(part, bytes.subspan(sizeof part), std::move(fds), incarnation);
}

Status DeviceAssembly::take(const DeviceAnswer& part, std::span<const std::byte> handles, std::vector<UniqueFd>&& fds,
                            uint64_t incarnation) {
  const size_t count = handles.size() / sizeof(ExportHandle);
  if (handles.size() % sizeof(ExportHandle) != 0 || count == 0 || count > kHandlesPerPart ||
      part.total > DeviceNames::kMaxPieces || part.first != pieces.size() ||
      count > part.total - std::min(part.first, part.total))
    return refuse("has a wrong number of handles");
  auto fd = fds.begin();
  uint64_t bytes = 0;
  for (const ExportedMemory& piece : pieces) bytes += piece.handle.length;
  for (size_t i = 0; i < count; ++i) {
    ExportedMemory piece;
    std::memcpy(&piece.handle, handles.data() + i * sizeof(ExportHandle), sizeof(ExportHandle));
    if (!sane(piece.handle, incarnation) || piece.handle.length > kLargest - bytes)
      return refuse("has a handle that makes no sense");
    bytes += piece.handle.length;
    const bool with_fd = piece.handle.form == ExportForm::descriptor;
    const bool none = fd == fds.end();
    if ((with_fd && none && !without_) || (!with_fd && (!none || part.total != 1)))
      return refuse("has descriptors where none belong");
    if (with_fd && !none) piece.fd = std::move(*fd++);
    if (!pieces.empty()) {
      const ExportHandle& before = pieces.back().handle;
      if (before.base + before.length != piece.handle.base || before.form != piece.handle.form)
        return refuse("has pieces that do not follow each other");
    }
    pieces.push_back(std::move(piece));
  }
  if (fd != fds.end()) return refuse("has descriptors without a handle");
  segment = part.segment;
  status = TW_OK;
  total_ = part.total;
  if (pieces.size() != total_) return TW_IN_PROGRESS;
  if (without_) {
    status = TW_ERR_NO_DESCRIPTORS;
    pieces.clear();
  }
  return TW_OK;
}

}  // namespace thalweg::impl
