// SPDX-License-Identifier: Apache-2.0
// Rectangles as copy engines take them: rows of one pitch, slices a whole number of rows apart.
#pragma once
#include "devices/kernel.hpp"

namespace thalweg::impl::cuda {

/// The same bytes with fewer dimensions where they are contiguous. The remaining dimensions come first.
Copy simplify(Copy copy);

enum class Shape : uint8_t { nothing, line, rows, slices, many };
/// How an engine does a simplified copy: in one call (line, rows, slices), or (many) only row by row or slice by slice.
Shape shape_of(const Copy& copy);

}  // namespace thalweg::impl::cuda
