// SPDX-License-Identifier: Apache-2.0
// Checking what queued work touches.
#include "devices/emulated/place.hpp"

#include <algorithm>

#include "devices/emulated/backend.hpp"
#include "devices/emulated/emulated.hpp"

namespace thalweg::impl::emulated {
namespace {

/// Bytes that one side of a rectangular copy touches, around its address.
void reach_of(const Copy& copy, int64_t row, int64_t slice, int64_t* first, int64_t* last) {
  const int64_t rows = static_cast<int64_t>(copy.rows - 1) * row, slices = static_cast<int64_t>(copy.slices - 1) * slice;
  *first = std::min<int64_t>(rows, 0) + std::min<int64_t>(slices, 0);
  *last = std::max<int64_t>(rows, 0) + std::max<int64_t>(slices, 0) + static_cast<int64_t>(copy.width);
}

Status check_use(const EmulatedDevice& by, Use use, const Place& place) {
  if (place.holder == nullptr) {
    return fail(TW_ERR_UNSUPPORTED, "a device's queue does not touch pageable host memory; pin it or copy through staging");
  }
  if (use == Use::word && place.holder->kind == MemoryKind::managed) {
    return fail(TW_ERR_UNSUPPORTED, "a queue's word cannot be in managed memory; use device or pinned memory");
  }
  const bool everywhere = place.holder->kind == MemoryKind::pinned || place.holder->kind == MemoryKind::managed;
  if (use != Use::copy && !everywhere && !by.peer(place.device->uuid()).access) {
    return fail(TW_ERR_UNREACHABLE, "device %u has no peer access to device %u; let a copy engine do it", by.ordinal(),
                place.device->ordinal());
  }
  return TW_OK;
}

/// Memory of another device needs access from `by`; imports are `by`'s.
bool needs_access(const EmulatedDevice& by, const Place& place) { return place.device != &by && !place.holder->host_access(); }
uint64_t bit_of(const EmulatedDevice& device) { return uint64_t{1} << device.ordinal(); }

Status find(const EmulatedDevice* by, Use use, uint64_t address, uint64_t length, Place* out) {
  if (!find_place(address, length, out))
    return fail(TW_ERR_OUT_OF_BOUNDS, "a queue was asked to touch device memory that is not allocated (any more)");
  return by == nullptr ? Status{TW_OK} : check_use(*by, use, *out);
}

}  // namespace

Status locate(const EmulatedDevice* by, Use use, uint64_t address, int64_t first, int64_t last, Place* out) {
  Status status = find(by, use, address + static_cast<uint64_t>(first), static_cast<uint64_t>(last - first), out);
  if (is_error(status)) return status;
  if (by != nullptr && use != Use::copy && needs_access(*by, *out) && (out->holder->admitted.load() & bit_of(*by)) == 0)
    return fail(TW_ERR_INVALID, "a queue of device %u was never asked to admit this memory of device %u", by->ordinal(),
                out->device->ordinal());
  out->pointer -= first;
  return TW_OK;
}

Status admit(const EmulatedDevice* by, Use use, uint64_t address, uint64_t length) {
  Place place;
  if (Status s = find(by, use, address, length, &place); is_error(s)) return s;
  if (by != nullptr && needs_access(*by, place)) place.holder->admitted.fetch_or(bit_of(*by));
  return TW_OK;
}

Status prepare(const EmulatedDevice* by, Use use, const Copy& copy, PreparedCopy* out) {
  out->copy = copy;
  if (copy.width == 0 || copy.rows == 0 || copy.slices == 0) {
    out->copy.width = 0;
    return TW_OK;
  }
  int64_t first, last;
  reach_of(copy, copy.to_row, copy.to_slice, &first, &last);
  if (Status s = locate(by, use, copy.to, first, last, &out->to); is_error(s)) return s;
  reach_of(copy, copy.from_row, copy.from_slice, &first, &last);
  return locate(by, use, copy.from, first, last, &out->from);
}

}  // namespace thalweg::impl::emulated
