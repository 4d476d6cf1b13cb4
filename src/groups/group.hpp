// SPDX-License-Identifier: Apache-2.0
// The ranks of a group as one of them sees them: the endpoint to each, made when it is first needed, and the numbers that tell the
// group's collectives from those of other groups.
#pragma once
#include <thalweg/groups.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.hpp"
#include "base/platform/fork.hpp"
#include "base/status.hpp"
#include "core/worker.hpp"

namespace thalweg::impl {

class Collectives;  // collectives/collectives.hpp

/// Makes the endpoints of a group. The group's creator chooses: endpoints of the caller's, or addresses that are connected to.
class Peers {
 public:
  virtual ~Peers() = default;
  /// Begins to connect where that is not done. TW_OK: *out is connected; TW_IN_PROGRESS: progress the worker and ask again. The own
  /// rank: an endpoint of the worker to itself.
  virtual Status endpoint(uint32_t rank, tw_endpoint** out) = 0;
};

}  // namespace thalweg::impl

/// C handle.
struct tw_group {
  using Status = thalweg::impl::Status;
  tw_group(tw_worker& worker, uint32_t rank, uint32_t size, uint64_t timeout_ns)
      : worker(worker), rank(rank), size(size), timeout_ns(timeout_ns) {}
  /// As Peers::endpoint, with an error that names the rank.
  Status endpoint(uint32_t to, tw_endpoint** out);
  /// Progresses the worker until the endpoint is there, within the group's time.
  Status await_endpoint(uint32_t to, tw_endpoint** out);

  tw_worker& worker;
  const uint32_t rank, size;
  const uint64_t timeout_ns;
  std::shared_ptr<thalweg::impl::Peers> peers;  // of duplicates and parts, too
  std::vector<uint32_t> members;                // rank here -> rank in `peers`; empty: the same
  uint64_t id = 0;       // the same on all ranks, different from that of every other group with any of them
  uint64_t started = 0;  // collectives so far: all ranks start the same in the same order
  uint64_t running = 0;  // of those, not over
  std::shared_ptr<thalweg::impl::Collectives> collectives;  // made by the first one; ends before `peers`
  double message_ns = 0,
         byte_ns = 0;  // costs of its links, by which algorithms are chosen: rank 0's, on all ranks; 0: the defaults
  thalweg::impl::BornHere born;
};
