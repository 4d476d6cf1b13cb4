// SPDX-License-Identifier: Apache-2.0
// Copy-engine work: lines in batches, rectangles in one call where the engine takes them, row by row otherwise.
#include <algorithm>
#include <array>

#include "devices/cuda/engine_copy.hpp"
#include "devices/cuda/queue.hpp"

namespace thalweg::impl::cuda {
namespace {

constexpr size_t kBatch = 255;  // copies of one driver call: what fits the stack, and the limit of its other batches

Copy row_of(const Copy& copy, uint64_t row, uint64_t slice) {
  const auto y = static_cast<int64_t>(row), z = static_cast<int64_t>(slice);
  return {copy.to + static_cast<uint64_t>(y * copy.to_row + z * copy.to_slice),
          copy.from + static_cast<uint64_t>(y * copy.from_row + z * copy.from_slice), copy.width};
}

Copy2d rows_of(const Copy& copy) {
  Copy2d rows{};
  rows.from_type = rows.to_type = kUnified;
  rows.from = copy.from;
  rows.to = copy.to;
  rows.from_pitch = static_cast<size_t>(copy.from_row);
  rows.to_pitch = static_cast<size_t>(copy.to_row);
  rows.width = copy.width;
  rows.height = copy.rows;
  return rows;
}

Copy3d slices_of(const Copy& copy) {
  Copy3d slices{};
  slices.from_type = slices.to_type = kUnified;
  slices.from = copy.from;
  slices.to = copy.to;
  slices.from_pitch = static_cast<size_t>(copy.from_row);
  slices.to_pitch = static_cast<size_t>(copy.to_row);
  slices.from_height = static_cast<size_t>(copy.from_slice / copy.from_row);
  slices.to_height = static_cast<size_t>(copy.to_slice / copy.to_row);
  slices.width = copy.width;
  slices.height = copy.rows;
  slices.depth = copy.slices;
  return slices;
}

}  // namespace

/// Lines, at most kBatch. A graph takes them one by one: it cannot hold a batch.
Status CudaQueue::enqueue_lines(const Copy* copies, size_t count) {
  const char* const what = "enqueuing a copy";
  if (count < 2 || driver().MemcpyBatchAsync == nullptr || capture() != CaptureState::none) {
    for (const Copy* one = copies; one != copies + count; ++one) {
      if (Status s = check(driver().MemcpyAsync(one->to, one->from, one->width, stream_), what); is_error(s)) return s;
    }
    return TW_OK;
  }
  std::array<CuPointer, kBatch> to, from;
  std::array<size_t, kBatch> lengths;
  for (size_t i = 0; i < count; ++i) {
    to[i] = copies[i].to;
    from[i] = copies[i].from;
    lengths[i] = copies[i].width;
  }
  BatchAttributes attributes{kSourceInStreamOrder, {}, {}, kOverlapWithCompute};
  size_t start = 0;
  return check(driver().MemcpyBatchAsync(to.data(), from.data(), lengths.data(), count, &attributes, &start, 1, stream_), what);
}

/// What no engine does in one call: slices of rows if those fit, rows otherwise.
Status CudaQueue::enqueue_each(const Copy& copy) {
  Copy slice = copy;
  slice.slices = 1;
  if (copy.slices > 1 && shape_of(slice) == Shape::rows) {
    for (uint64_t z = 0; z < copy.slices; ++z) {
      const Copy first = row_of(copy, 0, z);
      slice.to = first.to;
      slice.from = first.from;
      const Copy2d rows = rows_of(slice);
      if (Status s = check(driver().Memcpy2DAsync(&rows, stream_), "enqueuing a copy of rows"); is_error(s)) return s;
    }
    return TW_OK;
  }
  std::array<Copy, kBatch> lines;
  size_t held = 0;
  for (uint64_t z = 0; z < copy.slices; ++z) {
    for (uint64_t y = 0; y < copy.rows; ++y) {
      lines[held++] = row_of(copy, y, z);
      const bool last = z + 1 == copy.slices && y + 1 == copy.rows;
      if (held < kBatch && !last) continue;
      if (Status s = enqueue_lines(lines.data(), held); is_error(s)) return s;
      held = 0;
    }
  }
  return TW_OK;
}

Status CudaQueue::enqueue_copy(const Copy& copy) {
  switch (shape_of(copy)) {
    case Shape::nothing:
      return TW_OK;
    case Shape::line:
      return enqueue_lines(&copy, 1);
    case Shape::rows: {
      const Copy2d rows = rows_of(copy);
      return check(driver().Memcpy2DAsync(&rows, stream_), "enqueuing a copy of rows");
    }
    case Shape::slices: {
      const Copy3d slices = slices_of(copy);
      return check(driver().Memcpy3DAsync(&slices, stream_), "enqueuing a copy of slices");
    }
    case Shape::many:
      break;
  }
  return enqueue_each(copy);
}

Status CudaQueue::copy(const Copy* copies, size_t count) {
  const Current current(driver(), context_, ready());
  if (is_error(current.status())) return current.status();
  const Turn turn(device_);
  if (count == 1) return enqueue_copy(simplify(copies[0]));
  std::array<Copy, kBatch> lines;
  size_t held = 0;
  for (size_t i = 0; i < count; ++i) {
    const Copy one = simplify(copies[i]);
    if (shape_of(one) == Shape::line) {
      lines[held++] = one;
    } else if (Status s = enqueue_copy(one); is_error(s)) {
      return s;
    }
    if (held < kBatch && (i + 1 < count || held == 0)) continue;
    if (Status s = enqueue_lines(lines.data(), held); is_error(s)) return s;
    held = 0;
  }
  return TW_OK;
}

}  // namespace thalweg::impl::cuda
