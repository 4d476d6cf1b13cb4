// SPDX-License-Identifier: Apache-2.0
#include "collectives/blocks.hpp"

#include <algorithm>
#include <bit>

namespace thalweg::impl {

Team team_from(const Collective& collective, uint32_t root) {
  Team team;
  for (uint32_t i = 0; i < collective.size; ++i) team.ranks.push_back((root + i) % collective.size);
  team.me = (collective.rank + collective.size - root) % collective.size;
  return team;
}

Team backwards(const Team& team) { return {{team.ranks.rbegin(), team.ranks.rend()}, team.size() - 1 - team.me}; }

bool has_root(CollectiveKind kind) {
  return kind == CollectiveKind::broadcast || kind == CollectiveKind::reduce || kind == CollectiveKind::gather ||
         kind == CollectiveKind::scatter;
}

Blocks blocks_of(const Collective& collective, Where where, const uint64_t* counts, const uint64_t* offsets) {
  Blocks blocks;
  uint64_t at = 0;
  for (uint32_t i = 0; i < collective.size; ++i) {
    const uint64_t bytes = (counts != nullptr ? counts[i] : collective.count) * collective.element;
    blocks.push_back({where, offsets != nullptr ? offsets[i] * collective.element : at, bytes});
    at += bytes;
  }
  return blocks;
}

Blocks input_blocks(const Collective& c) {
  const bool alltoall = c.kind == CollectiveKind::alltoall, reduce_scatter = c.kind == CollectiveKind::reduce_scatter;
  if (alltoall && c.in_place) return output_blocks(c);
  const Where where = reduce_scatter && c.in_place ? Where::output : Where::input;
  return blocks_of(c, where, reduce_scatter ? c.recv_counts : c.send_counts, c.send_offsets);
}

uint64_t own_bytes(const Collective& c) {
  const uint64_t* counts = c.kind == CollectiveKind::scatter ? c.send_counts : c.recv_counts;
  const bool known = counts != nullptr && (!c.counts_at_root || c.rank == c.root);
  return (known ? counts[c.rank] : c.count) * c.element;
}

Blocks cut(const Part& whole, uint32_t n, uint32_t element) {
  const uint64_t elements = whole.length / element;
  Blocks blocks;
  uint64_t at = 0;
  for (uint32_t i = 0; i < n; ++i) {
    const uint64_t bytes = (elements / n + (i < elements % n ? 1 : 0)) * element;
    blocks.push_back(slice(whole, at, bytes));
    at += bytes;
  }
  return blocks;
}

Blocks ordered(const Blocks& blocks, const Team& team) {
  Blocks sorted;
  for (uint32_t rank : team.ranks) sorted.push_back(blocks[rank]);
  return sorted;
}

uint64_t longest(const Blocks& blocks) {
  uint64_t most = 0;
  for (const Part& block : blocks) most = std::max(most, block.length);
  return most;
}

uint32_t power_of_two(uint32_t n) { return std::bit_floor(n); }

}  // namespace thalweg::impl
