// SPDX-License-Identifier: Apache-2.0
// In round i each rank sends the i-th one behind it that one's block, and adds what comes from the i-th one before it: n - 1
// rounds, every byte one hop, two slots of scratch memory. R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective
// Communication Operations in MPICH", 2005.
#include "collectives/algorithms.hpp"
#include "collectives/reduce_scatter_result.hpp"

namespace thalweg::impl {

void pairwise_reduce_scatter(const Collective& c, Schedule* schedule) {
  Writer w(c, schedule);
  const Blocks from = input_blocks(c);
  const Part result = result_of(w, c);
  const uint32_t n = c.size;
  Part sum = from[c.rank];
  const Part slots[2] = {w.scratch(n > 1 ? sum.length : 0), w.scratch(n > 2 ? sum.length : 0)};
  for (uint32_t i = 1; i < n; ++i) {
    const uint32_t to = (c.rank + i) % n, before = (c.rank + n - i) % n;
    w.recv(before, slots[(i - 1) % 2]);
    w.send(to, from[to]);
    w.reduce(result, {sum, slots[(i - 1) % 2]});
    sum = result;
  }
  if (n == 1) w.reduce(result, {sum});
  put_result(w, result);
}

}  // namespace thalweg::impl
