// SPDX-License-Identifier: Apache-2.0
#include "ranks/exchange.hpp"

namespace apps {

thalweg::Layout layout_of(const Shape& shape, const Box& box) {
  return thalweg::Layout::subarray(shape.points, box.extent, box.start, shape.element);
}

std::vector<Direction> directions() {
  std::vector<Direction> all;
  for (int i = -1; i <= 1; ++i)
    for (int j = -1; j <= 1; ++j)
      for (int k = -1; k <= 1; ++k)
        if (i != 0 || j != 0 || k != 0) all.push_back({i, j, k});
  return all;
}

uint64_t number_of(const Direction& d) { return static_cast<uint64_t>((d[0] + 1) * 9 + (d[1] + 1) * 3 + d[2] + 1); }

Direction opposite(const Direction& d) { return {-d[0], -d[1], -d[2]}; }

namespace {

Box box_towards(const Triple& inside, const Direction& direction, bool halo) {
  Box box{};
  for (size_t axis = 0; axis < 3; ++axis) {
    const bool whole = direction[axis] == 0, low = direction[axis] < 0;
    box.extent[axis] = whole ? inside[axis] : 1;
    box.start[axis] = whole || (low && !halo) ? 1 : low ? 0 : inside[axis] + (halo ? 1 : 0);
  }
  return box;
}

}  // namespace

Box edge_towards(const Triple& inside, const Direction& direction) { return box_towards(inside, direction, false); }
Box halo_towards(const Triple& inside, const Direction& direction) { return box_towards(inside, direction, true); }

Messages::Messages(Ranks& ranks, const Shape& shape, const Moves& moves)
    : worker_(ranks.worker.get()),
      sends_(parts(ranks, shape, moves.sends)),
      receives_(parts(ranks, shape, moves.receives)),
      requests_(sends_.size() + receives_.size()) {}

std::vector<Messages::Part> Messages::parts(Ranks& ranks, const Shape& shape, std::span<const Move> moves) {
  std::vector<Part> parts;
  for (const Move& move : moves) parts.push_back({ranks.peer(move.peer), move.tag, layout_of(shape, move.box)});
  return parts;
}

void Messages::exchange(void* array) {
  size_t n = 0;
  for (const Part& part : receives_) {
    const auto options = thalweg::OpOptions().layout(part.layout).source(part.endpoint);
    must(tw_recv(worker_, array, 0, part.tag, UINT64_MAX, options, requests_[n++].out()));
  }
  for (const Part& part : sends_) {
    must(tw_send(part.endpoint, array, 0, part.tag, thalweg::OpOptions().layout(part.layout), requests_[n++].out()));
  }
  for (thalweg::Request& request : requests_) must(request.wait(kPatience));
}

}  // namespace apps
