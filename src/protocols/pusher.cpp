// SPDX-License-Identifier: Apache-2.0
// What progress sends of that which had to wait. See pusher.hpp.
#include "protocols/pusher.hpp"

#include <utility>

#include "protocols/active.hpp"
#include "protocols/blocks.hpp"
#include "protocols/engine.hpp"
#include "protocols/flow.hpp"
#include "protocols/one_sided.hpp"
#include "protocols/pipeline.hpp"

namespace thalweg::impl {

namespace {
/// Bytes of one stream before it is another's turn: few changes between buffers keep their pages in the processor's tables.
/// Fragments by reference and pieces of direct copies are a turn each.
constexpr uint64_t kTurn = 1u << 20;
}  // namespace

unsigned Pusher::push() {
  unsigned events = 0;
  Peer* peer = busy_;
  busy_ = nullptr;
  while (peer != nullptr) {
    Peer* next = peer->next_busy;
    peer->busy = false;
    peer->next_busy = nullptr;
    events += push(*peer);
    peer = next;
  }
  return events;
}

unsigned Pusher::push(Peer& peer) {
  if (peer.link == nullptr || peer.doomed) return 0;
  unsigned events = 0;
  bool room = true;
  if (waits_for_header(peer)) answer_for_header(engine_, peer);
  while (room && peer.link != nullptr && !peer.control.empty()) {
    const ControlFrame& frame = peer.control.front();
    Status status = peer.link->port->send(*peer.link, frame.header, frame.body);
    room = status == TW_OK;
    if (room) {
      peer.control.pop();
      --engine_.control_frames;
      ++events;
    }
  }
  if (room) {
    events += push_queue(peer, peer.ordered);
    events += push_queue(peer, peer.bytes);
    const bool queue_first = std::exchange(peer.queue_first, !peer.queue_first);  // where there is room for one of them
    if (queue_first) events += push_one_sided(engine_, peer);
    events += push_queue(peer, peer.answers);
    if (!queue_first) events += push_one_sided(engine_, peer);
    events += push_pipelines(peer);
  } else {
    events += push_one_sided(engine_, peer, false);
  }
  events += push_windows(peer);
  if (peer.link == nullptr) return events;
  if (!peer.windows.empty() || !peer.control.empty() || !peer.ordered.empty() || !peer.pipelines.empty() ||
      !peer.bytes.empty() || !peer.one_sided.queue.empty() || !peer.answers.empty() || notices_wait(peer) ||
      waits_for_header(peer)) {
    wants(peer);
  }
  return events;
}

unsigned Pusher::push_queue(Peer& peer, RunList& queue) {
  unsigned events = 0;
  while (OpRun* run = queue.front()) {
    if (peer.link == nullptr || peer.doomed) break;
    Status status = run->protocol->step(*run);
    if (status == TW_AGAIN) {
      peer.tally.retries.add();
      break;
    }
    ++events;
    if (status == TW_IN_PROGRESS) {
      if (run->list == &queue) queue.remove(run);
    } else {
      engine_.complete(*run, status);
    }
  }
  return events;
}

unsigned Pusher::push_pipelines(Peer& peer) {
  unsigned events = 0;
  OpRun* first = nullptr;  // one turn each: stop when the first one of those that stay comes again
  while (OpRun* run = peer.pipelines.front()) {
    if (run == first || peer.link == nullptr || peer.doomed) break;
    const uint64_t before = run->pipeline.position, turn = before / kTurn;
    Status status = pipeline_turn(engine_, peer, *run);
    if (status == TW_AGAIN) {
      peer.tally.retries.add();
      break;
    }
    ++events;
    if (status != TW_IN_PROGRESS) continue;
    const Pipeline& pipeline = run->pipeline;
    if (pipeline.kind == Pipeline::out && pipeline.in_flight == 0 && pipeline.position != before &&
        pipeline.position / kTurn == turn) {
      continue;
    }
    peer.pipelines.remove(run);
    peer.pipelines.push_back(run);
    if (first == nullptr) first = run;
  }
  return events;
}

unsigned Pusher::push_windows(Peer& peer) {
  unsigned events = 0;
  OpRun* first = nullptr;  // of those that stay
  while (OpRun* run = peer.windows.front()) {
    if (run == first || peer.link == nullptr || peer.doomed) break;
    ++events;
    if (pipeline_turn(engine_, peer, *run) != TW_IN_PROGRESS) continue;
    peer.windows.remove(run);
    peer.windows.push_back(run);
    if (first == nullptr) first = run;
  }
  return events;
}

void Pusher::forget(Peer& peer) {
  if (!peer.busy) return;
  Peer** at = &busy_;
  while (*at != nullptr && *at != &peer) at = &(*at)->next_busy;
  if (*at != nullptr) *at = peer.next_busy;
  peer.busy = false;
}

}  // namespace thalweg::impl
