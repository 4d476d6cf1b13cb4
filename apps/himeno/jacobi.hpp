// SPDX-License-Identifier: Apache-2.0
// Who computes an iteration: this processor, or a GPU's kernels.
#pragma once
#include <memory>

#include "himeno/reach.hpp"
#include "ranks/plan.hpp"

namespace himeno {

class Jacobi {
 public:
  virtual ~Jacobi() = default;
  /// One iteration from p(from) to p(1 - from), behind what was enqueued earlier.
  virtual void enqueue(int from) = 0;
  /// A queue in which later iterations are enqueued: the GPU's stream, or a thread of the host, from the first call on.
  virtual const apps::Queue& queue() = 0;
  /// What was enqueued is done, of iterations that are not in the queue.
  virtual void synchronize() = 0;
  /// This rank's part of the last iteration's gosa, the sum of the residuals' squares; after synchronize(). In double: it depends on
  /// the decomposition in the last bits of a double only.
  virtual double gosa() = 0;
};

/// reach: iterations exchange faces and edges themselves (neighbour.hpp); null: somebody else does.
std::unique_ptr<Jacobi> on_processor(apps::Ranks& ranks, Field& field, const Reach* reach);
std::unique_ptr<Jacobi> on_gpu(apps::Ranks& ranks, Field& field, const std::string& place, const Reach* reach);

}  // namespace himeno
