// SPDX-License-Identifier: Apache-2.0
// What algorithms are made of: the same steps within a team, for the collective of all ranks and as a part of others.
#pragma once
#include "collectives/blocks.hpp"

namespace thalweg::impl {

/// Where the number of ranks has to be a power of two: the first ones by pairs, of which the even one gives its part to the odd
/// one and sits out, so that the order of the parts is that of the ranks.
struct Fold {
  Team team;  // without those that sit out
  bool folded = false, sits_out = false;
  uint32_t partner = 0;  // of the folded
};
Fold fold(const Team& team);
/// The team's ranks that come before the i-th one of the folded team, and what it has taken from others, in their order.
uint32_t ranks_before(const Team& team, uint32_t i);
/// Takes the partner's part: to = partner's, own. Where the own sum lies now: `from`, if there is no partner.
Part fold_in(Writer& w, const Fold& fold, const Part& from, const Part& to);

/// to = mine and theirs, the lower rank's first.
inline void reduce_in_order(Writer& w, const Part& to, const Part& mine, const Part& theirs, bool theirs_first) {
  theirs_first ? w.reduce(to, {theirs, mine}) : w.reduce(to, {mine, theirs});
}

// Each adds `from` of all; all get the sum in `to`, which may be `from`. In rank order, but for the ring.
void recursive_doubling(Writer& w, const Team& all, const Part& from, const Part& to);
void halving_doubling(Writer& w, const Team& all, const Part& from, const Part& to);
void ring(Writer& w, const Team& team, const Part& from, const Part& to);
void one_shot(Writer& w, const Team& team, const Part& from, const Part& to);

/// A range of bytes.
struct Range {
  uint64_t offset = 0, length = 0;
};
inline Part slice(const Part& part, const Range& range) { return slice(part, range.offset, range.length); }
/// What the i-th of a team of a power of two keeps when `whole` is halved with each partner, nearest first: after each halving.
std::vector<Range> halved(uint64_t whole, uint32_t element, uint32_t size, uint32_t i);
/// Of the folded team: the sum of the last of those ranges, in the same range of `to`, of whose rest the contents are lost.
void halve(Writer& w, const Fold& fold, const Part& from, const Part& to);

/// The team's k-th block of `from`, summed, to its k-th rank: in `to`, which may be that block.
void ring_reduce_scatter(Writer& w, const Team& team, const Blocks& from, const Part& to);
/// The same in rank order: all blocks at once, summed by one reduction.
void direct_reduce_scatter(Writer& w, const Team& team, const Blocks& from, const Part& to);
/// Each brings its own block, in place.
void ring_allgather(Writer& w, const Team& team, const Blocks& blocks);
void direct_allgather(Writer& w, const Team& team, const Blocks& blocks, const Part& own);

}  // namespace thalweg::impl
