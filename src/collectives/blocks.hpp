// SPDX-License-Identifier: Apache-2.0
// What algorithms share to name buffers and ranks: blocks of a buffer, one of each rank, and teams: some of the ranks, in an
// order.
#pragma once
#include "collectives/writer.hpp"

namespace thalweg::impl {

using Blocks = std::vector<Part>;

/// Some ranks, numbered 0, 1, ... in their order; algorithms that others are made of run within one.
struct Team {
  std::vector<uint32_t> ranks;
  uint32_t me = 0;
  uint32_t size() const { return static_cast<uint32_t>(ranks.size()); }
  /// `to` past the last one is the first one again.
  uint32_t rank(uint64_t to) const { return ranks[to % ranks.size()]; }
};
/// All ranks, the root first.
Team team_from(const Collective& collective, uint32_t root);
inline Team team_of(const Collective& collective) { return team_from(collective, 0); }
/// The same ranks from the last to the first.
Team backwards(const Team& team);

bool has_root(CollectiveKind kind);
/// The root's of kinds with a root, else all ranks'.
inline bool in_place_here(const Collective& collective) {
  return collective.in_place && (!has_root(collective.kind) || collective.rank == collective.root);
}
/// `count` elements of output.
inline Part output(const Collective& collective) { return {Where::output, 0, collective.bytes()}; }
/// `count` elements that the rank brings.
inline Part own(const Collective& collective) {
  return {in_place_here(collective) ? Where::output : Where::input, 0, collective.bytes()};
}

/// Blocks of ranks 0, 1, ...: of `count` elements each, or the v form's.
Blocks blocks_of(const Collective& collective, Where where, const uint64_t* counts, const uint64_t* offsets);
/// allgather, gather, alltoall: what comes from each rank.
inline Blocks output_blocks(const Collective& collective) {
  return blocks_of(collective, Where::output, collective.recv_counts, collective.recv_offsets);
}
/// reduce_scatter, scatter, alltoall: what goes to each rank.
Blocks input_blocks(const Collective& collective);
/// As long as the own block of the v forms of gather, scatter, allgather and reduce_scatter.
uint64_t own_bytes(const Collective& collective);

/// `whole`, cut into n blocks of whole elements that differ by at most one in length.
Blocks cut(const Part& whole, uint32_t n, uint32_t element);
/// In the order of the team.
Blocks ordered(const Blocks& blocks, const Team& team);
/// The blocks from `first` to before `last`.
inline std::span<const Part> among(const Blocks& blocks, size_t first, size_t last) {
  return std::span(blocks).subspan(first, last - first);
}
/// Bytes of the longest.
uint64_t longest(const Blocks& blocks);

/// The greatest power of two that is not above n; n > 0.
uint32_t power_of_two(uint32_t n);

}  // namespace thalweg::impl
