// SPDX-License-Identifier: Apache-2.0
#include "model/buffers.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, length) ((void)(address), (void)(length))
#define ASAN_UNPOISON_MEMORY_REGION(address, length) ((void)(address), (void)(length))
#endif

namespace thalweg::model {
namespace {

constexpr std::array<uint8_t, 256> make_steps() {
  std::array<uint8_t, 256> steps{};
  for (unsigned i = 0; i < 256; ++i) steps[i] = static_cast<uint8_t>(i * 11);
  return steps;
}
constexpr std::array<uint8_t, 256> kSteps = make_steps();

/// What pattern() adds to kSteps in the 256 bytes around `position`.
uint8_t base_of(uint32_t id, uint64_t position) {
  return static_cast<uint8_t>(id * 37 + (position >> 8) * 29 + (position & ~uint64_t{255}) * 11 + 13);
}

bool is_all(const std::byte* bytes, uint64_t length, std::byte value) {
  if (length == 0) return true;
  return bytes[0] == value && std::memcmp(bytes, bytes + 1, length - 1) == 0;
}

}  // namespace

Shape::Shape(uint64_t length, bool with_gaps) {
  bytes = length;
  if (!with_gaps || length < 2) {
    if (length != 0) pieces.push_back({0, length});
    span = length;
    return;
  }
  Layout* made = nullptr;
  const uint64_t count = length % 5 == 0 ? 5 : length % 2 == 0 ? 2 : 0;
  if (count != 0) {
    const uint64_t block = length / count;
    const auto stride = static_cast<int64_t>(block + 7);
    if (make_strided(1, block, &count, &stride, &made) != TW_OK) std::abort();
    for (uint64_t i = 0; i < count; ++i) pieces.push_back({i * (block + 7), block});
  } else {  // the second half lies first
    const uint64_t half = length / 2;
    const tw_piece list[] = {{length - half + 9, half}, {0, length - half}};
    if (make_list(list, 2, &made) != TW_OK) std::abort();
    for (const tw_piece& one : list) pieces.push_back({one.offset, one.length});
  }
  layout = made;
  for (const Piece& one : pieces) span = std::max(span, one.offset + one.length);
}

void fill_pattern(std::byte* to, uint32_t id, uint64_t position, uint64_t length) {
  auto* out = reinterpret_cast<uint8_t*>(to);
  while (length != 0) {
    const uint64_t at = position & 255, n = std::min<uint64_t>(256 - at, length);
    const uint8_t base = base_of(id, position);
    for (uint64_t i = 0; i < n; ++i) out[i] = static_cast<uint8_t>(base + kSteps[at + i]);
    out += n;
    position += n;
    length -= n;
  }
}

bool shows_pattern(const std::byte* bytes, uint32_t id, uint64_t position, uint64_t length) {
  std::byte expected[256];
  while (length != 0) {
    const uint64_t n = std::min<uint64_t>(256 - (position & 255), length);
    fill_pattern(expected, id, position, n);
    if (std::memcmp(bytes, expected, n) != 0) return false;
    bytes += n;
    position += n;
    length -= n;
  }
  return true;
}

void Buffer::fill(uint32_t id) {
  uint64_t position = 0;
  for (const Shape::Piece& one : shape.pieces) {
    fill_pattern(base_ + one.offset, id, position, one.length);
    position += one.length;
  }
}

bool Buffer::shows(uint32_t id, uint64_t position, uint64_t length) const {
  for (const Shape::Piece& one : shape.pieces) {
    const uint64_t n = std::min(one.length, length);
    if (!shows_pattern(base_ + one.offset, id, position, n)) return false;
    position += n;
    length -= n;
  }
  return length == 0;
}

void Buffer::pack(std::vector<std::byte>& out) const {
  out.clear();
  for (const Shape::Piece& one : shape.pieces) out.insert(out.end(), base_ + one.offset, base_ + one.offset + one.length);
}

bool Buffer::untouched_but(uint64_t length) const {
  std::vector<Shape::Piece> touched;
  for (const Shape::Piece& one : shape.pieces) {
    const uint64_t n = std::min(one.length, length);
    if (n != 0) touched.push_back({one.offset, n});
    length -= n;
  }
  std::sort(touched.begin(), touched.end(), [](const auto& a, const auto& b) { return a.offset < b.offset; });
  uint64_t at = 0;
  for (const Shape::Piece& one : touched) {
    if (!is_all(base_ + at, one.offset - at, kFresh)) return false;
    at = one.offset + one.length;
  }
  return is_all(base_ + at, shape.span - at, kFresh) && is_all(base_ - kGuard, kGuard, kFresh) &&
         is_all(base_ + shape.span, kGuard, kFresh);
}

Buffers::~Buffers() { rewind(); }

Buffer& Buffers::take(Host* library, Shape shape, MemoryKind kind) {
  const uint64_t all = (2 * Buffer::kGuard + shape.span + 8 + 15) / 16 * 16;
  std::byte* at = library != nullptr ? library->room(all) : nullptr;
  uint64_t address = 0;
  BufferInfo info;
  if (at == nullptr && kind != MemoryKind::host) at = pool_.room(kind, all, &address, &info);
  if (at == nullptr) {
    if (chunks_.empty() || used_ + all > kChunk) {
      if (!chunks_.empty()) ++chunk_;
      if (chunk_ == chunks_.size()) chunks_.emplace_back(new std::byte[kChunk]);
      used_ = 0;
    }
    at = chunks_[chunk_].get() + used_;
    used_ += all;
  }
  Buffer& buffer = all_.emplace_back();
  buffer.shape = std::move(shape);
  buffer.base_ = at + Buffer::kGuard + all_.size() % 8;
  buffer.info = info;
  buffer.address_ = address != 0 ? reinterpret_cast<std::byte*>(address) + (buffer.base_ - at) : buffer.base_;
  std::memset(buffer.base_ - Buffer::kGuard, std::to_integer<int>(Buffer::kFresh), 2 * Buffer::kGuard + buffer.shape.span);
  return buffer;
}

void Buffers::retire(Buffer& buffer) {
  if (buffer.retired_) return;
  buffer.retired_ = true;
  std::memset(buffer.base_, std::to_integer<int>(Buffer::kRetired), buffer.shape.span);
  ASAN_POISON_MEMORY_REGION(buffer.base_, buffer.shape.span);
}

const Buffer* Buffers::touched() const {
  for (const Buffer& one : all_) {
    ASAN_UNPOISON_MEMORY_REGION(one.base_, one.shape.span);
    const bool guards = is_all(one.base_ - Buffer::kGuard, Buffer::kGuard, Buffer::kFresh) &&
                        is_all(one.base_ + one.shape.span, Buffer::kGuard, Buffer::kFresh);
    if (!guards || (one.retired_ && !is_all(one.base_, one.shape.span, Buffer::kRetired))) return &one;
  }
  return nullptr;
}

void Buffers::rewind() {
  for (const Buffer& one : all_) ASAN_UNPOISON_MEMORY_REGION(one.base_, one.shape.span);
  all_.clear();
  pool_.rewind();
  chunk_ = used_ = 0;
}

}  // namespace thalweg::model
