// SPDX-License-Identifier: Apache-2.0
// What the endpoints and plans of a context have moved, for those who watch: tw_context_counters and the live socket.
//
// Counting is the endpoints' own (Moved, EndpointTally), by the thread that progresses them. Here is where the counters are, which takes
// a lock only when an endpoint or a plan comes, connects, is lost or goes; what has gone is kept as a sum.
#pragma once
#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/tally.hpp"
#include "routes/moved.hpp"
#include "transports/transport.hpp"

namespace thalweg::impl {

/// What one endpoint has counted. Written by its worker's progress owner, read by any thread.
struct EndpointTally {
  Moved moved;
  /// Messages that came: eager ones when they were matched or dropped, others when all of them was here. Of active messages those with a
  /// payload, and that alone, as at their sender.
  Tally received, received_bytes;
  /// ... of those the ones that this side fetched or was sent after it was asked: `moved` has them, too.
  Tally fetched, fetched_bytes;
  Tally announced, announced_bytes;                  // messages that went by rendezvous, when they were announced
  Tally stream_sends, stream_sent, stream_received;  // of byte streams: sends, and bytes
  Tally retries;  // how often what was to be sent found no room, or no credit, and waited for the next turn
};

/// A copy of the above, with what the endpoint is.
struct EndpointCounts {
  uint64_t id = 0;      // in this process, never given again
  uint64_t worker = 0;  // whose endpoint it is
  PeerIdentity peer;    // as it was connected; zeros before
  const char* transport = "";
  Status state = TW_IN_PROGRESS;
  Moved::Counts moved{};
  uint64_t received = 0, received_bytes = 0, fetched = 0, fetched_bytes = 0, announced = 0, announced_bytes = 0;
  uint64_t stream_sends = 0, stream_sent = 0, stream_received = 0, retries = 0;

  void read(const EndpointTally& from);
  EndpointCounts& operator+=(const EndpointCounts& other);  // the numbers
  // Messages and stream bytes that left; what was put, fetched or moved otherwise by operations of this side.
  uint64_t messages_sent() const { return moved[static_cast<size_t>(Way::eager)].operations + announced; }
  uint64_t bytes_sent() const { return moved[static_cast<size_t>(Way::eager)].bytes + announced_bytes + stream_sent; }
  uint64_t bytes_received() const { return received_bytes + stream_received; }
  Moved::Count accesses() const;
};

/// Of one context. Thread-safe.
class Traffic {
 public:
  /// `of` must be removed before its end.
  void add(const Moved& of);
  void remove(const Moved& of);
  void add(const EndpointTally& of, uint64_t worker);
  void connected(const EndpointTally& of, const char* transport, const PeerIdentity& peer);
  void lost(const EndpointTally& of, Status why);
  void remove(const EndpointTally& of);

  /// Of all, also of those that have gone.
  Moved::Counts sum() const;
  uint64_t named() const;  // bytes
  /// Those that are there, in the order in which they came. gone: the sums of those that are not, by worker.
  std::vector<EndpointCounts> endpoints(std::map<uint64_t, EndpointCounts>* gone) const;
  /// The worker ends, and with it the sums that are kept for it.
  void forget(uint64_t worker);

 private:
  void keep(const Moved& of);

  mutable std::mutex mutex_;
  std::vector<const Moved*> alive_;  // of plans
  std::unordered_map<const EndpointTally*, EndpointCounts> endpoints_;
  std::map<uint64_t, EndpointCounts> gone_;
  uint64_t next_id_ = 1;
  Moved::Counts ended_{};
  uint64_t ended_named_ = 0;
};

}  // namespace thalweg::impl
