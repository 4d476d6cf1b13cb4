// SPDX-License-Identifier: Apache-2.0
// Walking a layout: runs, seek, pack, unpack and transfer. Whole rows of small blocks are copied by loops whose block size
// the compiler knows, because a call of memcpy for 8 bytes costs more than the bytes.
#include <algorithm>
#include <cstring>

#include "memory/layout.hpp"

namespace thalweg::impl {
namespace {

template <size_t kBlock>
void copy_blocks(std::byte* to, int64_t to_stride, const std::byte* from, int64_t from_stride, uint64_t rows) {
  for (uint64_t i = 0; i < rows; ++i) {
    std::memcpy(to, from, kBlock);
    to += to_stride;
    from += from_stride;
  }
}

void copy_rows(std::byte* to, int64_t to_stride, const std::byte* from, int64_t from_stride, uint64_t block, uint64_t rows) {
  switch (block) {
    case 1:
      return copy_blocks<1>(to, to_stride, from, from_stride, rows);
    case 2:
      return copy_blocks<2>(to, to_stride, from, from_stride, rows);
    case 4:
      return copy_blocks<4>(to, to_stride, from, from_stride, rows);
    case 8:
      return copy_blocks<8>(to, to_stride, from, from_stride, rows);
    case 16:
      return copy_blocks<16>(to, to_stride, from, from_stride, rows);
    case 32:
      return copy_blocks<32>(to, to_stride, from, from_stride, rows);
    default:
      for (uint64_t i = 0; i < rows; ++i) {
        std::memcpy(to, from, block);
        to += to_stride;
        from += from_stride;
      }
  }
}

/// `count` steps from an address. Without sign and without pointers: between two blocks the position may be a step outside
/// of the layout, and a peer's steps may be so long that this lies outside of the address space.
std::byte* stepped(std::byte* from, uint64_t count, int64_t stride) {
  return reinterpret_cast<std::byte*>(reinterpret_cast<uintptr_t>(from) + count * static_cast<uint64_t>(stride));
}

}  // namespace

void LayoutCursor::reset(std::byte* base, const Layout* layout, uint64_t length) {
  base_ = base;
  layout_ = layout;
  block_at_ = base;
  total_ = length;
  within_ = 0;
  if (layout != nullptr) {
    total_ = std::min(length, layout->bytes);
    if (layout->contiguous()) {
      block_at_ = base_ = base + layout->start;
      layout_ = nullptr;
    } else {
      std::fill(std::begin(index_), std::end(index_), 0);
      block_at_ = base + (layout->pieces.empty() ? layout->start : static_cast<int64_t>(layout->pieces[0].offset));
    }
  }
  remaining_ = total_;
}

size_t LayoutCursor::run_length() const {
  if (layout_ == nullptr) return remaining_;
  const uint64_t block = layout_->pieces.empty() ? layout_->block : layout_->pieces[index_[0]].length;
  return std::min(block - within_, remaining_);
}

void LayoutCursor::carry() {
  const Layout& layout = *layout_;
  for (unsigned d = 0; d + 1 < layout.dimensions && index_[d] == layout.dimension[d].count; ++d) {
    block_at_ = stepped(block_at_, uint64_t{0} - layout.dimension[d].count, layout.dimension[d].stride);
    index_[d] = 0;
    block_at_ = stepped(block_at_, 1, layout.dimension[d + 1].stride);
    ++index_[d + 1];
  }
}

void LayoutCursor::advance(size_t n) {
  remaining_ -= n;
  within_ += n;
  if (layout_ == nullptr || remaining_ == 0) return;
  if (layout_->pieces.empty()) {
    if (within_ < layout_->block) return;
    within_ = 0;
    block_at_ = stepped(block_at_, 1, layout_->dimension[0].stride);
    ++index_[0];
    carry();
  } else if (within_ == layout_->pieces[index_[0]].length) {
    within_ = 0;
    block_at_ = base_ + layout_->pieces[++index_[0]].offset;
  }
}

LayoutCursor::Run LayoutCursor::next(size_t limit) {
  const size_t n = std::min(run_length(), limit);
  if (n == 0) return {nullptr, 0};
  const Run run{block_at_ + within_, n};
  advance(n);
  return run;
}

void LayoutCursor::seek(uint64_t offset) {
  offset = std::min(offset, total_);
  remaining_ = total_ - offset;
  if (layout_ == nullptr) {
    within_ = offset;
    return;
  }
  if (remaining_ == 0 || called()) return;
  const Layout& layout = *layout_;
  if (!layout.pieces.empty()) {
    const auto after = std::upper_bound(layout.before.begin(), layout.before.end(), offset);
    index_[0] = static_cast<uint64_t>(after - layout.before.begin()) - 1;
    within_ = offset - layout.before[index_[0]];
    block_at_ = base_ + layout.pieces[index_[0]].offset;
    return;
  }
  uint64_t block = offset / layout.block;
  within_ = offset % layout.block;
  block_at_ = base_ + layout.start;
  for (unsigned d = 0; d < layout.dimensions; ++d) {
    index_[d] = block % layout.dimension[d].count;
    block /= layout.dimension[d].count;
    block_at_ = stepped(block_at_, index_[d], layout.dimension[d].stride);
  }
}

LayoutCursor::Rows LayoutCursor::rows() const {
  if (layout_ == nullptr || !layout_->pieces.empty() || within_ != 0 || called()) return {block_at_, 0, 0, 0};
  const uint64_t rows = std::min(layout_->dimension[0].count - index_[0], remaining_ / layout_->block);
  return {block_at_, layout_->dimension[0].stride, layout_->block, rows};
}

void LayoutCursor::skip_rows(uint64_t count) {
  remaining_ -= count * layout_->block;
  if (remaining_ == 0) return;
  block_at_ = stepped(block_at_, count, layout_->dimension[0].stride);
  index_[0] += count;
  carry();
}

void pack(LayoutCursor& from, std::byte* to, size_t n) {
  if (from.called()) [[unlikely]]
    return from.pack_by_calls(to, n);
  while (n > 0) {
    const LayoutCursor::Rows rows = from.rows();
    const uint64_t count = rows.rows == 0 ? 0 : std::min(rows.rows, n / rows.block);
    if (count > 0) {
      copy_rows(to, static_cast<int64_t>(rows.block), rows.address, rows.stride, rows.block, count);
      from.skip_rows(count);
      to += count * rows.block;
      n -= count * rows.block;
      continue;
    }
    const LayoutCursor::Run run = from.next(n);
    if (run.length == 0) return;
    std::memcpy(to, run.address, run.length);
    to += run.length;
    n -= run.length;
  }
}

void unpack(LayoutCursor& to, const std::byte* from, size_t n) {
  if (to.called()) [[unlikely]]
    return to.unpack_by_calls(from, n);
  while (n > 0) {
    const LayoutCursor::Rows rows = to.rows();
    const uint64_t count = rows.rows == 0 ? 0 : std::min(rows.rows, n / rows.block);
    if (count > 0) {
      copy_rows(rows.address, rows.stride, from, static_cast<int64_t>(rows.block), rows.block, count);
      to.skip_rows(count);
      from += count * rows.block;
      n -= count * rows.block;
      continue;
    }
    const LayoutCursor::Run run = to.next(n);
    if (run.length == 0) return;
    std::memcpy(run.address, from, run.length);
    from += run.length;
    n -= run.length;
  }
}

void transfer(LayoutCursor& to, LayoutCursor& from, uint64_t n) {
  n = std::min({n, to.remaining(), from.remaining()});
  while (n > 0) {
    const LayoutCursor::Rows a = to.rows(), b = from.rows();
    if (a.rows > 0 && b.rows > 0 && a.block == b.block && n >= a.block) {
      const uint64_t count = std::min({a.rows, b.rows, n / a.block});
      copy_rows(a.address, a.stride, b.address, b.stride, a.block, count);
      to.skip_rows(count);
      from.skip_rows(count);
      n -= count * a.block;
      continue;
    }
    // The larger run stays contiguous while the other side's blocks fill it.
    LayoutCursor peek = from;
    const size_t source = peek.next(n).length;
    peek = to;
    const size_t target = peek.next(n).length;
    if (source >= target) {
      const LayoutCursor::Run run = from.next(source);
      unpack(to, run.address, run.length);
      n -= run.length;
    } else {
      const LayoutCursor::Run run = to.next(target);
      pack(from, run.address, run.length);
      n -= run.length;
    }
  }
}

size_t gather_runs(LayoutCursor& from, size_t limit, LayoutCursor::Run* runs, size_t max) {
  size_t count = 0;
  while (count < max && limit > 0) {
    const LayoutCursor::Run run = from.next(limit);
    if (run.length == 0) break;
    runs[count++] = run;
    limit -= run.length;
  }
  return count;
}

}  // namespace thalweg::impl
