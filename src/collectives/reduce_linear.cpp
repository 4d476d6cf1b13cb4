// SPDX-License-Identifier: Apache-2.0
// All send to the root, which combines all inputs by one reduction in rank order.
#include "collectives/algorithms.hpp"
#include "collectives/blocks.hpp"

namespace thalweg::impl {

void linear_reduce(const Collective& c, Schedule* schedule) {
  Writer w(c, schedule);
  if (c.rank != c.root) return w.send(c.root, own(c));
  Blocks inputs(c.size, own(c));
  for (uint32_t i = 1; i < c.size; ++i) {
    const uint32_t from = (c.root + i) % c.size;
    inputs[from] = w.scratch(c.bytes());
    w.recv(from, inputs[from]);
  }
  w.reduce(output(c), inputs);
}

}  // namespace thalweg::impl
