// SPDX-License-Identifier: Apache-2.0
// Sides of every shape, at random.
#pragma once
#include <thalweg/device/side.hpp>

#include <algorithm>
#include <cstddef>
#include <random>
#include <vector>

namespace thalweg::device::twins {

inline std::mt19937_64& random_source() {
  static thread_local std::mt19937_64 source(std::random_device{}());
  return source;
}

/// A side, and where each of its packed bytes is, found without the code under test.
struct Shape {
  Side side{};
  std::vector<size_t> offsets;  // of each packed byte, from the base
  std::vector<Piece> pieces;
};

inline size_t draw(size_t below) { return random_source()() % below; }

inline Shape contiguous_shape(u64 base, size_t bytes) {
  Shape shape;
  const size_t at = draw(32);
  shape.side = contiguous_at(base + at);
  for (size_t i = 0; i < bytes; ++i) shape.offsets.push_back(at + i);
  return shape;
}

/// One to three dimensions, gaps of multiples of `unit` between blocks.
inline Shape strided_shape(u64 base, size_t bytes, size_t unit) {
  Shape shape;
  const size_t block = unit * (1 + draw(draw(3) == 0 ? 200 : 5)), dimensions = 1 + draw(3);
  const size_t counts[2] = {1 + draw(5), 1 + draw(4)};
  size_t stride[3] = {block + unit * draw(3), 0, 0};
  stride[1] = stride[0] * counts[0] + unit * draw(3);
  stride[2] = stride[1] * counts[1] + unit * draw(3);
  const size_t at = unit * draw(4);
  shape.side = {base + at, block, {0, 0}, {0, 0, 0}, nullptr, 0};
  for (size_t d = 0; d < dimensions; ++d) shape.side.stride[d] = static_cast<i64>(stride[d]);
  for (size_t d = 0; d + 1 < dimensions; ++d) shape.side.count[d] = counts[d];
  for (size_t i = 0; i < bytes; ++i) {
    size_t index = i / block, offset = at + i % block;
    for (size_t d = 0; d < dimensions; ++d) {
      const size_t here = d + 1 < dimensions ? index % counts[d] : index;
      offset += here * stride[d];
      index = d + 1 < dimensions ? index / counts[d] : 0;
    }
    shape.offsets.push_back(offset);
  }
  return shape;
}

inline Shape list_shape(u64 base, size_t bytes) {
  Shape shape;
  for (size_t packed = 0, at = draw(16); packed < bytes;) {
    const size_t length = draw(6) == 0 ? 0 : std::min(bytes - packed, 1 + draw(draw(3) == 0 ? 900 : 40));
    shape.pieces.push_back({packed, base + at});
    for (size_t i = 0; i < length; ++i) shape.offsets.push_back(at + i);
    packed += length;
    at += length + draw(20);
  }
  shape.side = {0, 0, {0, 0}, {0, 0, 0}, shape.pieces.data(), shape.pieces.size()};
  return shape;
}

inline Shape any_shape(u64 base, size_t bytes) {
  const size_t unit = size_t{1} << draw(5);
  switch (draw(3)) {
    case 0:
      return contiguous_shape(base, bytes);
    case 1:
      return strided_shape(base, bytes, unit);
    default:
      return list_shape(base, bytes == 0 ? 1 : bytes);
  }
}

}  // namespace thalweg::device::twins
