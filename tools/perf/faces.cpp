// SPDX-License-Identifier: Apache-2.0
// Faces of a cube of N^3 doubles, in C order: jk is contiguous, ik is N rows, ij is N^2 single doubles. N^2 doubles are the order's
// size, as near as it gets.
#include <cmath>
#include <cstring>

#include "plan_rounds.hpp"

namespace perf {
namespace {

constexpr uint64_t kElement = sizeof(double);

class Face {
 public:
  Face(uint64_t block, uint64_t count, uint64_t stride) : block_(block), count_(count), stride_(stride) {
    const auto apart = static_cast<int64_t>(stride);
    must(tw_layout_strided(1, block, &count, &apart, &layout_), "tw_layout_strided");
  }
  ~Face() { tw_layout_destroy(layout_); }
  Face(const Face&) = delete;
  Face& operator=(const Face&) = delete;
  const tw_layout* layout() const { return layout_; }
  /// f(offset in the cube, bytes), in packed order.
  template <class F>
  void each(F f) const {
    for (uint64_t i = 0; i < count_; ++i) f(i * stride_, block_);
  }

 private:
  const uint64_t block_, count_, stride_;
  tw_layout* layout_ = nullptr;
};

/// The target holds the other side's face: strided as there, or packed at its begin.
bool right(const Exposed& x, uint64_t seed, const Face& face, bool packed, size_t cube) {
  std::vector<unsigned char> seen(cube), wanted(cube, Buffers::kPoisoned), theirs(cube);
  Buffers::pattern_into(theirs.data(), cube, seed);
  uint64_t at = 0;
  face.each([&](uint64_t offset, uint64_t bytes) {
    std::memcpy(&wanted[packed ? at : offset], &theirs[offset], bytes);
    at += bytes;
  });
  x.target.read(0, seen.data(), cube);
  return seen == wanted;
}

}  // namespace

Sample faces(Pair& p, const Order& order) {
  Sample s;
  const auto n = static_cast<uint64_t>(std::max(1.0, std::floor(std::sqrt(static_cast<double>(order.size / kElement)))));
  const uint64_t row = n * kElement, face = n * row;
  const Face ij(kElement, n * n, row), ik(row, n, face), jk(face, 1, face);
  Order room = order;
  room.size = n * face;
  room.layout = {};
  Exposed x(p, room, 1);
  std::string ways;
  auto measured = [&](const Face& from, bool packed) {
    x.target.poison();
    const Piece piece = {0, 0, face, from.layout(), packed ? nullptr : from.layout()};
    return plan_rounds(
        x, order, {piece}, [&](uint64_t seed) { return right(x, seed, from, packed, room.size); }, &s.verified, &ways);
  };
  s.latency_us = measured(ij, false);
  s.route = std::string(tw_endpoint_transport(p.endpoint)) + " plan, " + ways;
  s.bytes = face;
  s.figures = {{"N", static_cast<double>(n), ""},
               {"ij_to_contiguous", percentile(measured(ij, true), 50), "us"},
               {"ik", percentile(measured(ik, false), 50), "us"},
               {"jk", percentile(measured(jk, false), 50), "us"}};
  return s;
}

}  // namespace perf
