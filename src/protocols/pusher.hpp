// SPDX-License-Identifier: Apache-2.0
// Peers that have something queued: what was posted before there was room, or a connection, transfers of many fragments, answers that
// are owed. Each progress sends of each of them what there is room for, in the order that peer.hpp describes.
//
// Under the engine's lock.
#pragma once
#include "protocols/operation.hpp"

namespace thalweg::impl {

class Pusher {
 public:
  explicit Pusher(Engine& engine) : engine_(engine) {}
  Pusher(const Pusher&) = delete;
  Pusher& operator=(const Pusher&) = delete;

  /// The peer has something queued: the next progress pushes.
  inline void wants(Peer& peer);
  bool idle() const { return busy_ == nullptr; }
  /// Returns how much was sent. Who has more waits for the next time.
  unsigned push();
  /// The peer is about to be freed.
  void forget(Peer& peer);

 private:
  unsigned push(Peer& peer);
  unsigned push_queue(Peer& peer, RunList& queue);
  unsigned push_pipelines(Peer& peer);
  unsigned push_windows(Peer& peer);

  Engine& engine_;
  Peer* busy_ = nullptr;  // linked by Peer::next_busy
};

}  // namespace thalweg::impl
