// SPDX-License-Identifier: Apache-2.0
// Recursive halving, then recursive doubling: in round k each rank exchanges half of the range that it still sums with the one
// whose number differs in bit k, and then gathers the ranges in the opposite order. 2 log2 n rounds, and 2 bytes sent for each
// of the message. Nearest ranks first, so the order is that of the ranks. R. Rabenseifner, "Optimization of Collective
// Reduction Operations", 2004.
#include "collectives/algorithms.hpp"
#include "collectives/pieces.hpp"

namespace thalweg::impl {
namespace {

Range other_half(const Range& parent, const Range& half) {
  const bool first = half.offset == parent.offset;
  return {first ? half.offset + half.length : parent.offset, parent.length - half.length};
}

}  // namespace

std::vector<Range> halved(uint64_t whole, uint32_t element, uint32_t size, uint32_t i) {
  std::vector<Range> ranges{{0, whole}};
  for (uint32_t mask = 1; mask < size; mask *= 2) {
    const Range range = ranges.back();
    const uint64_t first = (range.length / element + 1) / 2 * element;
    const bool second = (i & mask) != 0;
    ranges.push_back(second ? Range{range.offset + first, range.length - first} : Range{range.offset, first});
  }
  return ranges;
}

void halve(Writer& w, const Fold& folded, const Part& from, const Part& to) {
  const Team& team = folded.team;
  if (team.size() == 1) return w.reduce(to, {from});
  const std::vector<Range> ranges = halved(to.length, w.element(), team.size(), team.me);
  Part sum = fold_in(w, folded, from, to);
  uint32_t round = 0;
  for (uint32_t mask = 1; mask < team.size(); mask *= 2, ++round) {
    const uint32_t peer = team.rank(team.me ^ mask);
    const Range keep = ranges[round + 1], give = other_half(ranges[round], keep);
    const Part theirs = w.scratch(keep.length);
    w.recv(peer, theirs);
    w.send(peer, slice(sum, give));
    reduce_in_order(w, slice(to, keep), slice(sum, keep), theirs, (team.me & mask) != 0);
    sum = to;
  }
}

void halving_doubling(Writer& w, const Team& all, const Part& from, const Part& to) {
  const Fold folded = fold(all);
  if (folded.sits_out) {
    w.send(folded.partner, from);
    return w.recv(folded.partner, to);
  }
  halve(w, folded, from, to);
  const Team& team = folded.team;
  const std::vector<Range> ranges = halved(to.length, w.element(), team.size(), team.me);
  for (size_t round = ranges.size() - 1; round > 0; --round) {
    const uint32_t peer = team.rank(team.me ^ (1u << (round - 1)));
    w.recv(peer, slice(to, other_half(ranges[round - 1], ranges[round])));
    w.send(peer, slice(to, ranges[round]));
  }
  if (folded.folded) w.send(folded.partner, to);
}

void halving_doubling_allreduce(const Collective& c, Schedule* schedule) {
  Writer w(c, schedule);
  halving_doubling(w, team_of(c), own(c), output(c));
}

}  // namespace thalweg::impl
