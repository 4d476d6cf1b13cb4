// SPDX-License-Identifier: Apache-2.0
// Copy engines take positive pitches of at least a row.
#include "devices/cuda/engine_copy.hpp"

#include <utility>

namespace thalweg::impl::cuda {
namespace {

/// Drops the rows' dimension when it has one row, or when rows touch on both sides.
bool fold_rows(Copy& copy) {
  const auto width = static_cast<int64_t>(copy.width);
  const bool touch = copy.to_row == width && copy.from_row == width;
  if (copy.rows != 1 && !touch) return false;
  copy.width *= copy.rows;
  copy.rows = copy.slices;
  copy.to_row = copy.to_slice;
  copy.from_row = copy.from_slice;
  copy.slices = 1;
  copy.to_slice = copy.from_slice = 0;
  return true;
}

/// Both sides run backwards: the same bytes from the other end.
void face_forward(uint64_t count, int64_t& to, int64_t& from, Copy& copy) {
  if (to >= 0 || from >= 0) return;
  copy.to += static_cast<uint64_t>(to * static_cast<int64_t>(count - 1));
  copy.from += static_cast<uint64_t>(from * static_cast<int64_t>(count - 1));
  to = -to;
  from = -from;
}

bool fits(int64_t pitch, uint64_t width) { return pitch > 0 && static_cast<uint64_t>(pitch) >= width && pitch <= INT32_MAX; }

}  // namespace

Copy simplify(Copy copy) {
  if (copy.width == 0 || copy.rows == 0 || copy.slices == 0) {
    copy.width = 0;
    return copy;
  }
  face_forward(copy.rows, copy.to_row, copy.from_row, copy);
  face_forward(copy.slices, copy.to_slice, copy.from_slice, copy);
  while (copy.rows * copy.slices > 1 && fold_rows(copy)) {
  }
  if (copy.rows > 1 && copy.slices > 1 && copy.to_slice > 0 && copy.from_slice > 0 && copy.to_slice < copy.to_row &&
      copy.from_slice < copy.from_row) {  // rows are the closer dimension
    std::swap(copy.rows, copy.slices);
    std::swap(copy.to_row, copy.to_slice);
    std::swap(copy.from_row, copy.from_slice);
    while (fold_rows(copy)) {
    }
  }
  return copy;
}

Shape shape_of(const Copy& copy) {
  if (copy.width == 0) return Shape::nothing;
  if (copy.rows == 1 && copy.slices == 1) return Shape::line;
  if (!fits(copy.to_row, copy.width) || !fits(copy.from_row, copy.width)) return Shape::many;
  if (copy.slices == 1) return Shape::rows;
  const bool whole = copy.to_slice > 0 && copy.from_slice > 0 && copy.to_slice % copy.to_row == 0 &&
                     copy.from_slice % copy.from_row == 0 && copy.to_slice / copy.to_row >= static_cast<int64_t>(copy.rows) &&
                     copy.from_slice / copy.from_row >= static_cast<int64_t>(copy.rows);
  return whole ? Shape::slices : Shape::many;
}

}  // namespace thalweg::impl::cuda
