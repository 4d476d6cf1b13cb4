// SPDX-License-Identifier: Apache-2.0
// strided_put by kernels: faces of a cube of doubles as in faces.cpp, put by the strided copy of device code.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "gpu_rounds.hpp"

namespace perf {
namespace {

constexpr uint64_t kElement = sizeof(double);

/// `rows` of `width` doubles, whose beginnings are `pitch` doubles apart.
struct Face {
  uint64_t width, rows, pitch;
};

/// The target holds the other side's face, strided as there or packed at its begin, and nothing else.
bool right(const Buffers& target, const Face& face, bool packed, const std::vector<unsigned char>& theirs) {
  const size_t whole = target.offset(1);  // with what lies behind the cube
  std::vector<unsigned char> seen(whole), wanted(whole, Buffers::kPoisoned);
  for (uint64_t row = 0; row < face.rows; ++row) {
    const uint64_t from = row * face.pitch * kElement, to = packed ? row * face.width * kElement : from;
    std::memcpy(&wanted[to], &theirs[from], face.width * kElement);
  }
  target.read(0, seen.data(), whole);
  return seen == wanted;
}

}  // namespace

Sample faces_kernel(Pair& p, const Order& order) {
  Sample s;
  const auto n = static_cast<uint64_t>(std::max(1.0, std::floor(std::sqrt(static_cast<double>(order.size / kElement)))));
  const Face ij{1, n * n, n}, ik{n, n, n * n}, jk{n * n, 1, n * n};
  Order room = order;
  room.size = n * n * n * kElement;
  Buffers source(p.context, room, 1, p.rank), target(p.context, room, 1, p.rank);
  source.fill(order.seed + static_cast<uint64_t>(p.rank));
  KernelRounds kernels(p, order, target);
  std::vector<unsigned char> theirs(kernels.receives() ? room.size : 0);
  Buffers::pattern_into(theirs.data(), theirs.size(), order.seed + static_cast<uint64_t>(!p.rank));
  constexpr uint64_t kInBlock = 2 * kThreads;  // doubles
  const auto blocks = static_cast<unsigned>(std::clamp<uint64_t>(n * n / kInBlock, 1, 64));
  const Shape shape = {"perf_strided_blocks", blocks, kThreads};
  auto measured = [&](const Face& face, bool packed) {
    target.poison();
    Rounds rounds{};
    rounds.from = reinterpret_cast<u64>(source.at(0));
    rounds.width = face.width;
    rounds.rows = face.rows;
    rounds.from_pitch = face.pitch;
    rounds.to_pitch = packed ? face.width : face.pitch;
    std::vector<double> one_way = kernels.run(shape, rounds);
    if (kernels.receives()) s.verified &= right(target, face, packed, theirs);
    return one_way;
  };
  auto rate = [&](double us) { return static_cast<double>(n * n * kElement) / us / 1e3; };
  s.latency_us = measured(ij, false);
  s.route = kernels.route(shape);
  const double contiguous = percentile(measured(ij, true), 50), rows = percentile(measured(ik, false), 50),
               whole = percentile(measured(jk, false), 50);
  s.bytes = n * n * kElement;
  s.figures = {{"N", static_cast<double>(n), ""},
               {"ij_to_contiguous", contiguous, "us"},
               {"ik", rows, "us"},
               {"ik_rate", rate(rows), "GB/s"},
               {"jk", whole, "us"},
               {"jk_rate", rate(whole), "GB/s"}};
  return s;
}

}  // namespace perf
