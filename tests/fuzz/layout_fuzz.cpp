// SPDX-License-Identifier: Apache-2.0
// Layouts from a hostile peer: what decodes keeps its promises. Every run lies inside [first, last), the packed order has
// `bytes` bytes, seek lands where walking does, and encoding it again gives the same layout.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "memory/layout.hpp"

using namespace thalweg::impl;

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

/// Far from both ends of the address space: layouts may reach 2^62 bytes either way.
std::byte* const kBase = reinterpret_cast<std::byte*>((uint64_t{1} << 62) + 4096);

int64_t offset_of(const LayoutCursor::Run& run) {
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(run.address) - reinterpret_cast<uintptr_t>(kBase));
}

void walk(const Layout& layout) {
  constexpr int kSteps = 300;  // layouts may be huge
  LayoutCursor cursor(kBase, &layout, layout.bytes);
  uint64_t at = 0;
  for (int i = 0; i < kSteps && cursor.remaining() > 0; ++i) {
    LayoutCursor jumped(kBase, &layout, layout.bytes);
    jumped.seek(at);
    const LayoutCursor::Run run = cursor.next(1 + static_cast<size_t>(i) * 7), other = jumped.next(run.length);
    require(run.length > 0 && run.address == other.address && other.length == run.length);
    const int64_t start = offset_of(run);
    require(start >= layout.first && start + static_cast<int64_t>(run.length) <= layout.last);
    at += run.length;
    require(cursor.remaining() == layout.bytes - at);
  }
  if (layout.bytes > 1) {
    cursor.seek(layout.bytes - 1);
    const LayoutCursor::Run run = cursor.next(SIZE_MAX);
    const int64_t start = offset_of(run);
    require(run.length == 1 && start >= layout.first && start < layout.last && cursor.remaining() == 0);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Layout* layout = nullptr;
  PeerBytes input(reinterpret_cast<const std::byte*>(data), size);
  if (decode(input, &layout) != TW_OK) return 0;
  require(input.left() <= size && layout->first <= layout->last && layout->bytes <= uint64_t{1} << 62);
  walk(*layout);
  static std::byte wire[4 + 16 * kMaxWirePieces];
  const size_t n = encode(*layout, wire, sizeof wire);
  Layout* again = nullptr;
  PeerBytes back(wire, n);
  require(n > 0 && n <= sizeof wire && decode(back, &again) == TW_OK);
  require(again->bytes == layout->bytes && again->first == layout->first && again->last == layout->last &&
          again->dimensions == layout->dimensions && again->pieces.size() == layout->pieces.size() &&
          again->overlaps == layout->overlaps);
  release(again);
  release(layout);
  return 0;
}
