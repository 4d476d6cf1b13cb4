// SPDX-License-Identifier: Apache-2.0
// The table of names of device memory.
#include "memory/device_names.hpp"

#include <algorithm>

#include "devices/registry.hpp"

namespace thalweg::impl {
namespace {

/// Was one of `old`'s pieces freed? A piece of `now` is alive, so what it overlaps is the same piece or gone.
bool replaced(const DeviceName& old, const DeviceName& now) {
  if (old.device != now.device || old.end() <= now.base() || now.end() <= old.base()) return false;
  for (const DeviceName::Piece& a : old.pieces) {
    for (const DeviceName::Piece& b : now.pieces) {
      const bool overlap = a.base < b.base + b.length && b.base < a.base + a.length;
      if (overlap && a.buffer_id != b.buffer_id) return true;
    }
  }
  return false;
}

bool is_same(const DeviceName& name, const DeviceName::Piece& piece) {
  BufferInfo info;
  return find_device(piece.base, &info) == TW_OK && info.device == name.device && info.buffer_id == piece.buffer_id;
}

}  // namespace

Status DeviceNames::describe(const BufferInfo& info, uint64_t address, uint64_t length, DeviceName* out) {
  const uint64_t end = address + length;
  if (info.device == nullptr || length == 0 || end < address)
    return fail(TW_ERR_INVALID, "only existing device memory can be named for peers");
  out->device = info.device;
  out->pieces.clear();
  BufferInfo next = info;
  for (uint64_t at = address;;) {
    if (next.exportable == ExportForm::none) {
      std::vector<ExportedMemory> none;
      const Status s = info.device->export_memory(at, 1, 0, &none);  // sets the text
      return is_error(s) ? s : fail(TW_ERR_UNSUPPORTED, "this device memory cannot be shared; let it go through staging");
    }
    if (out->pieces.size() == kMaxPieces)
      return fail(TW_ERR_UNSUPPORTED,
                  "%zu pieces of mapped device memory are the most that are shared as one; map larger pieces, or let it go "
                  "through staging",
                  kMaxPieces);
    out->pieces.push_back({next.base, next.length, next.buffer_id});
    at = next.base + next.length;
    if (at >= end) return TW_OK;
    const bool more = info.kind == MemoryKind::vmm && find_device(at, &next) == TW_OK && next.device == info.device &&
                      next.kind == MemoryKind::vmm && next.base == at;
    if (!more) return fail(TW_ERR_OUT_OF_BOUNDS, "this is not (all) device memory that is allocated");
  }
}

bool DeviceNames::alive(const DeviceName& name) {
  return std::all_of(name.pieces.begin(), name.pieces.end(), [&](const auto& piece) { return is_same(name, piece); });
}

bool DeviceNames::covers(const DeviceName& name, const BufferInfo& info, uint64_t address, uint64_t length) const {
  if (name.device != info.device || address < name.base() || address > name.end() || length > name.end() - address)
    return false;
  const DeviceName::Piece& first = name.pieces.front();
  if (name.pieces.size() == 1) return first.buffer_id == info.buffer_id;
  auto piece = std::upper_bound(name.pieces.begin(), name.pieces.end(), address,
                                [](uint64_t at, const DeviceName::Piece& p) { return at < p.base; });
  if (std::prev(piece)->buffer_id != info.buffer_id) return false;
  // `info` describes the first piece only; a later one may have been remapped.
  for (; piece != name.pieces.end() && piece->base < address + length; ++piece) {
    if (!is_same(name, *piece)) return false;
  }
  return true;
}

inline void DeviceNames::touch(const DeviceName& name) const {
  const uint64_t now = uses_.load(std::memory_order_relaxed) + 1;
  uses_.store(now, std::memory_order_relaxed);
  name.last_use.store(now, std::memory_order_relaxed);
}

const DeviceName* DeviceNames::find(const BufferInfo& info, uint64_t address, uint64_t length) const {
  const DeviceName* name = last_.load(std::memory_order_relaxed);
  if (name != nullptr && covers(*name, info, address, length)) {
    touch(*name);
    return name;
  }
  const auto [first, last] = by_buffer_.equal_range(info.buffer_id);
  for (auto at = first; at != last; ++at) {
    if (!covers(*at->second, info, address, length)) continue;
    touch(*at->second);
    last_.store(at->second, std::memory_order_relaxed);
    return at->second;
  }
  return nullptr;
}

DeviceName* DeviceNames::find(uint64_t segment) const {
  const auto found = by_segment_.find(segment);
  return found == by_segment_.end() ? nullptr : found->second.get();
}

void DeviceNames::add(std::unique_ptr<DeviceName> name) {
  touch(*name);
  for (const DeviceName::Piece& piece : name->pieces) by_buffer_.emplace(piece.buffer_id, name.get());
  const uint64_t segment = name->segment;
  by_segment_.emplace(segment, std::move(name));
}

void DeviceNames::remove(const DeviceName& name) {
  last_.store(nullptr, std::memory_order_relaxed);
  for (const DeviceName::Piece& piece : name.pieces) {
    const auto [first, last] = by_buffer_.equal_range(piece.buffer_id);
    const auto at = std::find_if(first, last, [&](const auto& entry) { return entry.second == &name; });
    if (at != last) by_buffer_.erase(at);
  }
  by_segment_.erase(name.segment);
}

std::vector<uint64_t> DeviceNames::make_room(const DeviceName& newest) {
  std::vector<const DeviceName*> gone;
  const DeviceName* oldest = nullptr;
  size_t unheld = 0;
  for (const auto& [segment, name] : by_segment_) {
    if (replaced(*name, newest)) {
      gone.push_back(name.get());
    } else if (name->holders == 0) {
      ++unheld;
      if (oldest == nullptr || name->last_use.load() < oldest->last_use.load()) oldest = name.get();
    }
  }
  if (unheld >= kMaxNames) gone.push_back(oldest);
  std::vector<uint64_t> segments;
  for (const DeviceName* name : gone) {
    segments.push_back(name->segment);
    remove(*name);
  }
  return segments;
}

}  // namespace thalweg::impl
