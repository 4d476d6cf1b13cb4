// SPDX-License-Identifier: Apache-2.0
// Dissemination: in round k each rank tells the one 2^k behind it that all it has heard of are here. ceil(log2 n) rounds.
// D. Hensgen, R. Finkel, U. Manber, "Two Algorithms for Barrier Synchronization", 1988.
#include "collectives/algorithms.hpp"
#include "collectives/blocks.hpp"

namespace thalweg::impl {

void dissemination_barrier(const Collective& c, Schedule* schedule) {
  std::vector<uint32_t> heard;
  if (c.size == 1) return;
  const Part byte = schedule->take_scratch(1);
  for (uint32_t distance = 1; distance < c.size; distance *= 2) {
    const Part theirs = schedule->take_scratch(1);
    schedule->send((c.rank + distance) % c.size, byte, heard);
    heard.push_back(schedule->recv((c.rank + c.size - distance) % c.size, theirs));
  }
}

}  // namespace thalweg::impl
