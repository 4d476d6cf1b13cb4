// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include "buffer.hpp"
#include "layout_callbacks.hpp"

namespace thalweg::python {
namespace {

using Counts = std::vector<uint64_t>;

Layout layout_strided(size_t block, const Counts& count, const std::vector<int64_t>& stride) {
  if (count.size() != stride.size()) raise(TW_ERR_INVALID, "count and stride name the same dimensions, the fastest first");
  tw_layout* layout = nullptr;
  check(tw_layout_strided(static_cast<unsigned>(count.size()), block, count.data(), stride.data(), &layout));
  return Layout(layout);
}

Layout layout_subarray(const Counts& shape, const Counts& extent, const Counts& start, size_t element,
                       const std::string& order) {
  if (shape.size() != extent.size() || shape.size() != start.size()) {
    raise(TW_ERR_INVALID, "shape, extent and start have one entry per dimension");
  }
  if (order != "C" && order != "F") raise(TW_ERR_INVALID, "order is \"C\" or \"F\"");
  tw_layout* layout = nullptr;
  check(tw_layout_subarray(static_cast<unsigned>(shape.size()), shape.data(), extent.data(), start.data(), element,
                           order == "C" ? TW_ORDER_C : TW_ORDER_FORTRAN, &layout));
  return Layout(layout);
}

Layout layout_pieces(const std::vector<std::pair<uint64_t, uint64_t>>& pieces) {
  std::vector<tw_piece> list;
  list.reserve(pieces.size());
  for (auto [offset, length] : pieces) list.push_back({offset, length});
  tw_layout* layout = nullptr;
  check(tw_layout_pieces(list.data(), list.size(), &layout));
  return Layout(layout);
}

std::pair<int64_t, int64_t> layout_extent(const Layout& layout) {
  int64_t first = 0, last = 0;
  tw_layout_extent(layout.handle, &first, &last);
  return {first, last};
}

/// How an array will travel: (block, [(count, stride), ...]), the fastest dimension first; contiguous ones have no dimensions.
nb::tuple describe(nb::handle buffer) {
  BufferView view;
  view.acquire(buffer.ptr(), BufferView::Use::source);
  nb::list dimensions;
  const Strided& strided = view.strided();
  if (view.layout() == nullptr) return nb::make_tuple(view.length(), dimensions);
  for (unsigned d = 0; d < strided.dimensions; ++d) dimensions.append(nb::make_tuple(strided.count[d], strided.stride[d]));
  return nb::make_tuple(strided.block, dimensions);
}

}  // namespace

void bind_layout(nb::module_& m) {
  using nb::arg;
  nb::class_<Layout>(m, "Layout", "Which bytes of a buffer move, in which order. Immutable; any thread may use it.")
      .def_static(
          "strided", &layout_strided, arg("block"), arg("count"), arg("stride"),
          "count[0] blocks of block bytes, stride[0] bytes apart, in up to eight dimensions; dimension 0 varies fastest.")
      .def_static(
          "subarray", &layout_subarray, arg("shape"), arg("extent"), arg("start"), arg("element"), arg("order") = "C",
          "The part of an array of shape that starts at start and has extent elements of element bytes (up to 8 dimensions).")
      .def_static("pieces", &layout_pieces, arg("pieces"), "(offset, length) pairs in bytes, in the order given.")
      .def_static(
          "callbacks", &layout_callbacks, nb::kw_only(), arg("size"), arg("pack").none() = nb::none(),
          arg("unpack").none() = nb::none(),
          "A layout of functions, with which any object is a buffer of messages, and of the local side of puts and gets.\n"
          "size(buffer): its packed bytes, or how many it takes. pack(buffer, offset, dest): writes the bytes from offset on "
          "to the\n"
          "memoryview dest, at least one; returns how many. unpack(buffer, offset, source): takes those that came. Offsets "
          "ascend.\n"
          "size and pack are called by the call that posts, and raise from it; unpack by the one that learns of the end\n"
          "(wait, done, the blocking call), from which what it raises comes. The bytes are kept in between. Raises Unsupported "
          "in\n"
          "plans and channels, as remote_layout and with after.")
      .def_prop_ro(
          "bytes", [](const Layout& l) { return tw_layout_bytes(l.handle); }, "Bytes moved; 0 of callbacks.")
      .def_prop_ro("extent", &layout_extent, "(first, last): the span touched, last excluded, relative to the buffer's start.");
  m.def("describe", &describe, arg("buffer"),
        "How a buffer would travel: (block bytes, [(count, stride bytes), ...]), the fastest dimension first.");
}

}  // namespace thalweg::python
