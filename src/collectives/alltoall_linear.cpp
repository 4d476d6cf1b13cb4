// SPDX-License-Identifier: Apache-2.0
// All messages at once; each rank begins with the one behind it, so that no rank is sent to by all.
#include "collectives/algorithms.hpp"
#include "collectives/alltoall_sources.hpp"

namespace thalweg::impl {

void linear_alltoall(const Collective& c, Schedule* schedule) {
  Writer w(c, schedule, Writer::Cut::whole);
  const Blocks to = output_blocks(c), from = alltoall_sources(w, c, to);
  for (uint32_t i = 1; i < c.size; ++i) {
    const uint32_t next = (c.rank + i) % c.size, before = (c.rank + c.size - i) % c.size;
    w.recv(before, to[before]);
    w.send(next, from[next]);
  }
}

}  // namespace thalweg::impl
