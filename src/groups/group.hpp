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
#include "plans/window_list.hpp"

namespace thalweg::impl {

class Collectives;  // collectives/collectives.hpp

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

/// What each rank says of itself when a group is made: where it is, and what its links cost.
struct RankPlace {
  uint64_t host = 0;
  double message_ns = 0, byte_ns = 0;            // within a host
  double serial_byte_ns = 0;                     // where the copy in and the copy out follow each other
  double read_ns = 0, read_byte_ns = 0;          // by the kernel from another process
  double host_message_ns = 0, host_byte_ns = 0;  // between hosts
};
RankPlace place_of(const tw_worker& worker);

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
  tw_group(tw_worker& worker, uint32_t rank, uint32_t size, uint64_t timeout_ns);
  ~tw_group();
  /// As Peers::endpoint, with an error that names the rank.
  Status endpoint(uint32_t to, tw_endpoint** out);
  /// Progresses the worker until the endpoint is there, within the time. TW_ERR_BUSY: it is not, and this is inside progress.
  Status await_endpoint(uint32_t to, tw_endpoint** out, uint64_t limit_ns);
  /// TW_ERR_BUSY inside progress, where the connection to that rank cannot be waited for.
  Status check_may_connect(uint32_t to) const;
  /// ... within the group's.
  Status await_endpoint(uint32_t to, tw_endpoint** out) { return await_endpoint(to, out, timeout_ns); }
  /// Is the rank's endpoint made, and over?
  bool is_lost(uint32_t of) const;
  /// All ranks' places, of which rank 0's costs are the group's.
  template <class Contributions>
  void take_places(const Contributions& all) {
    for (const auto& one : all) hosts.push_back(one.place.host);
    costs = all[0].place;
  }
  /// Ranks i and j are of one host if i / this == j / this; 0: not so.
  uint32_t ranks_per_host() const;
  /// Before other ranks know that the group exists here: from now on its letters are kept.
  void set_id(uint64_t to);
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
  uint64_t running = 0;    // calls and collectives that are not over: under the engine's lock (Occupied)
  uint64_t exchanges = 0;  // calls that exchange, so far: in the same order, too
  uint64_t made = 0;       // calls that make groups of this one, so far: in the same order; ids and steps derive from it
  std::shared_ptr<thalweg::impl::Collectives> collectives;  // made by the first one; ends before `peers`
  thalweg::impl::WindowList windows;                        // that its collectives on queues use
  std::vector<uint64_t> hosts;                              // by rank
  thalweg::impl::RankPlace costs;  // of its links, by which algorithms are chosen: the same on all ranks
  thalweg::impl::BornHere born;
};

namespace thalweg::impl {

/// What this rank lacks, and says nothing about the other one.
inline bool is_of_this_rank(Status status) { return status == TW_ERR_LIMIT || status == TW_ERR_NO_MEMORY; }
/// How a call of the group ends by the error of an endpoint: its rank is lost, whether it has closed or was never reached.
inline Status status_of_loss(Status of_endpoint) {
  return is_of_this_rank(of_endpoint) ? of_endpoint : Status{TW_ERR_PEER_LOST};
}

/// A call that waits in the group: what its progress calls back cannot destroy the group meanwhile. Begins and ends under no lock.
class Occupied {
 public:
  explicit Occupied(tw_group& group) : group_(group) {
    const Engine::Guard guard(*group_.worker.engine);
    ++group_.running;
  }
  ~Occupied() {
    const Engine::Guard guard(*group_.worker.engine);
    --group_.running;
  }
  Occupied(const Occupied&) = delete;
  Occupied& operator=(const Occupied&) = delete;

 private:
  tw_group& group_;
};

}  // namespace thalweg::impl
