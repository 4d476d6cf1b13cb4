// SPDX-License-Identifier: Apache-2.0
// In round k each rank exchanges the sum of its group of 2^k with the one whose number differs in bit k; what comes from a
// lower rank goes into the result, too, before what is there. ceil(log2 n) rounds, in rank order. As in MPICH.
#include "collectives/algorithms.hpp"
#include "collectives/pieces.hpp"

namespace thalweg::impl {

void recursive_doubling_scan(const Collective& c, Schedule* schedule) {
  Writer w(c, schedule);
  const Part to = output(c);
  Part sum = own(c), result = c.kind == CollectiveKind::scan ? sum : Part{}, group;
  for (uint32_t mask = 1; mask < c.size; mask *= 2) {
    const uint32_t peer = c.rank ^ mask;
    if (peer >= c.size) continue;
    const Part theirs = w.scratch(c.bytes());
    const bool lower = peer < c.rank;
    w.recv(peer, theirs);
    w.send(peer, sum);
    if (mask * 2 < c.size) {
      if (group.length == 0) group = w.scratch(c.bytes());
      reduce_in_order(w, group, sum, theirs, lower);
      sum = group;
    }
    if (!lower) continue;
    if (result.length != 0) {
      w.reduce(to, {theirs, result});
    } else {
      mask == 1 ? w.reduce(to, {theirs}) : w.copy(to, theirs);
    }
    result = to;
  }
  if (c.kind == CollectiveKind::scan && c.rank == 0) w.reduce(to, {result});
}

}  // namespace thalweg::impl
