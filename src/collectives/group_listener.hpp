// SPDX-License-Identifier: Apache-2.0
// A receive of a group that stays posted: for the message of a rank that gives up, and for what comes after that.
#pragma once
#include <atomic>
#include <memory>

#include "collectives/group_wire.hpp"
#include "protocols/engine.hpp"

namespace thalweg::impl {

class Collectives;

/// Ends itself: its buffer belongs to the engine until the receive is over.
class GroupListener {
 public:
  /// drops: messages of any number, of which nothing is kept; else one GiveUp.
  static GroupListener* open(Collectives& owner, uint64_t tag, bool drops);
  /// The owner ends. One that drops goes on until the worker ends: what nobody takes would hold up the senders' credits.
  void close();

 private:
  GroupListener(Collectives& owner, uint64_t tag, bool drops);
  void post();
  static void on_end(void* arg, tw_request request, Status status, const tw_recv_info* info);

  Engine& engine_;
  Collectives* owner_;
  const uint64_t tag_;
  const bool drops_;
  tw_request request_ = TW_REQUEST_NONE;
  GiveUp message_{};
};

/// Sends it; the copy lives as long as needed. under_way: is raised until it is sent, or cannot be: then the peer is lost.
void send_give_up(Engine& engine, Peer& peer, uint64_t tag, const GiveUp& message,
                  const std::shared_ptr<std::atomic<uint32_t>>& under_way);

}  // namespace thalweg::impl
