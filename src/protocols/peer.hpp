// SPDX-License-Identifier: Apache-2.0
// One endpoint as the protocols see it: its link, what waits for room, flow control, one-sided accounting.
// Owned by core's Endpoint; touched by the worker's progress owner (or under the worker's lock).
#pragma once
#include <cstdint>
#include <string>

#include "protocols/operation.hpp"
#include "transports/transport.hpp"

namespace thalweg::impl {

class Engine;

struct Peer {
  Engine* engine = nullptr;
  Link* link = nullptr;              // null while connecting and after loss
  tw_endpoint* endpoint = nullptr;   // reported in tw_recv_info
  Status state = TW_IN_PROGRESS;     // connecting; TW_OK connected; an error when lost or closed
  std::string why;                   // text of that error
  PeerIdentity identity;

  // Sending. Order matters in `ordered` (messages, announcements, control); `streams` are large transfers whose data
  // frames take turns after it, one fragment each, so that a small message never waits for a large one.
  RunList ordered, streams;
  bool busy = false;                 // linked in the engine's list of peers with something to push
  Peer* next_busy = nullptr;

  // Flow control of eager messages (see docs/semantics.md): what may still be sent before the receiver gives credit back,
  // and what this side has consumed and not yet given back.
  int64_t eager_credit = 0, announce_credit = 0;
  uint64_t consumed_bytes = 0, consumed_messages = 0;

  // One-sided: frames sent that the target has not confirmed; a flush waits for them.
  uint64_t unconfirmed = 0;
  RunList flushes;
  RunList waiting;                   // by_peer: every run that a loss of this peer must end
};

}  // namespace thalweg::impl
