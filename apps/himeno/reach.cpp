// SPDX-License-Identifier: Apache-2.0
#include "himeno/reach.hpp"

namespace himeno {
namespace {

Neighbour neighbour_of(const Field& field, const apps::Move& send, const Triple& decomposition) {
  const Block theirs(field.size(), decomposition, send.peer);
  const apps::Shape shape = theirs.shape();
  Neighbour n{};
  n.rank = static_cast<u32>(send.peer);
  u64 at = 0;  // of its halo's first point
  for (size_t axis = 0; axis < 3; ++axis) {
    n.first[axis] = static_cast<Index>(send.box.start[axis]);
    n.extent[axis] = static_cast<Index>(send.box.extent[axis]);
    const u64 global = field.block().first[axis] + send.box.start[axis] - 1;
    at = at * shape.points[axis] + (global + 1 - theirs.first[axis]);
  }
  n.to_stride_j = static_cast<Index>(shape.points[2]);
  n.to_stride_i = static_cast<Index>(shape.points[1] * shape.points[2]);
  for (int which = 0; which < 2; ++which) n.to[which] = field.offset(which) + at * sizeof(float);
  const u64 opposite = apps::kDirections - 1 - send.tag;
  n.word = field.word(opposite);
  n.its_word = field.word(send.tag);
  return n;
}

}  // namespace

Reach::Reach(apps::Ranks& ranks, const Field& field, const Triple& decomposition, const std::string& place)
    : window_(ranks.group.window(field.memory())), bound_(window_.bind(place.c_str())) {
  for (const apps::Move& send : moves_of(field.block(), decomposition).sends) {
    neighbours_.push_back(neighbour_of(field, send, decomposition));
  }
}

}  // namespace himeno
