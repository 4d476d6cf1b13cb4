// SPDX-License-Identifier: Apache-2.0
// Iterations and exchanges in turn, by each of the triggers.
#pragma once
#include "himeno/jacobi.hpp"

namespace himeno {

class Loop {
 public:
  virtual ~Loop() = default;
  /// The next `count` iterations with their exchanges; returns when all is done here.
  virtual void run(uint64_t count) = 0;
};

/// The host waits for each iteration, then exchanges by tagged messages.
std::unique_ptr<Loop> host_loop(apps::Ranks& ranks, Field& field, Jacobi& jacobi, const apps::Moves& moves);

/// A queue starts the exchange behind the iteration; the host only enqueues. captured: it launches a graph of two of them.
std::unique_ptr<Loop> queue_loop(apps::Ranks& ranks, Field& field, Jacobi& jacobi, const apps::Moves& moves,
                                 const std::string& place, bool captured);

/// Iterations exchange themselves: the kernel's trigger. reach: the one of `jacobi`.
std::unique_ptr<Loop> kernel_loop(Jacobi& jacobi, const Reach& reach);

}  // namespace himeno
