// SPDX-License-Identifier: Apache-2.0
// Each rank adds its input to what comes from the one before it, and sends that on; chunks follow each other.
#include "collectives/algorithms.hpp"
#include "collectives/blocks.hpp"

namespace thalweg::impl {

void chain_scan(const Collective& c, Schedule* schedule) {
  Writer w(c, schedule);
  const bool exclusive = c.kind == CollectiveKind::exclusive_scan, last = c.rank + 1 == c.size;
  Part sum = own(c);
  if (c.rank != 0) {
    const Part before = exclusive && !c.in_place ? output(c) : w.scratch(c.bytes());
    w.recv(c.rank - 1, before);
    if (!exclusive || !last) {
      sum = exclusive ? w.scratch(c.bytes()) : output(c);
      w.reduce(sum, {before, own(c)});
    }
    if (exclusive) c.rank == 1 ? w.reduce(output(c), {before}) : w.copy(output(c), before);
  } else if (!exclusive) {
    w.reduce(output(c), {sum});
  }
  if (!last) w.send(c.rank + 1, sum);
}

}  // namespace thalweg::impl
