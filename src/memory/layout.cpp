// SPDX-License-Identifier: Apache-2.0
// Making layouts: every product and sum checked, dimensions normalised, overlap found where that is cheap.
#include "memory/layout.hpp"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <numeric>

namespace thalweg::impl {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{1} << 62;  // leaves room for the sums of callers

Status too_large(const char* what) {
  return fail(TW_ERR_INVALID, "%s of the layout exceeds 2^62 bytes; check counts, strides and units (bytes)", what);
}

bool multiply(uint64_t a, uint64_t b, uint64_t* out) { return !__builtin_mul_overflow(a, b, out) && *out <= kMaxBytes; }

/// Magnitude without the overflow of -INT64_MIN.
uint64_t magnitude(int64_t v) { return v < 0 ? uint64_t{0} - static_cast<uint64_t>(v) : static_cast<uint64_t>(v); }

/// Drops counts of one and merges dimensions that continue each other, in the packed order.
void normalise(Layout& layout) {
  unsigned kept = 0;
  for (unsigned d = 0; d < layout.dimensions; ++d) {
    const Dimension dim = layout.dimension[d];
    if (dim.count == 1) continue;
    if (kept == 0 && dim.stride > 0 && static_cast<uint64_t>(dim.stride) == layout.block) {
      layout.block *= dim.count;
      continue;
    }
    if (kept > 0) {
      Dimension& inner = layout.dimension[kept - 1];
      int64_t continued = 0;
      if (!__builtin_mul_overflow(inner.stride, static_cast<int64_t>(inner.count), &continued) && continued == dim.stride) {
        inner.count *= dim.count;
        continue;
      }
    }
    layout.dimension[kept++] = dim;
  }
  for (unsigned d = kept; d < layout.dimensions; ++d) layout.dimension[d] = Dimension{};
  layout.dimensions = kept;
}

/// Does some pair of steps certainly name a byte twice? Exact for one dimension, pairwise beyond.
bool strided_overlap(const Layout& layout) {
  for (unsigned d = 0; d < layout.dimensions; ++d) {
    if (magnitude(layout.dimension[d].stride) < layout.block) return true;
  }
  for (unsigned a = 0; a < layout.dimensions; ++a) {
    for (unsigned b = 0; b < layout.dimensions; ++b) {
      if (a == b) continue;
      // One step of a against k steps of b.
      const uint64_t step = magnitude(layout.dimension[a].stride), other = magnitude(layout.dimension[b].stride);
      const uint64_t k = step / other, rest = step % other;
      if (k < layout.dimension[b].count && rest < layout.block) return true;
      if (k + 1 < layout.dimension[b].count && other - rest < layout.block) return true;
    }
  }
  return false;
}

/// Fills bytes, extent and overlap of a strided layout and normalises it.
Status finish_strided(Layout& layout) {
  uint64_t bytes = layout.block;
  bool empty = layout.block == 0;
  for (unsigned d = 0; d < layout.dimensions; ++d) empty = empty || layout.dimension[d].count == 0;
  if (empty) {
    layout.block = layout.bytes = layout.dimensions = 0;
    layout.start = layout.first = layout.last = 0;
    return TW_OK;
  }
  __int128 first = layout.start, last = layout.start;
  for (unsigned d = 0; d < layout.dimensions; ++d) {
    const Dimension& dim = layout.dimension[d];
    if (!multiply(bytes, dim.count, &bytes)) return too_large("the number of bytes");
    const __int128 reach = static_cast<__int128>(dim.count - 1) * dim.stride;
    (reach < 0 ? first : last) += reach;
    if (last > static_cast<__int128>(kMaxBytes) || first < -static_cast<__int128>(kMaxBytes)) return too_large("the span");
  }
  last += layout.block;
  if (last > static_cast<__int128>(kMaxBytes) || first < -static_cast<__int128>(kMaxBytes)) return too_large("the span");
  layout.bytes = bytes;
  layout.first = static_cast<int64_t>(first);
  layout.last = static_cast<int64_t>(last);
  normalise(layout);
  layout.overlaps = strided_overlap(layout);
  return TW_OK;
}

bool list_overlap(const std::vector<tw_piece>& pieces) {
  const auto before = [](const tw_piece& a, const tw_piece& b) { return a.offset < b.offset; };
  std::vector<tw_piece> sorted;
  const std::vector<tw_piece>* in_order = &pieces;
  if (!std::is_sorted(pieces.begin(), pieces.end(), before)) {
    sorted = pieces;
    std::sort(sorted.begin(), sorted.end(), before);
    in_order = &sorted;
  }
  for (size_t i = 1; i < in_order->size(); ++i) {
    const tw_piece& previous = (*in_order)[i - 1];
    if ((*in_order)[i].offset < previous.offset + previous.length) return true;
  }
  return false;
}

}  // namespace

Status fill_strided(Layout& layout, unsigned dimensions, int64_t start, uint64_t block, const Dimension* dimension) {
  if (dimensions > kMaxDimensions) {
    return fail(TW_ERR_LIMIT, "a layout has at most %u dimensions, not %u; merge some or use a list", kMaxDimensions,
                dimensions);
  }
  if (block > kMaxBytes || magnitude(start) > kMaxBytes) return too_large("a block or its start");
  layout.start = start;
  layout.block = block;
  layout.dimensions = dimensions;
  std::copy_n(dimension, dimensions, layout.dimension);
  return finish_strided(layout);
}

Status fill_list(Layout& layout, const tw_piece* pieces, size_t count) {
  uint64_t bytes = 0;
  layout.pieces.clear();
  layout.pieces.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const tw_piece piece = pieces[i];
    if (piece.length == 0) continue;
    if (piece.offset > kMaxBytes || piece.length > kMaxBytes || piece.offset + piece.length > kMaxBytes) {
      return too_large("a piece");
    }
    bytes += piece.length;
    if (bytes > kMaxBytes) return too_large("the number of bytes");
    const int64_t end = static_cast<int64_t>(piece.offset + piece.length);
    layout.first =
        layout.pieces.empty() ? static_cast<int64_t>(piece.offset) : std::min(layout.first, static_cast<int64_t>(piece.offset));
    layout.last = std::max(layout.last, end);
    if (!layout.pieces.empty() && layout.pieces.back().offset + layout.pieces.back().length == piece.offset) {
      layout.pieces.back().length += piece.length;
    } else {
      layout.pieces.push_back(piece);
    }
  }
  layout.bytes = bytes;
  if (layout.pieces.size() <= 1) {  // one run: the contiguous form
    layout.start = layout.first;
    layout.block = bytes;
    layout.pieces.clear();
    return TW_OK;
  }
  layout.before.reserve(layout.pieces.size());
  uint64_t sum = 0;
  for (const tw_piece& piece : layout.pieces) {
    layout.before.push_back(sum);
    sum += piece.length;
  }
  layout.overlaps = list_overlap(layout.pieces);
  return TW_OK;
}

Status make_strided(unsigned dimensions, size_t block, const uint64_t* count, const int64_t* stride, Layout** out) {
  if (dimensions > kMaxDimensions) {
    return fail(TW_ERR_LIMIT, "a layout has at most %u dimensions, not %u; merge some or use a list", kMaxDimensions,
                dimensions);
  }
  Dimension dims[kMaxDimensions];
  for (unsigned d = 0; d < dimensions; ++d) dims[d] = {count[d], stride[d]};
  auto layout = std::make_unique<Layout>();
  if (Status s = fill_strided(*layout, dimensions, 0, block, dims); is_error(s)) return s;
  *out = layout.release();
  return TW_OK;
}

Status make_subarray(unsigned dimensions, const uint64_t* shape, const uint64_t* extent, const uint64_t* start, size_t element,
                     int order, Layout** out) {
  if (dimensions == 0 || dimensions > kMaxDimensions) {
    return fail(TW_ERR_INVALID, "a subarray has 1 to %u dimensions, not %u", kMaxDimensions, dimensions);
  }
  if (element == 0 || (order != TW_ORDER_C && order != TW_ORDER_FORTRAN)) {
    return fail(TW_ERR_INVALID, "a subarray needs an element size above 0 and TW_ORDER_C or TW_ORDER_FORTRAN");
  }
  Dimension dims[kMaxDimensions];
  uint64_t step = element, offset = 0;
  for (unsigned d = 0; d < dimensions; ++d) {  // d counts from the fastest axis
    const unsigned axis = order == TW_ORDER_FORTRAN ? d : dimensions - 1 - d;
    if (extent[axis] > shape[axis] || start[axis] > shape[axis] - extent[axis]) {
      return fail(TW_ERR_INVALID, "axis %u: start + extent reaches outside the shape of %llu elements", axis,
                  static_cast<unsigned long long>(shape[axis]));
    }
    uint64_t skipped = 0;
    if (!multiply(start[axis], step, &skipped) || (offset += skipped) > kMaxBytes) return too_large("the start");
    dims[d] = {extent[axis], static_cast<int64_t>(step)};
    if (!multiply(step, shape[axis], &step)) return too_large("the array");
  }
  auto layout = std::make_unique<Layout>();
  const Status s = fill_strided(*layout, dimensions, static_cast<int64_t>(offset), element, dims);
  if (is_error(s)) return s;
  *out = layout.release();
  return TW_OK;
}

Status make_list(const tw_piece* pieces, size_t count, Layout** out) {
  auto layout = std::make_unique<Layout>();
  if (Status s = fill_list(*layout, pieces, count); is_error(s)) return s;
  *out = layout.release();
  return TW_OK;
}

Status check_receive(const Layout* layout) {
  if (layout == nullptr || !layout->overlaps) return TW_OK;
  return fail(TW_ERR_INVALID,
              "blocks of the receiving layout overlap, so what arrives would overwrite itself; "
              "make strides at least a block long and list pieces disjoint");
}

void retain(const Layout* layout) {
  if (layout) const_cast<Layout*>(layout)->references.fetch_add(1, std::memory_order_relaxed);
}

void release(const Layout* layout) {
  if (layout == nullptr || const_cast<Layout*>(layout)->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  if (layout->calls != nullptr) end_calls(*layout);
  delete layout;
}

}  // namespace thalweg::impl
