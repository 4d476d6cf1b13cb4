// SPDX-License-Identifier: Apache-2.0
// The ways of an exchange that are compared. An object of each lives as long as its cube.
#pragma once
#include <memory>

#include "gpu/gpu.hpp"
#include "halo/cube.hpp"

namespace halo {

class Way {
 public:
  virtual ~Way() = default;
  /// `count` exchanges, one after the other; returns when all are done here.
  virtual void run(uint64_t count) = 0;
};

/// The host's trigger: tagged messages, strided by layouts.
std::unique_ptr<Way> by_host(apps::Ranks& ranks, Cube& cube);
/// A queue's trigger: a plan prepared once, enqueued for every exchange; captured: a graph of ten. place: whose queue.
std::unique_ptr<Way> by_queue(apps::Ranks& ranks, Cube& cube, const std::string& place, bool captured);
/// The kernel's trigger: the code that has the cells stores them into the peer's cube and signals; the host launches it once a run. On
/// the processor the same text runs in the calling thread.
std::unique_ptr<Way> by_kernel(apps::Ranks& ranks, Cube& cube, const std::string& place);
/// What a program does whose library knows no layouts: packs each box by a loop (on a GPU: a kernel), sends it contiguous, unpacks.
std::unique_ptr<Way> by_packing(apps::Ranks& ranks, Cube& cube, const std::string& place);

}  // namespace halo
