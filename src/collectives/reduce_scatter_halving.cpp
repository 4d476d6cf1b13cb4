// SPDX-License-Identifier: Apache-2.0
// Recursive halving: in each round a rank gives the half of the blocks that it still sums to the one as far away as that half,
// and keeps the half with its own: log2 n rounds, every block sent once. R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of
// Collective Communication Operations in MPICH", 2005.
#include "collectives/algorithms.hpp"
#include "collectives/pieces.hpp"
#include "collectives/reduce_scatter_result.hpp"

namespace thalweg::impl {
namespace {

/// The blocks as one part, by way of scratch memory unless they are that.
Part as_one(Writer& w, const Blocks& blocks) {
  Part whole;
  if (adjacent(blocks, &whole)) return whole;
  const Blocks packed = w.scratch_like(blocks);
  for (size_t i = 0; i < blocks.size(); ++i) w.copy(packed[i], blocks[i]);
  adjacent(packed, &whole);
  return whole;
}

}  // namespace

void halving_reduce_scatter(const Collective& c, Schedule* schedule) {
  Writer w(c, schedule);
  const Blocks blocks = input_blocks(c);
  const Team all = team_of(c);
  const Fold folded = fold(all);
  const Part result{Where::output, 0, own_bytes(c)};
  if (c.size == 1) {
    const Part alone = result_of(w, c);
    w.reduce(alone, {blocks[0]});
    return put_result(w, alone);
  }
  Part sum = as_one(w, blocks);
  if (folded.sits_out) {
    w.send(folded.partner, sum);
    return w.recv(folded.partner, result);
  }
  std::vector<uint64_t> begin{0};  // of each block
  for (const Part& block : blocks) begin.push_back(begin.back() + block.length);
  const auto bytes_before = [&](uint32_t i) { return begin[ranks_before(all, i)]; };
  const auto range = [&](uint32_t first, uint32_t last) {
    return Range{bytes_before(first), bytes_before(last) - bytes_before(first)};
  };
  const Team& team = folded.team;
  const Part to = w.scratch(sum.length);
  sum = fold_in(w, folded, sum, to);
  uint32_t first = 0;  // of the ranks whose blocks are still summed
  for (uint32_t half = team.size() / 2; half != 0; half /= 2) {
    const bool upper = team.me >= first + half;
    const Range keep = upper ? range(first + half, first + 2 * half) : range(first, first + half);
    const Range give = upper ? range(first, first + half) : range(first + half, first + 2 * half);
    const Part theirs = w.scratch(keep.length);
    w.recv(team.rank(team.me ^ half), theirs);
    w.send(team.rank(team.me ^ half), slice(sum, give));
    w.reduce(slice(to, keep), {slice(sum, keep), theirs});
    sum = to;
    if (upper) first += half;
  }
  if (folded.folded) w.send(folded.partner, slice(sum, begin[c.rank - 1], blocks[c.rank - 1].length));
  put_result(w, slice(sum, begin[c.rank], result.length));
}

}  // namespace thalweg::impl
