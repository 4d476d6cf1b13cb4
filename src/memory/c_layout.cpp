// SPDX-License-Identifier: Apache-2.0
// tw_layout_*: the C view of layouts.
#include <algorithm>
#include <cstring>
#include <exception>

#include "memory/layout.hpp"

using namespace thalweg::impl;

namespace {

template <class Make>
tw_status guarded(tw_layout** layout, const Make& make) {
  if (layout == nullptr) return fail(TW_ERR_INVALID, "layout must point to where the handle goes");
  *layout = nullptr;
  try {
    return make();
  } catch (const std::exception&) {
    return fail(TW_ERR_NO_MEMORY, "no memory for the layout; use fewer pieces");
  }
}

}  // namespace

tw_status tw_layout_strided(unsigned dimensions, size_t block, const uint64_t* count, const int64_t* stride,
                            tw_layout** layout) {
  return guarded(layout, [&] {
    if (dimensions > 0 && (count == nullptr || stride == nullptr)) {
      return fail(TW_ERR_INVALID, "count and stride must have one entry per dimension");
    }
    return make_strided(dimensions, block, count, stride, layout);
  });
}

tw_status tw_layout_subarray(unsigned dimensions, const uint64_t* shape, const uint64_t* extent, const uint64_t* start,
                             size_t element, int order, tw_layout** layout) {
  return guarded(layout, [&] {
    if (shape == nullptr || extent == nullptr || start == nullptr) {
      return fail(TW_ERR_INVALID, "shape, extent and start must have one entry per dimension");
    }
    return make_subarray(dimensions, shape, extent, start, element, order, layout);
  });
}

tw_status tw_layout_pieces(const tw_piece* pieces, size_t count, tw_layout** layout) {
  return guarded(layout, [&] {
    if (pieces == nullptr && count > 0) return fail(TW_ERR_INVALID, "pieces is NULL but count is not 0");
    return make_list(pieces, count, layout);
  });
}

tw_status tw_layout_callbacks(const tw_layout_callbacks_options* options, tw_layout** layout) {
  return guarded(layout, [&] {
    if (options == nullptr) return fail(TW_ERR_INVALID, "a layout of callbacks needs its functions");
    tw_layout_callbacks_options given = TW_LAYOUT_CALLBACKS_OPTIONS_INIT;
    std::memcpy(static_cast<void*>(&given), options, std::min(options->size, sizeof given));
    return make_callbacks(given, layout);
  });
}

void tw_layout_destroy(tw_layout* layout) { release(layout); }

size_t tw_layout_bytes(const tw_layout* layout) { return layout == nullptr ? 0 : layout->bytes; }

void tw_layout_extent(const tw_layout* layout, int64_t* first, int64_t* last) {
  if (first) *first = layout == nullptr ? 0 : layout->first;
  if (last) *last = layout == nullptr ? 0 : layout->last;
}
