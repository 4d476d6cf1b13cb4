// SPDX-License-Identifier: Apache-2.0
// The ranks of a group as one of them sees them: the endpoint to each, made when it is first needed, and the numbers that tell
// the group's collectives from those of other groups.
//
// Life: made from endpoints (tw_group_create), from a launcher's environment (tw_init: the world, which owns its worker and
// context), or from another group (split, duplicate, shrink: they share its Peers). Each ends by tw_group_destroy, the world
// last.
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

/// Costs of a group's links, in nanoseconds; 0: the defaults.
struct LinkNs {
  double message = 0;                // one way, without bytes
  double byte = 0, serial_byte = 0;  // copied in and out, at once or one behind the other
  double read = 0, read_byte = 0;    // by the kernel from another process
};

/// Makes the endpoints of a group. The group's creator chooses: endpoints of the caller's, or addresses that are connected to.
class Peers {
 public:
  virtual ~Peers() = default;
  /// Begins to connect where that is not done. TW_OK: *out is connected; TW_IN_PROGRESS: operations on it wait until it is:
  /// progress the worker and ask again. The own rank: an endpoint of the worker to itself.
  virtual Status endpoint(uint32_t rank, tw_endpoint** out) = 0;
  /// The endpoint if there is one; null: it was not needed yet.
  virtual tw_endpoint* made(uint32_t rank) const = 0;
  /// As sender_of() (mailbox.hpp), also without an endpoint.
  virtual uint64_t sender(uint32_t rank) const = 0;
};

/// What ends with the world.
struct World {
  tw_context* context = nullptr;
  tw_worker* worker = nullptr;
  World() = default;
  World(const World&) = delete;
  ~World();
};

}  // namespace thalweg::impl

/// C handle.
struct tw_group {
  using Status = thalweg::impl::Status;
  tw_group(tw_worker& worker, uint32_t rank, uint32_t size, uint64_t timeout_ns)
      : worker(worker), rank(rank), size(size), timeout_ns(timeout_ns) {}
  ~tw_group();
  /// As Peers::endpoint, with an error that names the rank.
  Status endpoint(uint32_t to, tw_endpoint** out);
  /// Progresses the worker until the endpoint is there, within the group's time.
  Status await_endpoint(uint32_t to, tw_endpoint** out);
  /// Is the rank's endpoint made, and over?
  bool is_lost(uint32_t of) const;
  /// Rank here -> rank in `peers`.
  uint32_t member(uint32_t of) const { return members.empty() ? of : members[of]; }

  std::unique_ptr<thalweg::impl::World> world;  // destroyed behind all else
  tw_worker& worker;
  const uint32_t rank, size;
  const uint64_t timeout_ns;
  std::shared_ptr<thalweg::impl::Peers> peers;  // of duplicates and parts, too
  std::vector<uint32_t> members;                // rank here -> rank in `peers`; empty: the same
  uint64_t id = 0;         // the same on all ranks, different from that of every other group with any of them
  uint64_t started = 0;    // collectives so far: all ranks start the same in the same order
  uint64_t running = 0;    // of those, not over
  uint64_t exchanges = 0;  // so far: in the same order, too
  uint64_t made = 0;       // calls that make groups of this one, so far: in the same order; ids and steps derive from it
  std::shared_ptr<thalweg::impl::Collectives> collectives;  // made by the first one; ends before `peers`
  thalweg::impl::LinkNs link;                               // by which algorithms are chosen: rank 0's, on all ranks
  thalweg::impl::BornHere born;
};
