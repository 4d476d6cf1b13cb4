// SPDX-License-Identifier: Apache-2.0
// Which connection a worker has with which other worker, made by worker address. Decides simultaneous connects: the lower
// worker id's attempt wins. Touched by the worker's posting threads and by the service thread, hence the mutex; set-up only.
#pragma once
#include <cstdint>
#include <deque>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "transports/transport.hpp"

struct tw_endpoint;

namespace thalweg::impl {

class Directory {
 public:
  enum class State {
    outgoing,    // this side tries
    incoming,    // the peer's attempt was answered, its confirmation is awaited
    established  // confirmed: linked, or on its way through the inbox
  };
  struct Entry {
    State state = State::outgoing;
    tw_endpoint* endpoint = nullptr;  // null: not requested on this side yet
    uint64_t key = 0;                 // own attempt on the service thread, 0 none
    uint64_t token = 0;               // established: the attempt that won. incoming: the peer's
  };
  enum class Decision { answer, superseded };

  explicit Directory(WorkerId self) : self_(self) {}

  /// Service thread: a connect message came. answer: a confirmation may follow.
  Decision arrived(WorkerId peer, uint64_t token, uint64_t previous);
  /// Service thread: confirmed. false: decided otherwise meanwhile. *own_key: an attempt of ours to be ended, or 0.
  bool confirmed(WorkerId peer, uint64_t token, uint64_t previous, uint64_t* own_key);
  /// Service thread: the peer's attempt broke before it was confirmed. true: an endpoint here waits for it and must connect
  /// itself.
  bool broke(WorkerId peer, uint64_t token);
  /// Service thread: our own attempt was accepted; true: confirm it, false: the peer's won meanwhile.
  bool won(WorkerId peer, uint64_t key, uint64_t token);

  /// For the worker, with the mutex held.
  std::mutex mutex;
  std::unordered_map<WorkerId, Entry> entries;
  /// Token of the last connection with this worker that is over; 0: there was none, or it is long ago.
  uint64_t last_ended(WorkerId peer) const;
  static constexpr size_t kEndedKept = 4096;
  /// The connection `token` was made and is dropped before an endpoint took it. true: an endpoint waits and must connect
  /// itself.
  bool dropped(WorkerId peer, uint64_t token);
  /// `endpoint`, whose connection was `token` (0: it never had one), has ended. A newer connection of the same peer that is
  /// on its way stays. Takes the mutex.
  void forget(WorkerId peer, const tw_endpoint* endpoint, uint64_t token);

 private:
  void note_ended(WorkerId peer, uint64_t token);
  WorkerId self_;
  std::unordered_map<WorkerId, uint64_t> ended_;
  std::deque<std::pair<WorkerId, uint64_t>> ends_;  // in order, of the same worker perhaps several
};

}  // namespace thalweg::impl
