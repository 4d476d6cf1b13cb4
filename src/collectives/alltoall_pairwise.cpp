// SPDX-License-Identifier: Apache-2.0
// In round i each rank sends to the i-th one behind it and receives from the i-th one before it, once its round before that is
// over: n - 1 rounds, each link of a full crossbar used by one message at a time. R. Thakur, R. Rabenseifner, W. Gropp,
// "Optimization of Collective Communication Operations in MPICH", 2005.
#include "collectives/algorithms.hpp"
#include "collectives/alltoall_sources.hpp"

namespace thalweg::impl {

void pairwise_alltoall(const Collective& c, Schedule* schedule) {
  Writer w(c, schedule, Writer::Cut::whole);
  const Blocks to = output_blocks(c), from = alltoall_sources(w, c, to);
  for (uint32_t i = 1; i < c.size; ++i) {
    const uint32_t next = (c.rank + i) % c.size, before = (c.rank + c.size - i) % c.size, begin = w.steps();
    w.recv(before, to[before]);
    w.send(next, from[next]);
    if (begin != w.steps()) w.follow(begin, w.steps());
  }
}

}  // namespace thalweg::impl
